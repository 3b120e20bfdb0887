"""Ancestral sampling: the reverse step p(x_s | x_t) of the model, drawn as it is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.sampler.base import Asker, GridSampler


@dataclass(frozen=True)
class Ancestral(GridSampler):
    """x_s ~ p(x_s | x_t) from a mean, on a uniform or cosine grid of times (Multinomial Diffusion, D3PM, MDLM, MD4).

    Keeps the model's law: that of the bound with the same steps.
    """

    @property
    def needs_mean(self) -> bool:
        return True

    def step(self, asker: Asker, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
        return asker.process.step(asker, x, s, t, free, generator)
