"""First-hitting sampling: jump from one unmasking to the next, without a time grid."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator, draw, uniform
from unnoise.sampler.base import Frame
from unnoise.sampler.masked import MaskedSampler


@dataclass(frozen=True)
class FirstHitting(MaskedSampler):
    """Masked processes with one schedule, for which the time of unmasking is independent of the token.

    With n masks at α_t the next unmasking is at α = 1 − (1 − α_t)·U^{1/n}, at a uniformly chosen position (arXiv:2409.02908).
    Samples follow the model's continuous-time distribution exactly, with one evaluation per position.
    """

    starts_anywhere: ClassVar[bool] = True

    @property
    def keeps_distribution(self) -> bool:
        return True

    @property
    def distribution(self) -> str:
        return "keeps the model's distribution exactly"

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        yield from self._reveal_all(denoiser, x, free, generator, 1.0)

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        level = float(denoiser.process.schedule.noise(torch.tensor(t, dtype=torch.float64)))
        yield from self._reveal_all(denoiser, state, torch.ones_like(state, dtype=torch.bool), generator, level)

    def _reveal_all(
        self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator, level: float
    ) -> Iterator[Frame]:
        """Unmask one position after another, starting from the noise 1 − α = `level`."""
        process = denoiser.process
        noise = torch.full((len(x),), level, dtype=torch.float64, device=x.device)
        confidence = torch.zeros(x.shape, device=x.device)
        while True:
            masks = process.active(x) & free
            left = masks.sum(1)
            if not left.any():
                break
            noise = noise * uniform((len(x),), x.device, generator) ** (1 / left.clamp_min(1))
            t = process.schedule.inverse(1 - noise)
            position = draw(torch.where(left[:, None] > 0, masks, torch.ones_like(masks)).double(), generator)
            where = masks & torch.zeros_like(masks).scatter(1, position[:, None], True)
            log_p = denoiser.clean(x, t, where)
            x = x.masked_scatter(where, draw(log_p.double().exp(), generator, where))
            confidence = denoiser.confidence(x, confidence)
            if int(left.max()) > 1:
                yield Frame(float(t[left > 0].max()), x, confidence)
        yield Frame(0.0, x, confidence)
