"""Losses that match predicted and true ratios, without the weight of the bound."""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.objective.base import Denoising
from unnoise.prediction import TokenPrediction
from unnoise.process.base import Process, bregman, without_own
from unnoise.process.neighbourhood import Neighbourhood
from unnoise.schedule import PerToken


class RatioMatching(Denoising):
    """Σ of a distance between s_y and r_y over the possible jumps y → x_t."""

    def matched(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Return which ratios are matched, by default those of all possible jumps: [*P] → [*P, S] bool."""
        return self.process.rates_into(x_t, t) > 0

    @abstractmethod
    def distance(self, prediction: TokenPrediction, r: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute the distance elementwise, ≥ 0 and zero at s = r; entries at y = x_t are ignored: [*P, S]."""

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        r = self.process.true_ratios(x, x_t, t).to(prediction.values.dtype)
        distance = self.distance(prediction, r, x_t, t)
        return torch.where(self.matched(x_t, t), distance, torch.zeros_like(distance)).sum(-1)


class ScoreEntropy(RatioMatching):
    """Denoising score entropy without the diffusion weight: E Σ_{y≠x_t} [ s_y − r_y + r_y log(r_y/s_y) ] (SEDD)."""

    def distance(self, prediction: TokenPrediction, r: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return bregman(without_own(prediction.ratios(self.process, x_t, t), x_t), r)


class ConcreteScore(RatioMatching):
    """Denoising concrete score matching, ½ E Σ_{y≠x_t} (s_y − r_y)² (arXiv:2211.00802).

    The ratios of a `RatioPrediction` may be zero or negative. The minimum is s_y = p_t(y)/p_t(x_t), so s − 1 is the concrete
    score of p_t.

    start: r_y grows as 1/t, so the squared loss has no finite mean unless t starts at `start` > 0.
    weighted: multiply by (1 − α_t)², so that the loss has the same size at every t and a finite mean without `start`. A weight
        that depends only on t does not change the minimum.
    neighbours: the neighbourhood N of the sum Σ_{y ∈ N(x_t)}; None for all possible jumps. Other ratios are not trained, so
        the sampler must not need them: use `Metropolis` with the same neighbours.
    """

    def __init__(
        self,
        process: Process,
        start: float = 0.01,
        power: float = 1.0,
        weighted: bool = False,
        neighbours: Neighbourhood | None = None,
    ):
        if weighted and isinstance(process.schedule, PerToken):
            raise ValueError("the weight (1 − α)² needs one schedule for all tokens, found PerToken")
        super().__init__(process, start, power)
        if neighbours is not None and len(neighbours) != process.states:
            raise ValueError(f"a neighbourhood must have the process's {process.states} states, found {len(neighbours)}")
        self.weighted, self.neighbours = weighted, neighbours

    def matched(self, x_t: Tensor, t: Tensor) -> Tensor:
        return super().matched(x_t, t) if self.neighbours is None else self.neighbours.of(x_t)

    def distance(self, prediction: TokenPrediction, r: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        difference = prediction.plain_ratios(self.process, x_t, t) - r
        if self.weighted:
            difference = self.process.schedule.noise(t)[..., None].to(difference.dtype) * difference
        return 0.5 * difference**2
