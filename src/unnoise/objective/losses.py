"""Losses that are not bounds: cross-entropy and ratio matching, and the bound on some positions given the others."""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.objective.elbo import Elbo
from unnoise.objective.objective_base import DenoisingObjective, sum_rows, terms_at
from unnoise.prediction import TokenPrediction
from unnoise.process.process_base import Process, bregman, without_own
from unnoise.process.state import LATEST
from unnoise.process.uniform import Neighbourhood
from unnoise.rng import Generator
from unnoise.schedule import PerToken


class CrossEntropy(DenoisingObjective):
    """L times the mean of −log p(x_0 | x_t) over noised positions, each weighted equally. Not a bound.

    initial_max_t: a curriculum for training. t is drawn from [start, max_t], where max_t rises from `initial_max_t` to 1 over
    the first `ramp` of the run: texts with little noise are learned first. With 1, the default, t is drawn from [start, 1].
    """

    def __init__(self, process: Process, start: float = 0.0, power: float = 1.0, initial_max_t: float = 1.0, ramp: float = 0.6):
        super().__init__(process, start, power)
        if not start < initial_max_t <= 1 or not 0 < ramp <= 1:
            raise ValueError(
                "a curriculum needs start < initial_max_t ≤ 1 and 0 < ramp ≤ 1, "
                f"found initial_max_t = {initial_max_t}, ramp = {ramp}"
            )
        self.initial_max_t, self.ramp, self.max_t = initial_max_t, ramp, 1.0

    def set_progress(self, progress: float) -> None:
        self.max_t = min(1.0, self.initial_max_t + (1 - self.initial_max_t) * progress / self.ramp)

    def times_at(self, v: Tensor) -> tuple[Tensor, Tensor]:
        t, weight = super().times_at(v)
        t = self.start + (t - self.start) * (self.max_t - self.start) / (1 - self.start)
        return t, weight / weight.mean() / self.process.active_share(t).mean()

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return self.process.cross_entropy(prediction, x, x_t, t)


class RatioMatching(DenoisingObjective):
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


def random_part(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, v: Tensor, generator: Generator) -> Tensor:
    """Sample the bound without `noise_end`, at times determined by v [B], uniform on [0, 1): [B]."""
    bound.process.check_tokens(x)
    t, weight = bound.times_at(v)
    nats = noised_nats(bound, denoiser, x, free, t, generator=generator)
    return weight.to(nats.dtype) * nats + data_end(bound, denoiser, x, free, generator)


def noised_nats(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, t: Tensor, generator: Generator) -> Tensor:
    """Compute the bound's term at times t [B], summed over the free positions: [B]."""
    return sum_rows(*noised_terms(bound, denoiser, x, free, t, generator=generator))


def noised_terms(
    bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, t: Tensor, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Compute the terms of this sum [n] and return them with their positions [B, L] bool."""
    process = bound.process
    x_t = torch.where(free, process.noised(x, None, t[:, None].expand(x.shape), generator), x)
    where = bound.positions(x_t) & free
    return terms_at(bound.term, denoiser, process, x=x, x_t=x_t, t=t, where=where), where


def noise_end(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor) -> Tensor:
    """Compute the boundary term at t = 1: KL(q(x_1|x_0) ‖ π), or the cost of a signal α(1) > 0 of masked noise: [B].

    It is not random, so one evaluation serves all samples of the bound.
    """
    process = bound.process
    nats = (process.noise_kl(x) * free).sum(-1)
    if process.terminal_alpha == 0:
        return nats
    late = torch.full((len(x),), LATEST, dtype=torch.float64, device=x.device)
    x_t = x.masked_fill(free, process.states - 1)
    return nats + process.terminal_alpha * _cross_entropy(process, denoiser, x, x_t, free, t=late)


def data_end(bound: Elbo, denoiser: Denoiser, x: Tensor, free: Tensor, generator: Generator) -> Tensor:
    """Sample the boundary term E Σ_free −log p(x_0 | x_start) if the sequence at `start` is noised, else return zero: [B]."""
    if not bound.starts_noisy:
        return x.new_zeros(len(x), dtype=torch.float64)
    start = bound.start_times(x)
    x_t = torch.where(free, bound.process.noised(x, None, start[:, None].expand(x.shape), generator), x)
    return _cross_entropy(bound.process, denoiser, x, x_t, free & bound.process.active(x_t), t=start).double()


def _cross_entropy(process: Process, denoiser: Denoiser, x: Tensor, x_t: Tensor, where: Tensor, t: Tensor) -> Tensor:
    return sum_rows(terms_at(process.cross_entropy, denoiser, process, x=x, x_t=x_t, t=t, where=where), where)
