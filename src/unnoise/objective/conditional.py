"""The bound of token noise on some positions, given the others: only free positions are noised.

With all positions free it is `Elbo`. Every function takes x [B, L] long and free [B, L] bool.
"""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.base import by_positions, sum_rows
from unnoise.objective.elbo import Elbo
from unnoise.process.base import Process
from unnoise.process.state import LATEST
from unnoise.rng import Generator


def random_part(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, v: Tensor, generator: Generator) -> Tensor:
    """Return one draw of everything but `noise_end`, at the times that v [B], uniform on [0, 1), selects: [B]."""
    bound.process.check_tokens(x)
    t, weight = bound.times_at(v)
    nats = noised_nats(bound, denoiser, x, free, t, generator)
    return weight.to(nats.dtype) * nats + data_end(bound, denoiser, x, free, generator)


def noised_nats(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, t: Tensor, generator: Generator) -> Tensor:
    """Return the bound's term at times t [B], summed over the free positions: [B]."""
    return sum_rows(*noised_terms(bound, denoiser, x, free, t, generator))


def noised_terms(
    bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, t: Tensor, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return the terms of that sum [n], and the positions that they belong to [B, L] bool."""
    process = bound.process
    x_t = torch.where(free, process.noised(x, None, t[:, None].expand(x.shape), generator), x)
    where = bound.positions(x_t) & free
    prediction = predict(denoiser, process, x_t, t, where)
    times = t[:, None].expand(x.shape)[where].double()
    return by_positions(bound.term, prediction, x[where], x_t[where], times), where


def noise_end(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor) -> Tensor:
    """Return the boundary term at t = 1: KL(q(x_1|x_0) ‖ π), or the cost of the signal that masks leave: [B].

    Nothing is drawn for it, so one evaluation serves all draws.
    """
    process = bound.process
    nats = (process.noise_kl(x) * free).sum(-1)
    if process.residual_signal == 0:
        return nats
    late = torch.full((len(x),), LATEST, dtype=torch.float64, device=x.device)
    x_t = x.masked_fill(free, process.states - 1)
    return nats + process.residual_signal * _surprise(process, denoiser, x, x_t, free, late)


def data_end(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, generator: Generator) -> Tensor:
    """Return one draw of the boundary term where the integral starts, if noise is left: E Σ_free −log p(x_0 | x_start): [B]."""
    if not bound.leaves_noise:
        return x.new_zeros(len(x), dtype=torch.float64)
    start = bound.start_times(x)
    x_t = torch.where(free, bound.process.noised(x, None, start[:, None].expand(x.shape), generator), x)
    return _surprise(bound.process, denoiser, x, x_t, free & bound.process.active(x_t), start).double()


def _surprise(process: Process, denoiser: Denoiser, x: Tensor, x_t: Tensor, where: Tensor, t: Tensor) -> Tensor:
    prediction = predict(denoiser, process, x_t, t, where)
    times = t[:, None].expand(x.shape)[where].double()
    return sum_rows(by_positions(process.surprise, prediction, x[where], x_t[where], times), where)
