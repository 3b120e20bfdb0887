"""Ancestral sampling: the reverse step p(x_s | x_t) of the model, drawn as it is."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator, draw
from unnoise.sampler.base import GridSampler


@dataclass(frozen=True)
class Ancestral(GridSampler):
    """x_s ~ p(x_s | x_t) from a mean, on a uniform or cosine grid of times (Multinomial Diffusion, D3PM, MDLM, MD4).

    Keeps the model's distribution: that of the bound with the same steps.
    """

    mean_only: ClassVar[bool] = True

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        process = denoiser.process
        where = process.jump_positions(x, s, t, free, generator)
        if not where.any():
            return x
        prediction = denoiser.predict(x, t, where)
        at = t[:, None].expand(x.shape)[where]
        earlier = None if s is None else s[:, None].expand(x.shape)[where]
        log_p = process.jump_log_probs(prediction, x[where], earlier, at)
        return x.masked_scatter(where, draw(log_p.double().exp(), generator, where))
