"""Exact values of bounds on the enumerable distributions of `toy`."""

import torch

from toy import Toy, expected, quadrature
from unnoise import Elbo, Objective, Process
from unnoise.families.any_order import MaskCounts


@torch.no_grad()
def integral(toy: Toy, process: Process, elbo: Elbo, denoiser, nodes: int = 40) -> float:
    """E_{p_data} of the whole bound, boundary terms included, without drawing anything."""
    total = 0.0
    if elbo.steps is None:
        for t, w in zip(*quadrature(nodes), strict=True):
            at = elbo.start + (1 - elbo.start) * float(t)
            total += (1 - elbo.start) * float(w * expected(toy, process, at, lambda x, x_t, t: elbo.at(denoiser, x, x_t, t)))
    else:
        for i in range(1, elbo.steps + 1):
            total += float(expected(toy, process, i / elbo.steps, lambda x, x_t, t: elbo.at(denoiser, x, x_t, t)))
    total += float((toy.p * process.noise_kl(toy.x).sum(-1)).sum())
    if process.terminal_alpha > 0:
        total += process.terminal_alpha * float((toy.p * elbo.masked_reconstruction(denoiser, toy.x)).sum())
    if float(process.schedule.noise(torch.tensor([elbo.start])).max()) > 0:
        total += float(expected(toy, process, elbo.start, lambda x, x_t, t: elbo.reconstruction(denoiser, x, x_t, t)))
    return total


def counts_of(bound: Objective, time_free: bool = True) -> MaskCounts:
    found = MaskCounts.of(bound, time_free)
    assert found is not None
    return found
