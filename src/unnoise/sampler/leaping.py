"""τ-leaping, in which all positions jump at once over [s, t] by the ratios s_y ≈ p_t(y)/p_t(x_t) of a score or a mean, and
predictor–corrector sampling, in which each step is followed by steps of noising and denoising.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import TokenPrediction
from unnoise.process.process_base import Process, without_own
from unnoise.process.state import LATEST
from unnoise.rng import Generator
from unnoise.sampler.sampler_base import DrawingSampler

SIGNAL = 1e-5  # leaping starts at α⁻¹(1e-5), because at t = 1 ratios are 0 and rates infinite


@dataclass(frozen=True)
class Leaping(DrawingSampler):
    """Base class: start at α⁻¹(1e-5), leap along the grid, and finish with p(x_0 | x_t), so that no mask is left."""

    @property
    def keeps_distribution(self) -> bool:
        return True

    @abstractmethod
    def log_leap(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Compute log p(x_s = · | x_t): [*P] → [*P, S]."""

    def begin(self, process: Process) -> float:
        signal = torch.full((process.vocab,), SIGNAL, dtype=torch.float64, device=process.device)
        return min(float(process.schedule.inverse(signal).max()), LATEST)

    def weights(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        exact = prediction.replace(prediction.values.double())
        return (exact.clean(process, x_t, t) if s is None else self.log_leap(process, exact, x_t, s, t)).exp()


@dataclass(frozen=True)
class EulerLeaping(Leaping):
    """p(x_s = y) = Δt·R_t(y → x_t)·s_y for y ≠ x_t, divided by max(1, Σ) if the step is too long.

    First order in Δt (Campbell et al. arXiv:2205.14987, SEDD).
    """

    def log_leap(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        log_s = without_own(prediction.ratios(process, x_t, t), x_t)
        rates = process.rates_into(x_t, t)
        jump = torch.where(rates > 0, (t - s)[..., None] * rates * log_s.exp(), torch.zeros_like(log_s))
        total = jump.sum(-1, keepdim=True)
        stay = (1 - total).clamp_min(0)
        return (jump / total.clamp_min(1)).scatter_add(-1, x_t[..., None], stay).log()


@dataclass(frozen=True)
class TweedieLeaping(Leaping):
    """p(x_s = y) ∝ (exp(−ΔσQ) s)_y · q(x_t | x_s = y): exact for one position (SEDD, theorem 4.2).

    For a mean this is the ancestral step.
    """

    def log_leap(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return prediction.reverse(process, x_t, s, t)


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
        x = super().step(denoiser, x, s, t, free, generator=generator)
        from_s, to_t = (None if time is None else time[:, None].expand(x.shape) for time in (s, t))
        assert to_t is not None
        for _ in range(self.corrections if bool((t < self.begin(denoiser.process)).all()) else 0):
            noised = denoiser.process.noised(x, from_s, to_t, generator)
            x = super().step(denoiser, torch.where(free, noised, x), s, t, free, generator=generator)
        return x
