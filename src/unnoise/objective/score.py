"""Losses that match the predicted ratios with the true ones, without the weight of the bound."""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.objective.base import Denoising
from unnoise.prediction import TokenPrediction
from unnoise.process.base import Process, bregman, without_own


class RatioMatching(Denoising):
    """Σ over the jumps y → x_t that the process can make of some distance between s_y and r_y."""

    @abstractmethod
    def distance(self, log_s: Tensor, r: Tensor) -> Tensor:
        """Elementwise, ≥ 0, zero at s = r."""

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        log_s = without_own(prediction.ratios(self.process, x_t, t), x_t)
        distance = self.distance(log_s, self.process.true_ratios(x, x_t, t).to(log_s.dtype))
        possible = self.process.rates_into(x_t, t) > 0
        return torch.where(possible, distance, torch.zeros_like(distance)).sum(-1)


class ScoreEntropy(RatioMatching):
    """Denoising score entropy without the diffusion weight: E Σ_{y≠x_t} [ s_y − r_y + r_y log(r_y/s_y) ] (SEDD)."""

    def distance(self, log_s: Tensor, r: Tensor) -> Tensor:
        return bregman(log_s, r)


class ConcreteScore(RatioMatching):
    """Denoising concrete score matching, ½ E Σ_{y≠x_t} (s_y − r_y)² (arXiv:2211.00802).

    r_y grows as 1/t, so t starts at `start` > 0: the squared loss has no finite mean otherwise.
    """

    def __init__(self, process: Process, start: float = 0.01, power: float = 1.0):
        super().__init__(process, start, power)

    def distance(self, log_s: Tensor, r: Tensor) -> Tensor:
        return 0.5 * (log_s.exp() - r) ** 2
