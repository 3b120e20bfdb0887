"""Losses that match the predicted ratios with the true ones, without the weight of the bound."""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.objective.base import Denoising
from unnoise.prediction import TokenPrediction
from unnoise.process.base import Process, bregman, without_own
from unnoise.schedule import PerToken


class RatioMatching(Denoising):
    """Σ over the jumps y → x_t that the process can make of a distance between s_y and r_y."""

    @abstractmethod
    def distance(self, prediction: TokenPrediction, r: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Elementwise, ≥ 0, zero at s = r; anything at y = x_t: [*P, S]."""

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        r = self.process.true_ratios(x, x_t, t).to(prediction.values.dtype)
        distance = self.distance(prediction, r, x_t, t)
        possible = self.process.rates_into(x_t, t) > 0
        return torch.where(possible, distance, torch.zeros_like(distance)).sum(-1)


class ScoreEntropy(RatioMatching):
    """Denoising score entropy without the diffusion weight: E Σ_{y≠x_t} [ s_y − r_y + r_y log(r_y/s_y) ] (SEDD)."""

    def distance(self, prediction: TokenPrediction, r: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return bregman(without_own(prediction.ratios(self.process, x_t, t), x_t), r)


class ConcreteScore(RatioMatching):
    """Denoising concrete score matching, ½ E Σ_{y≠x_t} (s_y − r_y)² (arXiv:2211.00802).

    The ratios of a `RatioPrediction` may be zero or negative: nothing here keeps them positive.

    start: r_y grows as 1/t, so the squared loss has no finite mean unless t starts at `start` > 0.
    weighted: multiply by (1 − α_t)², which makes the loss of one size at every t and its mean finite without `start`. A weight
        that depends on t alone does not move the minimum.
    """

    def __init__(self, process: Process, start: float = 0.01, power: float = 1.0, weighted: bool = False):
        if weighted and isinstance(process.schedule, PerToken):
            raise ValueError("the weight (1 − α)² needs one schedule for all tokens, found PerToken")
        super().__init__(process, start, power)
        self.weighted = weighted

    def distance(self, prediction: TokenPrediction, r: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        difference = prediction.plain_ratios(self.process, x_t, t) - r
        if self.weighted:
            difference = self.process.schedule.noise(t)[..., None].to(difference.dtype) * difference
        return 0.5 * difference**2
