"""Ψ sampling: part of each step noises the predicted sequence anew, so that mistakes can be corrected."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import TokenPrediction
from unnoise.rng import Generator
from unnoise.sampler.base import GridSampler, draw_tokens


@dataclass(frozen=True)
class Psi(GridSampler):
    """A step from t to s by κ·p(x_s | x_t) + (1 − κ)·Σ_{x_0} p(x_0 | x_t) q(x_s | x_0), at every position (arXiv:2602.21185).

    Given x_0 both parts have the marginal q(x_s | x_0). An exact model therefore keeps the marginal of each position at every
    κ, and its joint distribution as steps grow and κ goes to 1 with them. κ = 1 is ancestral sampling.

    kappa: weight κ of the reverse step, 0 to 1.
    """

    kappa: float = 0.98
    mean_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa must lie in [0, 1], found {self.kappa}")

    @property
    def keeps_distribution(self) -> bool:
        return self.kappa == 1

    @property
    def distribution(self) -> str:
        return "keeps the model's distribution as steps grow and kappa goes to 1 with them"

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        process = denoiser.process
        where = free if s is not None else process.active(x) & free
        if not where.any():
            return x

        def weights(prediction: TokenPrediction, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
            clean = prediction.clean(process, x_t, t).double().exp()
            if s is None:
                return clean
            reverse = prediction.reverse(process, x_t, s, t).double().exp()
            return self.kappa * reverse + (1 - self.kappa) * process.push(clean, s)

        return draw_tokens(denoiser.predict(x, t, where), x, s, t, where, generator, weights)
