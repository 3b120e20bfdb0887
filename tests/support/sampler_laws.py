"""The exact distribution of a sampler's result."""

import torch

from toy import Toy, sampler_law, texts
from unnoise import Process
from unnoise.sampler.leaping import Leaping
from unnoise.sampler.sampler_base import GridSampler


def exact_law(toy: Toy, process: Process, sampler: GridSampler, denoiser, given: torch.Tensor | None = None) -> torch.Tensor:
    """Compute the law of the sampler's result, [K^L], from its one-step probabilities."""
    free = torch.ones(toy.length, dtype=torch.bool) if given is None else given < 0
    canvases = texts(process.states, toy.length)
    start = process.stationary()[canvases[:, free]].prod(-1)
    if given is not None:
        start = start * (canvases[:, ~free] == given[~free]).all(-1)
    times = sampler.times(sampler.begin(process))

    def kernel(t: float, s: float | None):
        def probs(x: torch.Tensor) -> torch.Tensor:
            at = torch.full(x.shape, t)
            prediction = denoiser(x, at[:, 0].clamp_max(1 - 1e-6))
            if s is None:
                log_p = torch.nn.functional.pad(prediction.clean(process, x, at), (0, process.states - toy.vocab), value=-1e9)
            elif isinstance(sampler, Leaping):
                log_p = sampler.log_leap(process, prediction, x, torch.full(x.shape, s), at)
            else:
                log_p = prediction.reverse(process, x, torch.full(x.shape, s), at)
            stay = torch.nn.functional.one_hot(x, process.states).double()
            moves = process.active(x) & free
            return torch.where(moves[..., None], log_p.exp(), stay)

        return probs

    law = sampler_law(toy, process, start, [kernel(t, s) for t, s in zip(times, [*times[1:], None], strict=True)])
    return law[toy.index(toy.x, process.states)]
