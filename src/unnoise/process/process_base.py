"""The forward process q and the quantities derived from it by dense formulas.

A process over S states defines its transition matrices, rate matrix and stationary distribution. From these the base class
computes the posterior, the ratios, the reverse step, and the KL integrand and boundary terms of the bound; this is slow but
simple. Subclasses override it with closed forms. `process.dense()` is the same process without closed forms, the oracle of the
tests.

All functions are elementwise over positions: x_0, x_t: [*P] long and s < t: [*P] float64 with a leading shape P ([B, L], or [n]
selected positions). Matrices are row-stochastic: T[i, j] = q(x_t = j | x_s = i).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from unnoise.prediction import TokenPrediction
from unnoise.process.state import LATEST, ProcessBase, position_times
from unnoise.rng import Generator, draw
from unnoise.schedule import Schedule

FORGOTTEN = 1e-9  # modes of the noise that have decayed below this cannot be recovered from ratios
Reverse = Literal["marginal", "plug-in"]


def gather(values: Tensor, index: Tensor) -> Tensor:
    """Return values[p, index[p]] for every position p: [*P, S], [*P] → [*P]."""
    return values.gather(-1, index[..., None])[..., 0]


def without_own(log_ratios: Tensor, x_t: Tensor) -> Tensor:
    """Set the entry of log ratios at x_t, which is undefined, to log 1: [*P, S] → [*P, S]."""
    return log_ratios.scatter(-1, x_t[..., None], 0.0)


def safe_log(values: Tensor) -> Tensor:
    """Return log max(values, 1e-30), which has a finite gradient at zero probability."""
    return values.clamp_min(1e-30).log()


def bregman(log_s: Tensor, r: Tensor) -> Tensor:
    """Compute s − r + r log(r/s) ≥ 0 elementwise; it is zero only at s = r, and r may be zero.

    The form r·(e^z − 1 − z) with z = log s − log r loses no digits if s is near r.
    """
    positive = r > 0
    z = torch.where(positive, log_s - torch.where(positive, r, torch.ones_like(r)).log(), torch.zeros_like(r))
    return torch.where(positive, r * (torch.expm1(z) - z), log_s.exp())


class Process(ProcessBase, ABC):
    """Noise that acts on each position independently, as a Markov jump process over `states` ≥ `vocab` states.

    reverse: meaning of a mean μ. "marginal": μ = p(x_0 | x_t), with reverse step Σ_{x_0} μ(x_0) q(x_s | x_t, x_0). "plug-in": μ
        is independent of the token at its position, with reverse step q(x_s | x_t, x̂_0 = μ) (Multinomial Diffusion,
        arXiv:2102.05379; D3PM, arXiv:2107.03006; UDLM, arXiv:2412.10193). For masked noise the two agree.
    """

    schedule: Schedule
    mean_until: float = 0.0
    """time up to which a plug-in mean is p(x_0 | x_t) itself, from which a step to clean data samples"""

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

    # ---- definition, by each process --------------------------------------------------------------------------------

    @abstractmethod
    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        """Return q(x_t | x_s) as matrices, or q(x_t | x_0) if s is None: [*T] → [*T, S, S]."""

    @abstractmethod
    def rate(self, t: Tensor) -> Tensor:
        """Return the rate matrix R_t(i → j), whose rows sum to zero: [*T] → [*T, S, S]."""

    @abstractmethod
    def stationary(self) -> Tensor:
        """Return π, the distribution of pure noise: [S] float64."""

    # ---- four primitives; closed forms live here -------------------------------------------------------------------

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        """Compute Σ_{x_0} w(x_0) q(x_t = · | x_0): [*P, K] → [*P, S]."""
        matrix = self.transition(None, t)[..., : self.vocab, :].to(weights.dtype)
        return (weights[..., None, :] @ matrix)[..., 0, :]

    def row(self, x_s: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """Return q(x_t = · | x_s): [*P] → [*P, S]."""
        matrix = self.transition(s, t).expand(*x_s.shape, self.states, self.states)
        return matrix.gather(-2, x_s[..., None, None].expand(*x_s.shape, 1, self.states))[..., 0, :]

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """Return q(x_t | x_s = ·), the likelihood of each earlier state: [*P] → [*P, S]."""
        matrix = self.transition(s, t).expand(*x_t.shape, self.states, self.states)
        return matrix.gather(-1, x_t[..., None, None].expand(*x_t.shape, self.states, 1))[..., 0]

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """Solve v·T_{s→t} = ratios for v, exp(−ΔσQ)s in SEDD's Tweedie formula: [*P, S] → [*P, S]."""
        inverse = torch.linalg.pinv(self.transition(s, t).double(), rtol=FORGOTTEN)
        return (ratios.double()[..., None, :] @ inverse)[..., 0, :].to(ratios.dtype)

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Return R_t(y → x_t) for every y ≠ x_t, and zero at y = x_t: [*P] → [*P, S]."""
        matrix = self.rate(t).expand(*x_t.shape, self.states, self.states)
        column = matrix.gather(-1, x_t[..., None, None].expand(*x_t.shape, self.states, 1))[..., 0]
        return column.scatter(-1, x_t[..., None], 0.0)

    # ---- forward ----------------------------------------------------------------------------------------------------

    def active(self, x_t: Tensor) -> Tensor:
        """Return the positions that contribute to the loss and can change in the reverse process: [B, L] bool."""
        return torch.ones_like(x_t, dtype=torch.bool)

    def active_share(self, t: Tensor) -> Tensor:
        """Return the expected share of active positions at t: [B] → [B]."""
        return torch.ones_like(t)

    def prior(self, shape: tuple[int, ...], generator: Generator = None) -> Tensor:
        """Sample pure noise x_1 ~ π: long of the given shape."""
        return draw(self.stationary().expand(*shape, self.states), generator)

    def corrupt(self, x: Tensor, t: Tensor, generator: Generator = None) -> Tensor:
        """Sample x_t ~ q(x_t | x_0): x [B, L] long, t [B] or [B, L] float → [B, L] long."""
        self.check_tokens(x)
        return self.noised(x, None, position_times(self.check_times(t, x), x), generator)

    def noised(self, x_s: Tensor, s: Tensor | None, t: Tensor, generator: Generator = None) -> Tensor:
        """Sample x_t ~ q(x_t | x_s), from clean data if s is None: [*P] → [*P]."""
        return draw(self.row(x_s, s, t), generator)

    def marginal(self, x: Tensor, t: Tensor) -> Tensor:
        """Return q(x_t = · | x_0): [*P] → [*P, S]."""
        return self.push(one_hot(x, self.vocab).to(t.dtype), t)

    def log_prob(self, x_t: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """Return log q(x_t | x_0): [*P]."""
        return gather(self.marginal(x, t), x_t).log()

    def posterior(self, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Return q(x_s | x_t, x_0) ∝ q(x_t | x_s) q(x_s | x_0): [*P, S]."""
        joint = self.column(x_t, s, t) * self.marginal(x, s)
        return joint / joint.sum(-1, keepdim=True)

    def true_ratios(self, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return r_y = q(y | x_0)/q(x_t | x_0): [*P, S]."""
        marginal = self.marginal(x, t)
        return marginal / gather(marginal, x_t)[..., None]

    # ---- the reverse process from a prediction ----------------------------------------------------------------------

    def _mean_weights(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return w in p(x_s | x_t) ∝ q(x_t | x_s) Σ w(x_0) q(x_s | x_0): μ/q(x_t|·) for marginal, μ for plug-in."""
        likelihood = self.column(x_t, None, t)[..., : self.vocab].to(log_probs.dtype)
        possible = likelihood > 0  # tokens that cannot become x_t have probability zero (carry-over of SUBS)
        mean = torch.softmax(log_probs.masked_fill(~possible, -torch.inf), -1)
        if self.reverse == "plug-in":
            return mean
        return mean / torch.where(possible, likelihood, torch.ones_like(likelihood))

    def _is_mean(self, t: Tensor) -> Tensor:
        """Return where t ≤ `mean_until`, up to rounding: [*P] bool."""
        return t <= self.mean_until * (1 + 1e-9)

    def mean_ratios(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log s_y from a mean: [*P, K] → [*P, S].

        Marginal: s_y = Σ_{x_0} μ(x_0) q(y|x_0)/q(x_t|x_0). Plug-in: s_y = q(y|μ)/q(x_t|μ).
        """
        pushed = self.push(self._mean_weights(log_probs, x_t, t), t)
        return safe_log(pushed) - gather(pushed, x_t)[..., None].log()

    def mean_reverse(self, log_probs: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_s | x_t) from a mean: [*P, K] → [*P, S]."""
        pushed = self.push(self._mean_weights(log_probs, x_t, t), s)
        joint = self.column(x_t, s, t).to(pushed.dtype) * pushed
        log_p = safe_log(joint) - joint.sum(-1, keepdim=True).log()
        return torch.where(((s == 0) & self._is_mean(t))[..., None], log_probs, log_p) if self.mean_until else log_p

    def mean_clean(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_0 | x_t) from a mean, which for plug-in is ∝ q(x_t | x_0)·μ(x_0): [*P, K] → [*P, K]."""
        likelihood = self.column(x_t, None, t)[..., : self.vocab].to(log_probs.dtype)
        if self.reverse == "plug-in":
            product = torch.log_softmax(log_probs + likelihood.log(), -1)
            return torch.where(self._is_mean(t)[..., None], log_probs, product) if self.mean_until else product
        return torch.log_softmax(log_probs.masked_fill(likelihood <= 0, -torch.inf), -1)

    def _tweedie(self, log_ratios: Tensor, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """Return p(x_s = y) ∝ (exp(−ΔσQ) s)_y · q(x_t | x_s = y), with s_{x_t} = 1; clean data if s is None: [*P, S].

        Negative entries are clipped to a probability of 1e-12 if x_t can be reached from them: any reverse step is valid in a
        bound, but a zero would make it infinite. States that no x_0 leads to, because of excluded tokens, have probability 0.
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
        """Return log p(x_s | x_t) from a score by Tweedie's formula (SEDD, theorem 4.2): [*P, S] → [*P, S]."""
        return safe_log(self._tweedie(log_ratios, x_t, s, t))

    def score_clean(self, log_ratios: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_0 | x_t) from a score by Tweedie's formula: [*P, S] → [*P, K]."""
        return safe_log(self._tweedie(log_ratios, x_t, None, t))

    def scaled_score(self, raw: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Scale a network's raw output of order one to log ratios of the correct size at every t: [*P, K] → [*P, S].

        Ratios range from 1 to K/t as t → 0. Here they are the ratios of the mean softmax(raw).
        """
        return self.mean_ratios(torch.log_softmax(raw, -1), x_t, t)

    def linear_ratios(self, weights: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute s_y = 1 + Σ_{x_0} w(x_0)·[q(y|x_0)/q(x_t|x_0) − 1], linear in the weights w: [*P, K] → [*P, S].

        The ratios are exact if w = p(x_0 | x_t), and of the correct size at every t if w is of order one.
        """
        likelihood = self.column(x_t, None, t)[..., : self.vocab].to(weights.dtype)
        possible = likelihood > 0
        weights = torch.where(possible, weights, torch.zeros_like(weights))
        pushed = self.push(weights / torch.where(possible, likelihood, torch.ones_like(likelihood)), t)
        return 1 + pushed - weights.sum(-1, keepdim=True)

    # ---- the bound --------------------------------------------------------------------------------------------------

    def integrand(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute the KL divergence between the true and the predicted reverse jumps, per unit of time: [*P] ≥ 0.

        Σ_{y≠x_t} R_t(y → x_t)·[ s_y − r_y + r_y log(r_y/s_y) ].
        """
        log_s = without_own(prediction.ratios(self, x_t, t), x_t)
        rates = self.rates_into(x_t, t).to(log_s.dtype)
        terms = bregman(log_s, self.true_ratios(x, x_t, t).to(log_s.dtype))
        return torch.where(rates > 0, rates * terms, torch.zeros_like(terms)).sum(-1)

    def kl(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Compute KL( q(x_s | x_t, x_0) ‖ p(x_s | x_t) ) of one discrete step: [*P] ≥ 0."""
        log_p = prediction.reverse(self, x_t, s, t)
        q = self.posterior(x, x_t, s, t).to(log_p.dtype)
        terms = q * (torch.where(q > 0, q, torch.ones_like(q)).log() - log_p)
        return torch.where(q > 0, terms, torch.zeros_like(q)).sum(-1)

    def noise_kl(self, x: Tensor) -> Tensor:
        """Compute KL( q(x_1 | x_0) ‖ π ), which is zero if α(1) = 0: [*P]."""
        q = self.marginal(x, torch.ones(x.shape, dtype=torch.float64, device=x.device))
        return (torch.xlogy(q, q) - torch.xlogy(q, self.stationary().to(q))).sum(-1)

    @property
    def terminal_alpha(self) -> float:
        """α(1) if pure noise is a single state (see Masked), the probability that a position leaves it at t = 1; else 0."""
        return 0.0

    def cross_entropy(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return −log p(x_0 | x_t), the cross-entropy of each position: [*P]."""
        return -gather(prediction.clean(self, x_t, t), x)

    # ---- generation -------------------------------------------------------------------------------------------------

    def jump_steps(self, x: Tensor, free: Tensor, times: list[float], generator: Generator = None) -> Tensor | None:
        """Sample the step of a decreasing time grid in which each free position jumps: x, free [B, L] → [B, L] long.

        Step i goes from times[i] to times[i + 1], and the last step to clean data; positions that never jump have len(times).
        Return None, the default, unless the times of the jumps are independent of their targets.
        """
        return None

    def dense(self) -> "Process":
        """Return this process without closed forms, the oracle of the tests."""
        return Dense(self)


class Dense(Process):
    """A process that uses only the matrices and the boundary terms of another process, and the formulas of the base class."""

    def __init__(self, process: Process):
        super().__init__(process.vocab, process.states, process.schedule, process.reverse)
        self.process = process
        self.mean_until = process.mean_until

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        return self.process.transition(s, t)

    def rate(self, t: Tensor) -> Tensor:
        return self.process.rate(t)

    def stationary(self) -> Tensor:
        return self.process.stationary()

    def active(self, x_t: Tensor) -> Tensor:
        return self.process.active(x_t)

    @property
    def terminal_alpha(self) -> float:
        return self.process.terminal_alpha

    def noise_kl(self, x: Tensor) -> Tensor:
        return self.process.noise_kl(x)
