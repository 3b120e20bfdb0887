"""Objectives: `objective(denoiser, x, generator=None)` is one unbiased draw of a loss or bound, in nats per sequence, [B].

Each is E_t E_{q(x_t|x_0)} Σ_positions of some term; they differ in the term and in how t is drawn. The network is asked once,
and only at the positions where the term is not zero.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unnoise.categorical import uniform
from unnoise.denoiser import Denoiser, ask
from unnoise.prediction import Prediction
from unnoise.process.base import LATEST, Process, bregman, gather, without_own
from unnoise.process.masked import Masked

CLOSING_SHARE = 1 / 16  # in training the closing term is asked in so many of the batches, at random, and weighted back

Value = Callable[[Tensor], Tensor]
Expectation = Callable[[Process, Value, Tensor, Tensor, torch.Generator | None], Tensor]


class Objective(nn.Module, ABC):
    """Nats per sequence: (denoiser, x: [B, L] long) → [B]. Its parameters, if any, are those of a learned process."""

    @abstractmethod
    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor: ...

    def advance(self, progress: float) -> None:
        """Be told how much of the training is done, 0 to 1; a curriculum uses it, a bound does not."""
        return


def stratified(batch: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers (u + b/B) mod 1, one in each of B strata, in random order so that no row is always early: [B]."""
    order = torch.randperm(batch, generator=generator, device=device)
    return (uniform((), device, generator) + order.double() / batch) % 1


def drawn_times(
    batch: int, device: torch.device, generator: torch.Generator | None, start: float = 0.0, power: float = 1.0
) -> tuple[Tensor, Tensor]:
    """t = start + (1 − start)·v^power with v stratified, and its weight: [B] float64 each."""
    v = stratified(batch, device, generator)
    t = start + (1 - start) * v**power
    return t.clamp(1e-9, LATEST), (1 - start) * power * v ** (power - 1)


def one_draw(process: Process, value: Value, x: Tensor, t: Tensor, generator: torch.Generator | None) -> Tensor:
    """E_{q(x_t|x_0)} value(x_t) by one draw: [B]."""
    return value(process.corrupt(x, t, generator))


def leave_one_out(process: Process, value: Value, x: Tensor, t: Tensor, generator: torch.Generator | None) -> Tensor:
    """E_{q(x_t|x_0)} value(x_t) by two draws, with a gradient that also goes through q (REINFORCE): [B].

    ∇E f = E[∇f] + E ½(f₁ − f₂)(∇log q₁ − ∇log q₂): each draw is the other's baseline (GenMD4, arXiv:2406.04329).
    """
    first, second = process.corrupt(x, t, generator), process.corrupt(x, t, generator)
    f_1, f_2 = value(first), value(second)
    at = t[:, None].expand(x.shape)
    log_q = (process.log_prob(first, x, at) - process.log_prob(second, x, at)).sum(-1).to(f_1.dtype)
    surrogate = 0.5 * (f_1 - f_2).detach() * log_q
    return 0.5 * (f_1 + f_2) + surrogate - surrogate.detach()


class Denoising(Objective):
    """E_t E_{q(x_t|x_0)} Σ_positions term(prediction, x_0, x_t, t), with t stratified over the batch.

    t_b = start + (1 − start)·v_b^power, v_b = (u + b/B) mod 1 in random order, weighted by its Jacobian. power = 1 draws t
    uniformly; power = 2 tames the weight 1/t of masked bounds (finite variance), at the cost of more variance elsewhere.
    """

    def __init__(self, process: Process, start: float = 0.0, power: float = 1.0):
        super().__init__()
        if not 0 <= start < 1:
            raise ValueError(f"start must lie in [0, 1), found {start}")
        if not power > 0:
            raise ValueError(f"power must be > 0, found {power}")
        self.process, self.start, self.power = process, start, power

    @abstractmethod
    def term(self, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Nats of each position: [*P]."""

    def boundary(
        self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None, expectation: Expectation = one_draw
    ) -> Tensor:
        """What is added once, outside the integral over t: [B]."""
        return torch.zeros(len(x), device=x.device)

    def times(self, batch: int, device: torch.device, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """t: [B] float64 and the weight that makes the mean over t an integral over [start, 1]: [B]."""
        return drawn_times(batch, device, generator, self.start, self.power)

    def at(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Σ_positions term at one noised text: x, x_t [B, L], t [B] → [B]."""
        return self._summed(self.term, denoiser, x, x_t, t)

    def _summed(
        self,
        term: Callable[[Prediction, Tensor, Tensor, Tensor], Tensor],
        denoiser: Denoiser,
        x: Tensor,
        x_t: Tensor,
        t: Tensor,
    ) -> Tensor:
        where = self.process.active(x_t)
        prediction = ask(denoiser, self.process, x_t, t, where)
        rows = torch.arange(len(x), device=x.device)[:, None].expand(x.shape)[where]
        nats = term(prediction, x[where], x_t[where], t.double()[rows])
        return nats.new_zeros(len(x)).index_add(0, rows, nats)

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.estimate(denoiser, x, generator, one_draw)

    def estimate(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None, expectation: Expectation) -> Tensor:
        """The objective with E_{q(x_t|x_0)} taken by `expectation`: [B]."""
        self.process.check_tokens(x)
        t, weight = self.times(len(x), x.device, generator)
        nats = expectation(self.process, lambda x_t: self.at(denoiser, x, x_t, t), x, t, generator)
        return weight.to(nats.dtype) * nats + self.boundary(denoiser, x, generator, expectation).to(nats.dtype)


class Elbo(Denoising):
    """The bound: E[elbo] ≥ −log p(x_0), every boundary term included.

    Continuous time: ∫_start^1 E Σ_positions KL rate dt. With `steps` = T: Σ_{i=1}^T E KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)),
    t = i/T, s = (i−1)/T, one random i times T (Multinomial Diffusion, D3PM).

    Boundary: KL(q(x_1|x_0) ‖ π) at noise, or the cost of closing a masked process with α(1) > 0; E −log p(x_0|x_start) at
    data where noise is left at `start`. `network_free` replaces the latter's p by GenMD4's, which needs no network.
    """

    def __init__(
        self,
        process: Process,
        steps: int | None = None,
        start: float = 0.0,
        power: float = 1.0,
        network_free: bool = False,
    ):
        super().__init__(process, start, power)
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ValueError(f"a bound needs a whole number of steps ≥ 1, or None for continuous time, found {steps}")
        if steps is not None and (start != 0 or power != 1):
            raise ValueError("start and power are for continuous time; a bound with steps visits i = 1…T uniformly")
        if network_free and not isinstance(process, Masked):
            raise ValueError(f"network_free needs a Masked process, found {type(process).__name__}")
        self.steps, self.network_free = steps, network_free

    def times(self, batch: int, device: torch.device, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        if self.steps is None:
            return super().times(batch, device, generator)
        step = (stratified(batch, device, generator) * self.steps).floor() + 1
        return step / self.steps, torch.full_like(step, self.steps)

    def term(self, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        if self.steps is None:
            return self.process.integrand(prediction, x, x_t, t)
        earlier = ((t * self.steps).round() - 1) / self.steps
        return self.process.kl(prediction, x, x_t, earlier, t)

    def boundary(
        self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None, expectation: Expectation = one_draw
    ) -> Tensor:
        nats = self.process.noise_kl(x).sum(-1)
        if self.process.closing > 0:
            share = max(CLOSING_SHARE, min(1.0, 4 * self.process.closing)) if torch.is_grad_enabled() else 1.0
            if float(uniform((), x.device, generator)) < share:
                closing = self.closing(denoiser, x) / share
                nats = nats.to(closing.dtype) + closing
        start = torch.full((len(x),), self.start, dtype=torch.float64, device=x.device)
        if bool((self.process.schedule.noise(start[:1]) > 0).any()):
            if self.network_free and isinstance(self.process, Masked):
                data = self.process.reconstruction(x, start[:, None].expand(x.shape)).sum(-1)
            else:
                data = expectation(self.process, lambda x_t: self.reconstruction(denoiser, x, x_t, start), x, start, generator)
            nats = nats.to(data.dtype) + data
        return nats

    def closing(self, denoiser: Denoiser, x: Tensor) -> Tensor:
        """α(1)·Σ_i −log p(x_0^i | all masks), the price of closing a masked process: [B]."""
        late = torch.full((len(x),), LATEST, dtype=torch.float64, device=x.device)
        all_masks = torch.full_like(x, self.process.states - 1)
        return self.process.closing * self.reconstruction(denoiser, x, all_masks, late)

    def reconstruction(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Σ_i −log p(x_0^i | x_t): [B]."""
        return self._summed(self._surprise, denoiser, x, x_t, t)

    def _surprise(self, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return surprise(self.process, prediction, x, x_t, t)


def surprise(process: Process, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """−log p(x_0 | x_t) of each position: [*P]."""
    return -gather(prediction.clean(process, x_t, t), x)


class Hybrid(Elbo):
    """D3PM's hybrid loss (arXiv:2107.03006): the bound + λ·Σ_positions −log p(x_0 | x_t). Not a bound; trains better."""

    def __init__(self, process: Process, steps: int | None = None, weight: float = 0.01):
        super().__init__(process, steps)
        if weight < 0:
            raise ValueError(f"the weight of the cross-entropy must be ≥ 0, found {weight}")
        self.weight = weight

    def term(self, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        # the weight of a step in the bound is T; the cross-entropy is a mean over steps
        share = self.weight if self.steps is None else self.weight / self.steps
        return super().term(prediction, x, x_t, t) + share * surprise(self.process, prediction, x, x_t, t)


class CrossEntropy(Denoising):
    """L times the mean of −log p(x_0 | x_t) over noised positions, each weighted equally. Not a bound.

    easy: a curriculum for training. t is drawn from [start, stop], where stop rises from `easy` to 1 over the first `ramp` of
    the run: texts with little noise are learned first. With easy = 1, the default, t is drawn from [start, 1] throughout.
    """

    def __init__(self, process: Process, start: float = 0.0, power: float = 1.0, easy: float = 1.0, ramp: float = 0.6):
        super().__init__(process, start, power)
        if not start < easy <= 1 or not 0 < ramp <= 1:
            raise ValueError(f"a curriculum needs start < easy ≤ 1 and 0 < ramp ≤ 1, found easy = {easy}, ramp = {ramp}")
        self.easy, self.ramp, self.stop = easy, ramp, 1.0

    def advance(self, progress: float) -> None:
        self.stop = min(1.0, self.easy + (1 - self.easy) * progress / self.ramp)

    def times(self, batch: int, device: torch.device, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        t, weight = super().times(batch, device, generator)
        t = self.start + (t - self.start) * (self.stop - self.start) / (1 - self.start)
        return t, weight / weight.mean() / self.process.active_share(t).mean()

    def term(self, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return surprise(self.process, prediction, x, x_t, t)


class _Score(Denoising):
    """Σ over the jumps y → x_t that the process can make of some distance between s_y and r_y."""

    @abstractmethod
    def distance(self, log_s: Tensor, r: Tensor) -> Tensor:
        """Elementwise, ≥ 0, zero at s = r."""

    def term(self, prediction: Prediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        log_s = without_own(prediction.ratios(self.process, x_t, t), x_t)
        distance = self.distance(log_s, self.process.true_ratios(x, x_t, t).to(log_s.dtype))
        possible = self.process.rates_into(x_t, t) > 0
        return torch.where(possible, distance, torch.zeros_like(distance)).sum(-1)


class ScoreEntropy(_Score):
    """Denoising score entropy without the diffusion weight: E Σ_{y≠x_t} [ s_y − r_y + r_y log(r_y/s_y) ] (SEDD)."""

    def distance(self, log_s: Tensor, r: Tensor) -> Tensor:
        return bregman(log_s, r)


class ConcreteScore(_Score):
    """Denoising concrete score matching, ½ E Σ_{y≠x_t} (s_y − r_y)² (arXiv:2211.00802).

    r_y grows as 1/t, so t starts at `start` > 0: the squared loss has no finite mean otherwise.
    """

    def __init__(self, process: Process, start: float = 0.01, power: float = 1.0):
        super().__init__(process, start, power)

    def distance(self, log_s: Tensor, r: Tensor) -> Tensor:
        return 0.5 * (log_s.exp() - r) ** 2


class LeaveOneOut(Objective):
    """Any of these objectives with a gradient that goes through q(x_t|x_0) too, for a learned schedule (GenMD4).

    The value is the mean of two draws; see `leave_one_out`.
    """

    def __init__(self, objective: Denoising):
        super().__init__()
        if not isinstance(objective, Denoising):
            raise ValueError(f"LeaveOneOut needs an objective such as Elbo(process), found {type(objective).__name__}")
        self.objective = objective

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.objective.estimate(denoiser, x, generator, leave_one_out)
