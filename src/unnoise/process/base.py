"""The forward noise q, and everything that follows from it, by the dense formula.

A process over S states gives its transition matrices, its rate matrix and its stationary distribution. From these the base
class computes the posterior, the ratios, the reverse step, the KL integrand of the bound and its boundary terms: slow and
obviously right. Subclasses override with closed forms; `process.dense()` is the same process without them, the oracle that
the tests compare with.

Everything here is elementwise over positions: x_0, x_t: [*P] long and s < t: [*P] float64 of one leading shape P ([B, L],
or [n] selected positions). Matrices are row-stochastic: T[i, j] = q(x_t = j | x_s = i).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from unnoise.prediction import TokenPrediction
from unnoise.process.state import LATEST, StateSpace, position_times
from unnoise.rng import Generator, draw
from unnoise.schedule import Schedule

FORGOTTEN = 1e-9  # a mode of the noise that has decayed this far cannot be recovered from ratios, and is left out
Reverse = Literal["marginal", "plug-in"]


def gather(values: Tensor, index: Tensor) -> Tensor:
    """values[p, index[p]] for every position p: [*P, S], [*P] → [*P]."""
    return values.gather(-1, index[..., None])[..., 0]


def without_own(log_ratios: Tensor, x_t: Tensor) -> Tensor:
    """log ratios with the entry at x_t, which means nothing and may be anything, set to log 1: [*P, S] → [*P, S]."""
    return log_ratios.scatter(-1, x_t[..., None], 0.0)


def safe_log(values: Tensor) -> Tensor:
    """log max(values, 1e-30): the logarithm of a probability that may be zero, with a gradient that is finite there."""
    return values.clamp_min(1e-30).log()


def bregman(log_s: Tensor, r: Tensor) -> Tensor:
    """s − r + r log(r/s) ≥ 0, zero only at s = r; r may be zero. Elementwise.

    As r·(e^z − 1 − z) with z = log s − log r, which loses no digits where s is near r.
    """
    positive = r > 0
    z = torch.where(positive, log_s - torch.where(positive, r, torch.ones_like(r)).log(), torch.zeros_like(r))
    return torch.where(positive, r * (torch.expm1(z) - z), log_s.exp())


class Process(StateSpace, ABC):
    """Noise that acts on each position by itself, as a Markov jump process over `states` ≥ `vocab` states.

    reverse: how a mean μ is read. "marginal": μ = p(x_0 | x_t), reverse step Σ_{x_0} μ(x_0) q(x_s | x_t, x_0); no paper's own.
    "plug-in": μ does not know its own position's token, reverse step q(x_s | x_t, x̂_0 = μ) (Multinomial Diffusion,
    arXiv:2102.05379; D3PM, arXiv:2107.03006; UDLM, arXiv:2412.10193). For masks both are the same.
    """

    schedule: Schedule
    mean_until: float = 0.0
    """Up to this time a plug-in mean is p(x_0 | x_t) itself, and a step from such a time to clean data draws from it."""

    def __init__(self, vocab: int, states: int, schedule: Schedule, reverse: Reverse = "marginal"):
        super().__init__(vocab, states)
        if not isinstance(schedule, Schedule):
            raise ValueError(f"a process needs a Schedule such as Linear(), found {type(schedule).__name__}")
        if reverse not in ("marginal", "plug-in"):
            raise ValueError(f'reverse must be "marginal" or "plug-in", found {reverse!r}')
        schedule.check()
        self.schedule = schedule
        self.reverse: Reverse = reverse

    def curves(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {"α": self.schedule.alpha}

    # ---- what a process must say ------------------------------------------------------------------------------------

    @abstractmethod
    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        """q(x_t | x_s) as matrices: [*T] → [*T, S, S]; s = None means from clean data, q(x_t | x_0)."""

    @abstractmethod
    def rate(self, t: Tensor) -> Tensor:
        """The rate matrix R_t(i → j), rows summing to zero: [*T] → [*T, S, S]."""

    @abstractmethod
    def stationary(self) -> Tensor:
        """π, the distribution of pure noise: [S], float64, on this process's device."""

    # ---- four primitives; closed forms live here -------------------------------------------------------------------

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        """Σ_{x_0} w(x_0) q(x_t = · | x_0): [*P, K] → [*P, S]."""
        matrix = self.transition(None, t)[..., : self.vocab, :].to(weights.dtype)
        return (weights[..., None, :] @ matrix)[..., 0, :]

    def row(self, x_s: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """q(x_t = · | x_s), where a state goes: [*P] → [*P, S]."""
        matrix = self.transition(s, t).expand(*x_s.shape, self.states, self.states)
        return matrix.gather(-2, x_s[..., None, None].expand(*x_s.shape, 1, self.states))[..., 0, :]

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """q(x_t | x_s = ·), the likelihood of each earlier state: [*P] → [*P, S]."""
        matrix = self.transition(s, t).expand(*x_t.shape, self.states, self.states)
        return matrix.gather(-1, x_t[..., None, None].expand(*x_t.shape, self.states, 1))[..., 0]

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """The vector v with v·T_{s→t} = ratios, exp(−ΔσQ)s in SEDD's Tweedie formula: [*P, S] → [*P, S]."""
        inverse = torch.linalg.pinv(self.transition(s, t).double(), rtol=FORGOTTEN)
        return (ratios.double()[..., None, :] @ inverse)[..., 0, :].to(ratios.dtype)

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        """R_t(y → x_t) for every y ≠ x_t, zero at y = x_t: [*P] → [*P, S]."""
        matrix = self.rate(t).expand(*x_t.shape, self.states, self.states)
        column = matrix.gather(-1, x_t[..., None, None].expand(*x_t.shape, self.states, 1))[..., 0]
        return column.scatter(-1, x_t[..., None], 0.0)

    # ---- forward ----------------------------------------------------------------------------------------------------

    def active(self, x_t: Tensor) -> Tensor:
        """Positions at which there is a loss and something may move: [B, L] bool."""
        return torch.ones_like(x_t, dtype=torch.bool)

    def active_share(self, t: Tensor) -> Tensor:
        """The share of positions that is active at t, on average: [B] → [B]."""
        return torch.ones_like(t)

    def prior(self, shape: tuple[int, ...], generator: Generator = None) -> Tensor:
        """Pure noise x_1 ~ π: long of the given shape."""
        return draw(self.stationary().expand(*shape, self.states), generator)

    def corrupt(self, x: Tensor, t: Tensor, generator: Generator = None) -> Tensor:
        """x_t ~ q(x_t | x_0): x [B, L] long, t [B] or [B, L] float → [B, L] long."""
        self.check_tokens(x)
        return self.noised(x, None, position_times(self.check_times(t, x), x), generator)

    def noised(self, x_s: Tensor, s: Tensor | None, t: Tensor, generator: Generator = None) -> Tensor:
        """x_t ~ q(x_t | x_s), from clean data if s is None: [*P] → [*P]."""
        return draw(self.row(x_s, s, t), generator)

    def marginal(self, x: Tensor, t: Tensor) -> Tensor:
        """q(x_t = · | x_0): [*P] → [*P, S]."""
        return self.push(one_hot(x, self.vocab).to(t.dtype), t)

    def log_prob(self, x_t: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """log q(x_t | x_0): [*P]."""
        return gather(self.marginal(x, t), x_t).log()

    def posterior(self, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """q(x_s | x_t, x_0) ∝ q(x_t | x_s) q(x_s | x_0): [*P, S]."""
        joint = self.column(x_t, s, t) * self.marginal(x, s)
        return joint / joint.sum(-1, keepdim=True)

    def true_ratios(self, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """r_y = q(y | x_0)/q(x_t | x_0): [*P, S]."""
        marginal = self.marginal(x, t)
        return marginal / gather(marginal, x_t)[..., None]

    # ---- what a prediction says about the reverse -------------------------------------------------------------------

    def _mean_weights(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """w such that p(x_s | x_t) ∝ q(x_t | x_s) Σ w(x_0) q(x_s | x_0): μ/q(x_t|·) for marginal, μ for plug-in."""
        likelihood = self.column(x_t, None, t)[..., : self.vocab].to(log_probs.dtype)
        possible = likelihood > 0  # a token that cannot have become x_t has no probability: SUBS' carry-over
        mean = torch.softmax(log_probs.masked_fill(~possible, -torch.inf), -1)
        if self.reverse == "plug-in":
            return mean
        return mean / torch.where(possible, likelihood, torch.ones_like(likelihood))

    def _is_mean(self, t: Tensor) -> Tensor:
        """Return where t ≤ `mean_until`, up to rounding: [*P] bool."""
        return t <= self.mean_until * (1 + 1e-9)

    def mean_ratios(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """log s_y from a mean: [*P, K] → [*P, S].

        Marginal: s_y = Σ_{x_0} μ(x_0) q(y|x_0)/q(x_t|x_0). Plug-in: s_y = q(y|μ)/q(x_t|μ).
        """
        pushed = self.push(self._mean_weights(log_probs, x_t, t), t)
        return safe_log(pushed) - gather(pushed, x_t)[..., None].log()

    def mean_reverse(self, log_probs: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """log p(x_s | x_t) from a mean: [*P, K] → [*P, S]."""
        pushed = self.push(self._mean_weights(log_probs, x_t, t), s)
        joint = self.column(x_t, s, t).to(pushed.dtype) * pushed
        log_p = safe_log(joint) - joint.sum(-1, keepdim=True).log()
        return torch.where(((s == 0) & self._is_mean(t))[..., None], log_probs, log_p) if self.mean_until else log_p

    def mean_clean(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """log p(x_0 | x_t) from a mean: [*P, K] → [*P, K]; for plug-in ∝ q(x_t | x_0)·μ(x_0)."""
        likelihood = self.column(x_t, None, t)[..., : self.vocab].to(log_probs.dtype)
        if self.reverse == "plug-in":
            product = torch.log_softmax(log_probs + likelihood.log(), -1)
            return torch.where(self._is_mean(t)[..., None], log_probs, product) if self.mean_until else product
        return torch.log_softmax(log_probs.masked_fill(likelihood <= 0, -torch.inf), -1)

    def _tweedie(self, log_ratios: Tensor, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """p(x_s = y) ∝ (exp(−ΔσQ) s)_y · q(x_t | x_s = y), with s_{x_t} = 1; s = None: back to clean data: [*P, S].

        Entries that come out negative are clipped, but keep a probability of 1e-12 where x_t can be reached: any reverse
        step is valid in a bound, and a zero would make it infinite. States that no x_0 can lead to, as tokens are excluded,
        have probability 0.
        """
        t = t.clamp_max(LATEST)
        ratios = without_own(log_ratios, x_t).exp()
        likelihood = self.column(x_t, s, t).to(ratios.dtype)
        joint = (self.unpush(ratios, s, t) * likelihood).clamp_min(0)
        if s is None:
            joint, likelihood = joint[..., : self.vocab], likelihood[..., : self.vocab]
        joint = joint / joint.sum(-1, keepdim=True).clamp_min(1e-30) + 1e-12 * (likelihood > 0)
        if self.excluded is not None:
            included = (~self.excluded).to(joint.dtype).expand(*x_t.shape, self.vocab)
            joint = joint * (included if s is None else self.push(included, s) > 0)
        return joint / joint.sum(-1, keepdim=True)

    def score_reverse(self, log_ratios: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """log p(x_s | x_t) from a score by Tweedie's formula (SEDD, theorem 4.2): [*P, S] → [*P, S]."""
        return safe_log(self._tweedie(log_ratios, x_t, s, t))

    def score_clean(self, log_ratios: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """log p(x_0 | x_t) from a score, the same formula back to clean data: [*P, S] → [*P, K]."""
        return safe_log(self._tweedie(log_ratios, x_t, None, t))

    def scaled_score(self, raw: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """A network's raw output, of order one, as log ratios of the right size at every t: [*P, K] → [*P, S].

        Ratios range from 1 to K/t as t → 0; here they are those of the distribution softmax(raw).
        """
        return self.mean_ratios(torch.log_softmax(raw, -1), x_t, t)

    def linear_ratios(self, weights: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """s_y = 1 + Σ_{x_0} w(x_0)·[q(y|x_0)/q(x_t|x_0) − 1], linear in any real weights w: [*P, K] → [*P, S].

        The ratios are exact when w = p(x_0 | x_t), and of the right size at every t when w is of order one.
        """
        likelihood = self.column(x_t, None, t)[..., : self.vocab].to(weights.dtype)
        possible = likelihood > 0
        weights = torch.where(possible, weights, torch.zeros_like(weights))
        pushed = self.push(weights / torch.where(possible, likelihood, torch.ones_like(likelihood)), t)
        return 1 + pushed - weights.sum(-1, keepdim=True)

    # ---- the bound --------------------------------------------------------------------------------------------------

    def integrand(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The KL between the true and the predicted reverse jumps, per unit of time: [*P] ≥ 0.

        Σ_{y≠x_t} R_t(y → x_t)·[ s_y − r_y + r_y log(r_y/s_y) ].
        """
        log_s = without_own(prediction.ratios(self, x_t, t), x_t)
        rates = self.rates_into(x_t, t).to(log_s.dtype)
        terms = bregman(log_s, self.true_ratios(x, x_t, t).to(log_s.dtype))
        return torch.where(rates > 0, rates * terms, torch.zeros_like(terms)).sum(-1)

    def kl(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """KL( q(x_s | x_t, x_0) ‖ p(x_s | x_t) ) of one discrete step: [*P] ≥ 0."""
        log_p = prediction.reverse(self, x_t, s, t)
        q = self.posterior(x, x_t, s, t).to(log_p.dtype)
        terms = q * (torch.where(q > 0, q, torch.ones_like(q)).log() - log_p)
        return torch.where(q > 0, terms, torch.zeros_like(q)).sum(-1)

    def noise_kl(self, x: Tensor) -> Tensor:
        """KL( q(x_1 | x_0) ‖ π ), zero when α(1) = 0: [*P]."""
        q = self.marginal(x, torch.ones(x.shape, dtype=torch.float64, device=x.device))
        return (torch.xlogy(q, q) - torch.xlogy(q, self.stationary().to(q))).sum(-1)

    @property
    def residual_signal(self) -> float:
        """α(1) where pure noise is a point (see Masked): how likely a position is to leave that noise at once; else 0."""
        return 0.0

    def surprise(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """−log p(x_0 | x_t), the cross-entropy of each position: [*P]."""
        return -gather(prediction.clean(self, x_t, t), x)

    # ---- generation -------------------------------------------------------------------------------------------------

    def jump_steps(self, x: Tensor, free: Tensor, times: list[float], generator: Generator = None) -> Tensor | None:
        """In which step of a falling grid of times each free position jumps: x, free [B, L] → [B, L] long, or None.

        Step i goes from times[i] to the next, the last one to clean data; a position that never jumps has len(times). A
        process can say that if its jumps come at times that do not depend on what they jump to; by default it cannot.
        """
        return None

    def dense(self) -> "Process":
        """The same process without any closed form: the oracle for tests."""
        from unnoise.process.dense import Dense

        return Dense(self)
