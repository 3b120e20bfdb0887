"""Sampling from noise, and from a partially noised sequence."""

from collections import deque
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.process.process_base import Process
from unnoise.process.state import ProcessBase
from unnoise.rng import RowGenerator
from unnoise.sampler.sampler_base import Frame, Sampler


def sample(
    process: ProcessBase,
    denoiser: Denoiser,
    *,
    batch: int,
    length: int,
    sampler: Sampler,
    given: Tensor | None = None,
    seed: int = 0,
    time_free: bool = False,
    independent_rows: bool = False,
    first_row: int = 0,
) -> Tensor:
    """Sample sequences: [B, L] long, without masks.

    batch: number of sequences.
    length: number of tokens, or the maximum if the model chooses the length.
    given: [B, L] long, −1 where free; given positions never change. This samples the exact conditional distribution of masked
        processes and is a heuristic for other processes.
    time_free: the denoiser ignores t, so sequences that have not changed are not evaluated again.
    independent_rows: the prediction for a sequence depends only on that sequence, so sequences that do not change in a step are
        not evaluated (implied by time_free).
    seed, first_row: sample i depends only on the seed and on first_row + i, not on the batch size.
    """
    frames = sample_frames(
        process,
        denoiser,
        batch=batch,
        length=length,
        sampler=sampler,
        given=given,
        seed=seed,
        time_free=time_free,
        independent_rows=independent_rows,
        first_row=first_row,
        track_confidence=False,
    )
    return deque(frames, maxlen=1)[0].x


def sample_frames(
    process: ProcessBase,
    denoiser: Denoiser,
    *,
    batch: int,
    length: int,
    sampler: Sampler,
    given: Tensor | None = None,
    seed: int = 0,
    time_free: bool = False,
    independent_rows: bool = False,
    first_row: int = 0,
    track_confidence: bool = True,
) -> Iterator[Frame]:
    """Yield every state from pure noise (t = 1) to data (t = 0). The arguments are the same as for `sample`.

    track_confidence: whether frames contain confidences.
    """
    for name, value in (("batch", batch), ("length", length)):
        if value < 1:
            raise ValueError(f"{name} must be ≥ 1, found {value}")
    if not isinstance(sampler, Sampler):
        raise ValueError(f"sampler must be a Sampler such as Ancestral(steps=64), found {sampler!r}")
    if given is None:
        given = process.blank(batch, length)
    process.check_given(given, batch, length)
    sampler.check(process)
    calls = SamplingDenoiser(
        process,
        cast(Process, process),  # samplers that need a Process have checked it
        denoiser,
        length,
        time_free=time_free,
        temperature=sampler.temperature,
        top_p=sampler.top_p,
        track_confidence=track_confidence,
        mean_for=type(sampler).__name__ if sampler.mean_only else None,
        independent_rows=independent_rows,
    )
    return _frames(calls, sampler, given, seed, first_row)


def _frames(denoiser: SamplingDenoiser, sampler: Sampler, given: Tensor, seed: int, first_row: int) -> Iterator[Frame]:
    process = denoiser.state_space
    device = process.anchor.device
    generator = RowGenerator(seed, first_row + torch.arange(len(given), device=device))
    x = process.begin(given, generator)
    yield Frame(1.0, x, torch.zeros(x.shape, device=device))
    yield from without_gradients(sampler.frames(denoiser, x, given.to(device) < 0, generator))


def without_gradients(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yield the frames, computed without gradients."""
    while True:
        with torch.no_grad():  # entered for each frame, because it must not stay active while this generator is suspended
            frame = next(frames, None)
        if frame is None:
            return
        yield frame


def sample_from(
    process: ProcessBase,
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
        time_free=time_free,
        temperature=sampler.temperature,
        top_p=sampler.top_p,
        mean_for=type(sampler).__name__ if sampler.mean_only else None,
        independent_rows=independent_rows,
    )
    rows = first_row + torch.arange(len(state), device=state.device)
    return without_gradients(sampler.frames_from(calls, state, t, RowGenerator(seed, rows)))
