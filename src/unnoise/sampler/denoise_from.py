"""Sampling from a partially noised sequence."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.process.process_base import Process
from unnoise.process.state import StateSpace
from unnoise.rng import RowGenerator
from unnoise.sampler.sampler_base import Frame, Sampler, without_gradients


def sample_frames_from(
    process: StateSpace,
    denoiser: Denoiser,
    state: Tensor,
    t: float,
    *,
    sampler: Sampler,
    seed: int = 0,
    time_free: bool = False,
    independent_rows: bool = False,
    first_row: int = 0,
) -> Iterator[Frame]:
    """Yield every state of the reverse process from a state at time 0 < t ≤ 1: [B, L] tokens, or the process's own states.

    For an exact model the last state is a sample from p(x_0 | x_t). The other arguments are the same as for `sample`.
    """
    if not 0 < t <= 1:
        raise ValueError(f"denoising must start at a time 0 < t ≤ 1, found {t:g}")
    sampler.check(process)
    calls = SamplingDenoiser(
        process,
        cast(Process, process),  # samplers that need a Process have checked it
        denoiser,
        state.shape[1],
        time_free,
        sampler.temperature,
        sampler.top_p,
        mean_for=type(sampler).__name__ if sampler.mean_only else None,
        independent_rows=independent_rows,
    )
    rows = first_row + torch.arange(len(state), device=state.device)
    return without_gradients(sampler.frames_from(calls, state, t, RowGenerator(seed, rows)))
