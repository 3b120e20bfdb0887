"""Predictor–corrector: after each step towards data, some noise again and the same step again."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator
from unnoise.sampler.tau_leaping import TweedieLeaping


@dataclass(frozen=True)
class PredictorCorrector(TweedieLeaping):
    """From t to s by p(x_s | x_t); then, `corrections` times, x_t ~ q(x_t | x_s) forward and x_s ~ p(x_s | x_t) back.

    Forward and back leave p_s as it is where the model is exact (Campbell et al. arXiv:2205.14987), so tokens that were
    revealed together and do not fit get another chance. Keeps the model's distribution as steps grow, and comes nearer to it
    with more corrections. Given tokens stay.

    corrections: how many after each step; a step costs 1 + corrections network calls, the first only one, as there is nothing
        yet to correct.
    """

    corrections: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.corrections, bool) or not isinstance(self.corrections, int) or self.corrections < 0:
            raise ValueError(f"corrections must be a whole number ≥ 0, found {self.corrections!r}")

    def with_nfe(self, nfe: int) -> Self:
        """So many steps that, with their corrections, they make as many network calls."""
        return replace(self, steps=max(1, (nfe + self.corrections) // (1 + self.corrections)))

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        x = super().step(denoiser, x, s, t, free, generator)
        from_s, to_t = (None if time is None else time[:, None].expand(x.shape) for time in (s, t))
        assert to_t is not None
        for _ in range(self.corrections if bool((t < self.begin(denoiser.process)).all()) else 0):
            noised = denoiser.process.noised(x, from_s, to_t, generator)
            x = super().step(denoiser, torch.where(free, noised, x), s, t, free, generator)
        return x
