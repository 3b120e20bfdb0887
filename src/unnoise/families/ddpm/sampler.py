"""Ancestral sampling of DDPM (Algorithm 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.families.ddpm.denoiser import DdpmPrediction, predicted
from unnoise.families.ddpm.process import Ddpm
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.base import gather
from unnoise.process.state import StateSpace
from unnoise.rng import Generator, draw, normal
from unnoise.sampler.base import Frame, SteppedSampler


@dataclass(frozen=True)
class DdpmSampler(SteppedSampler):
    """x_{t−1} = μ_θ(x_t, t) + σ_t·noise from x_T ~ N(0, I), and at last a token from p(x_0 | x_1).

    With fewer calls than T the sampler walks over evenly spaced steps, 1 and T among them. Temperature and top-p act on the
    last draw alone; temperature 0 takes its likeliest token, as Algorithm 2 does. Given positions hold their own noised value
    at every step, which is a heuristic.

    variance: σ_t², beta (β_t), posterior (β̃_t), or model, the one that the model was built with.
    """

    variance: Literal["model", "beta", "posterior"] = "model"

    requires: ClassVar[str] = "a Ddpm process"
    starts_anywhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("model", "beta", "posterior")
        if self.variance not in known:
            raise ValueError(f"variance must be {' or '.join(known)}, found {self.variance!r}")

    @property
    def keeps_distribution(self) -> bool:
        return True

    def serves(self, process: StateSpace, prediction: type[Prediction] = DdpmPrediction) -> bool:
        return isinstance(process, Ddpm)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.state_space
        assert isinstance(process, Ddpm)
        z = normal((*x.shape, process.width), x.device, generator, torch.float64)
        yield from self._walk(denoiser, process, z, x, free, generator, process.steps)

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        """state: x_t [B, L, D]."""
        process = denoiser.state_space
        assert isinstance(process, Ddpm)
        x, begin = process.nearest(state), max(1, round(t * process.steps))
        yield from self._walk(denoiser, process, state, x, torch.ones_like(x, dtype=torch.bool), generator, begin)

    def _walk(
        self,
        denoiser: SamplingDenoiser,
        process: Ddpm,
        z: Tensor,
        x: Tensor,
        free: Tensor,
        generator: Generator,
        begin: int,
    ) -> Iterator[Frame]:
        """Sample from the step `begin` to tokens; where not free, x is given."""
        known = process.table()[x.clamp_max(process.vocab - 1)]
        visited = torch.linspace(begin, 1, min(self.steps, begin), dtype=torch.float64).round().long().tolist()
        for i, earlier in zip(visited, [*visited[1:], 0], strict=True):
            step = torch.full((len(x),), i, device=x.device)
            s, t = process.time_of(torch.full_like(step, earlier)), process.time_of(step)
            z = torch.where(free[..., None], z, process.diffuse(known, t, generator))
            clean = process.clean(predicted(denoiser.denoiser, process, z, step), z, step)
            denoiser.nfe += len(x)
            if earlier == 0:
                log_p = MeanPrediction(process.decoded(clean)).shaped(self.temperature, self.top_p).log_probs
                shown = torch.where(free, draw(log_p.exp(), generator), x)
            else:
                shown = torch.where(free, process.nearest(clean), x)
                log_p = torch.log_softmax(process.log_likelihood(z, t), -1) if denoiser.track_confidence else None
            confidence = torch.zeros_like(shown, dtype=torch.float32) if log_p is None else gather(log_p, shown).exp().float()
            yield Frame(earlier / process.steps, shown, confidence)
            if earlier > 0:
                variance = None if self.variance == "model" else self.variance
                sigma = process.reverse_variance(s, t, variance).sqrt()[:, None, None]
                z = process.posterior(z, clean, s, t)[0] + sigma * normal(z.shape, z.device, generator, z.dtype)
