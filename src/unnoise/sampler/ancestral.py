"""Ancestral sampling from the reverse step p(x_s | x_t) of the model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import TokenPrediction
from unnoise.rng import Generator
from unnoise.sampler.base import Frame, GridSampler, draw_tokens


@dataclass(frozen=True)
class Ancestral(GridSampler):
    """x_s ~ p(x_s | x_t) from a mean, on a uniform or cosine grid of times (Multinomial Diffusion, D3PM, MDLM, MD4).

    Samples follow the model's distribution, the one that the bound with the same steps describes. If the times of the jumps are
    independent of their targets, they are sampled first; the denoiser is then called only in steps with jumps, and only there.
    """

    mean_only: ClassVar[bool] = True

    @property
    def keeps_distribution(self) -> bool:
        return True

    def walk(
        self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator, times: list[float]
    ) -> Iterator[Frame]:
        jumps = denoiser.process.jump_steps(x, free, times, generator)
        if jumps is None:
            yield from super().walk(denoiser, x, free, generator, times)
            return
        counts = torch.bincount(jumps.flatten(), minlength=len(times)).tolist()
        confidence = torch.zeros(x.shape, device=x.device)
        for number, (t, s) in enumerate(zip(times, [*times[1:], 0.0], strict=True)):
            if counts[number]:
                at = torch.full((len(x),), t, dtype=torch.float64, device=x.device)
                x = self.step(denoiser, x, None, at, jumps == number, generator)
                confidence = denoiser.confidence(x, confidence)
            yield Frame(s, x, confidence)

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        process = denoiser.process
        where = process.active(x) & free
        if not where.any():
            return x

        def weights(prediction: TokenPrediction, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
            log_p = prediction.clean(process, x_t, t) if s is None else prediction.reverse(process, x_t, s, t)
            return log_p.double().exp()

        return draw_tokens(denoiser.predict(x, t, where), x, s, t, where, generator, weights)
