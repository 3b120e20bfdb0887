"""Predictor–corrector sampling: each step is followed by steps of noising and denoising."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator
from unnoise.sampler.tau_leaping import TweedieLeaping


@dataclass(frozen=True)
class PredictorCorrector(TweedieLeaping):
    """A step from t to s by p(x_s | x_t), then `corrections` times x_t ~ q(x_t | x_s) forward and x_s ~ p(x_s | x_t) back.

    For an exact model this leaves p_s unchanged (Campbell et al. arXiv:2205.14987), so that tokens sampled in parallel that do
    not fit together can be corrected. Keeps the model's distribution as steps grow, and approaches it with more corrections.
    Given tokens stay.

    corrections: number of corrections per step; a step needs 1 + corrections network calls, except the first, which needs one.
    """

    corrections: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.corrections, bool) or not isinstance(self.corrections, int) or self.corrections < 0:
            raise ValueError(f"corrections must be a whole number ≥ 0, found {self.corrections!r}")

    def with_nfe(self, nfe: int) -> Self:
        """Return the sampler with the number of steps that needs `nfe` network calls, corrections included."""
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
