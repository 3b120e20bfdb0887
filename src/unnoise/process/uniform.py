"""Uniform noise: a token is kept with probability α(t) and otherwise replaced by one of the K tokens at random.

q(x_t | x_0) = Cat(α_t x_0 + (1 − α_t)/K). Everything costs O(K) per position.
Papers: Multinomial Diffusion (arXiv:2102.05379), D3PM (2107.03006), SEDD (2310.16834), UDLM (2412.10193).

`Neighbourhood` restricts the tokens that may replace a token, for concrete scores and for noise on graphs.
"""

import math
from typing import Any

import torch
from torch import Tensor

from unnoise.prediction import MeanPrediction, TokenPrediction
from unnoise.process.process_base import Process, Reverse, gather
from unnoise.rng import Generator, integers, uniform
from unnoise.schedule import PerToken, Schedule


class _RelativeBregman(torch.autograd.Function):
    """Σ_{y≠x_t} φ(log s_y − log r) with φ(z) = e^z − 1 − z ≥ 0: log_s [*P, K], log_r and x_t [*P] → [*P]; log_r is a constant.

    The backward pass keeps log_s and no other tensor of the size of the vocabulary.
    """

    @staticmethod
    def forward(ctx: Any, log_s: Tensor, log_r: Tensor, x_t: Tensor) -> Tensor:
        ctx.save_for_backward(log_s, log_r, x_t)
        z = (log_s - log_r[..., None]).scatter_(-1, x_t[..., None], 0.0)
        total = -z.sum(-1)
        return total + z.expm1_().sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        log_s, log_r, x_t = ctx.saved_tensors
        z = (log_s - log_r[..., None]).scatter_(-1, x_t[..., None], 0.0)
        return z.expm1_().mul_(grads[0][..., None]), None, None


class _Mix(torch.autograd.Function):
    """log(e^a·μ_y + e^b) from log μ: log_probs [*P, K], a and b [*P, 1] → [*P, K]; a is a constant.

    Equals torch.logaddexp(log_probs + a, b), but keeps only log_probs and the result for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, a: Tensor, b: Tensor) -> Tensor:
        mixed = log_probs + a
        torch.logaddexp(mixed, b, out=mixed)
        ctx.save_for_backward(log_probs, a, b, mixed)
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor]:
        log_probs, a, b, mixed = ctx.saved_tensors
        grad_b = (grads[0] * (b - mixed).exp_()).sum(-1, keepdim=True)
        share = torch.sub(log_probs, mixed).add_(a).exp_()
        return share.mul_(grads[0]), None, grad_b


class Uniform(Process):
    """Uniform noise over K tokens.

    reverse: meaning of a mean (see Process).
    mean_until: for plug-in, the time up to which a mean is p(x_0 | x_t) itself. Multinomial Diffusion defines
        p(x_0 | x_1) = μ(x_1, 1), which is mean_until = 1/T. The authors' code normalizes q(x_1 | x_0)·μ there too, as the
        default 0 does.

    In continuous time the bound of a marginal mean is infinite unless μ puts all probability on an intact token as t → 0, which
    networks do not. Train a marginal mean with discrete steps (D3PM), or use plug-in (UDLM).
    """

    def __init__(self, vocab: int, schedule: Schedule, reverse: Reverse = "marginal", mean_until: float = 0.0):
        if isinstance(schedule, PerToken):
            raise ValueError("Uniform needs one schedule for all tokens; PerToken is for Masked")
        if any(weight.requires_grad for weight in schedule.parameters()):
            raise ValueError("Uniform needs a fixed schedule: its closed forms do not differentiate the schedule")
        super().__init__(vocab, vocab, schedule, reverse)
        if not 0 <= mean_until <= 1 or (mean_until and reverse == "marginal"):
            raise ValueError(f"mean_until is for plug-in and must lie in [0, 1], found {mean_until} with {reverse}")
        self.mean_until = mean_until

    def _kept_and_lost(self, s: Tensor | None, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return α_{t|s} and 1 − α_{t|s}: [*P] each."""
        if s is None:
            return self.schedule.alpha(t), self.schedule.noise(t)
        signal = self.schedule.alpha(s)
        return self.schedule.alpha(t) / signal, (self.schedule.noise(t) - self.schedule.noise(s)) / signal

    # ---- matrices and primitives ------------------------------------------------------------------------------------

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        kept, lost = (value[..., None, None] for value in self._kept_and_lost(s, t))
        return kept * torch.eye(self.vocab, dtype=t.dtype, device=t.device) + lost / self.vocab

    def rate(self, t: Tensor) -> Tensor:
        jump = 1 / self.vocab - torch.eye(self.vocab, dtype=t.dtype, device=t.device)
        return self.schedule.rate(t)[..., None, None] * jump

    def stationary(self) -> Tensor:
        return torch.full((self.vocab,), 1 / self.vocab, dtype=torch.float64, device=self.device)

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        kept, lost = (value[..., None].to(weights.dtype) for value in self._kept_and_lost(None, t))
        return kept * weights + lost / self.vocab * weights.sum(-1, keepdim=True)

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept, lost = (value[..., None] for value in self._kept_and_lost(s, t))
        return (lost / self.vocab).expand(*x_t.shape, self.vocab).scatter_add(-1, x_t[..., None], kept)

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """Compute e·s_y + (1 − e)·mean(s) with e = α_s/α_t."""
        kept, lost = (value[..., None].to(ratios.dtype) for value in self._kept_and_lost(s, t))
        return (ratios - lost * ratios.mean(-1, keepdim=True)) / kept

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        jump = (self.schedule.rate(t) / self.vocab)[..., None].expand(*x_t.shape, self.vocab)
        return jump.scatter(-1, x_t[..., None], 0.0)

    # ---- forward ----------------------------------------------------------------------------------------------------

    def prior(self, shape: tuple[int, ...], generator: Generator = None) -> Tensor:
        return integers(self.vocab, shape, self.device, generator)

    def noised(self, x_s: Tensor, s: Tensor | None, t: Tensor, generator: Generator = None) -> Tensor:
        changed = uniform(x_s.shape, x_s.device, generator) < self._kept_and_lost(s, t)[1]
        noise = integers(self.vocab, x_s.shape, x_s.device, generator)
        return torch.where(changed, noise, x_s)

    def log_prob(self, x_t: Tensor, x: Tensor, t: Tensor) -> Tensor:
        kept, lost = self._kept_and_lost(None, t)
        return (kept * (x_t == x) + lost / self.vocab).log()

    def noise_kl(self, x: Tensor) -> Tensor:
        """Compute log K + Σ_y q_y log q_y at t = 1, the same for every token: [*P]."""
        one = torch.ones((), dtype=torch.float64)
        alpha, other = float(self.schedule.alpha(one)), float(self.schedule.noise(one)) / self.vocab
        own = alpha + other
        nats = own * math.log(own * self.vocab) + (self.vocab - 1) * (other * math.log(other * self.vocab))
        return torch.full(x.shape, nats if alpha > 0 else 0.0, dtype=torch.float64, device=x.device)

    # ---- reverse ----------------------------------------------------------------------------------------------------

    def mean_clean(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        if self.reverse == "marginal":
            return log_probs
        return super().mean_clean(log_probs, x_t, t)

    def mean_ratios(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log s_y, computed in logarithms to stay finite as t → 0: [*P, K] → [*P, K].

        Plug-in: s_y = x̄_y/x̄_{x_t}, x̄ = Kα·μ + (1−α).
        Marginal: s_y = 1 − Kα/(1−α+Kα)·μ_{x_t} + Kα/(1−α)·μ_y.
        """
        signal, noise = self.vocab * self.schedule.alpha(t), self.schedule.noise(t)
        own = gather(log_probs, x_t).double()
        if self.reverse == "plug-in":
            return self._plug_in_ratios(log_probs, x_t, signal, noise)
        rest = ((noise - signal * torch.expm1(own)) / (noise + signal)).log()
        return _Mix.apply(log_probs, _column((signal / noise).log(), log_probs), _column(rest, log_probs))

    def mean_reverse(self, log_probs: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_s | x_t), p_y ∝ q(x_t | y)·[α_s w_y + (1−α_s)/K·Σw], w = μ or μ/q(x_t|·): [*P, K] → [*P, K]."""
        log_w = log_probs.clamp_min(-1e4)  # two −∞ would have no gradient at s = 0
        if self.reverse == "marginal":
            log_w = log_w - self.column(x_t, None, t).log().to(log_w.dtype)
        total = torch.logsumexp(log_w, -1, keepdim=True)
        alpha, noise = self.schedule.alpha(s), self.schedule.noise(s)
        spread = total + _column((noise / self.vocab).log(), log_w)
        pushed = torch.logaddexp(log_w + _column(alpha.log(), log_w), spread)
        log_p = torch.log_softmax(pushed + self.column(x_t, s, t).log().to(pushed.dtype), -1)
        return torch.where(((s == 0) & self._is_mean(t))[..., None], log_probs, log_p) if self.mean_until else log_p

    def scaled_score(self, raw: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log s_y = log (α e^{raw_y} + 1 − α) − log (α e^{raw_{x_t}} + 1 − α), not normalized: [*P, K].

        It is of the correct size at every t and bounded at an intact token as t → 0. With raw = log K μ it is the ratio of a
        plug-in mean.
        """
        return self._plug_in_ratios(raw, x_t, self.schedule.alpha(t), self.schedule.noise(t))

    def _plug_in_ratios(self, log_probs: Tensor, x_t: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
        mixed: Tensor = _Mix.apply(log_probs, _column(signal.log(), log_probs), _column(noise.log(), log_probs))
        return mixed - gather(mixed, x_t)[..., None]

    def linear_ratios(self, weights: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute s_y = 1 + Kα/(1−α)·w_y − Kα/(1−α+Kα)·w_{x_t}: [*P, K] → [*P, K]."""
        signal, noise = self.vocab * self.schedule.alpha(t), self.schedule.noise(t)
        own = _column(signal / (noise + signal), weights) * gather(weights, x_t)[..., None]
        return 1 + _column(signal / noise, weights) * weights - own

    # ---- bound ------------------------------------------------------------------------------------------------------

    def integrand(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute β/K·Σ_{y≠x_t} [ s_y − r_y + r_y log(r_y/s_y) ] in O(K): [*P] (SEDD uniform; UDLM for a plug-in mean).

        The true ratios take two values, with ϱ = (1−α)/(1−α+Kα): if x_t = x_0 all r_y = ϱ, and otherwise r_{x_0} = 1/ϱ and the
        others are 1. So the sum is r·Σ_{y≠x_t} φ(log s_y − log r) with the common value r, plus a correction of one term.
        """
        log_s = prediction.ratios(self, x_t, t)
        noise = self.schedule.noise(t)
        log_rho = (noise / (noise + self.vocab * self.schedule.alpha(t))).log()
        intact = x_t == x
        log_r = torch.where(intact, log_rho, torch.zeros_like(log_rho)).to(log_s.dtype)
        common = _RelativeBregman.apply(log_s, log_r, x_t)
        at_x = gather(log_s, x)
        excess = torch.expm1(-log_rho)  # 1/ϱ − 1 in float64, because nearly equal numbers are subtracted below
        constant = -(excess + 1) * log_rho - excess
        correction = constant.to(log_s.dtype) - excess.to(log_s.dtype) * at_x
        nats = log_r.exp() * common + torch.where(intact, torch.zeros_like(at_x), correction)
        return (self.schedule.rate(t) / self.vocab).to(log_s.dtype) * nats

    def kl(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Compute Σ_y q_y log(B_y/C_y) + log(Z_p/Z_q) in O(K), for a mean: [*P].

        With a = q(x_t | x_s = y), B = q(x_s = y | x_0) and C_y = α_s w_y + (1−α_s)/K·Σw (see `mean_reverse`), q_y = a_y B_y/Z_q
        and p_y = a_y C_y/Z_p. a and B take two values each, and Σ_y C_y = Σw, so both Z need no sum over y. The KL of a
        step is about 1/T, so everything is computed in float64 except one sum over y, whose weight is equally small.
        """
        if not isinstance(prediction, MeanPrediction):
            return super().kl(prediction, x, x_t, s, t)
        log_mu = prediction.log_probs.clamp_min(-1e4)  # as in mean_reverse
        kept, lost = self._kept_and_lost(s, t)
        alpha, spread, intact = self.schedule.alpha(s), self.schedule.noise(s) / self.vocab, x_t == x
        anyway, log_spread = lost / self.vocab, spread.log()
        log_own, total = gather(log_mu, x_t).double(), torch.ones_like(kept)
        if self.reverse == "marginal":  # w·(1−α_t)/K, which equals μ except at x_t
            ratio = 1 + self.vocab * self.schedule.alpha(t) / self.schedule.noise(t)
            total = log_own.exp() / ratio - torch.expm1(log_own)
            log_own = log_own - ratio.log()
        log_rest = log_spread + total.log()
        mixed: Tensor = _Mix.apply(log_mu, _column(alpha.log(), log_mu), _column(log_rest, log_mu))
        log_c_own = torch.logaddexp(alpha.log() + log_own, log_rest)
        log_c_x = torch.where(intact, log_c_own, torch.logaddexp(alpha.log() + gather(log_mu, x).double(), log_rest))
        b_own, b_x = spread + alpha * intact, spread + alpha
        z_q, z_p = anyway + kept * b_own, anyway * total + kept * log_c_own.exp()
        q_own, q_x, q_other = (anyway + kept) * b_own / z_q, torch.where(intact, 0.0, anyway * b_x / z_q), anyway * spread / z_q
        others = mixed.sum(-1) - gather(mixed, x_t) - torch.where(intact, 0.0, gather(mixed, x))
        count = self.vocab - 2 + intact.double()
        # where q_y is 0 (s = 0) the logarithm of 0 is left out
        log_b_own, log_b_other = (torch.where(b > 0, b, 1.0).log() for b in (b_own, spread))
        nats = q_own * (log_b_own - log_c_own) + q_x * (b_x.log() - log_c_x) + (z_p / z_q).log()
        nats = nats + q_other * (count * log_b_other - others.double())
        if self.mean_until:
            nats = torch.where((s == 0) & self._is_mean(t), -gather(log_mu, x).double(), nats)
        return nats.to(log_mu.dtype)


def _column(values: Tensor, like: Tensor) -> Tensor:
    """Add a last axis and convert to the dtype of `like`: [*P] → [*P, 1]."""
    return values[..., None].to(like.dtype)


SHAPES = ("line", "ring", "complete")


class Neighbourhood:
    """A neighbourhood N(x) = {x with token y at position i : y is a neighbour of x_i, i = 1…L} of sequences.

    The concrete score is c_p(x; N)_n = p(x_n)/p(x) − 1 for x_n ∈ N(x) (arXiv:2211.00802). N may be asymmetric.

    neighbours: [S, S] bool, true at [x, y] where y is a neighbour of x. The diagonal is ignored, and each token needs at least
        one neighbour.
    """

    def __init__(self, neighbours: Tensor):
        found = torch.as_tensor(neighbours)
        if found.dim() != 2 or found.shape[0] != found.shape[1] or found.dtype != torch.bool:
            raise ValueError(f"neighbours must be a bool matrix [S, S], found {found.dtype} {list(found.shape)}")
        self.neighbours = found & ~torch.eye(len(found), dtype=torch.bool, device=found.device)
        self.degree = self.neighbours.sum(1)
        if bool((self.degree == 0).any()):
            raise ValueError(f"each token needs a neighbour, found none of token {int((self.degree == 0).nonzero()[0])}")
        self._order = (~self.neighbours).int().argsort(dim=1, stable=True)  # [x, k]: the k-th neighbour of x, for k < degree

    @staticmethod
    def named(shape: str, states: int) -> "Neighbourhood":
        """Return the neighbourhood of this name over tokens 0…S−1.

        shape: line (y = x ± 1), ring (the same, and the last token is next to the first) or complete (every other token).
        states: S, at least 2.
        """
        if shape not in SHAPES:
            raise ValueError(f"a neighbourhood is one of {', '.join(SHAPES)}, found {shape!r}")
        if states < 2:
            raise ValueError(f"a neighbourhood needs at least two tokens, found {states}")
        distance = (torch.arange(states)[:, None] - torch.arange(states)).abs()
        if shape == "complete":
            return Neighbourhood(distance > 0)
        return Neighbourhood((distance == 1) | ((shape == "ring") & (distance == states - 1)))

    def __len__(self) -> int:
        return len(self.neighbours)

    def of(self, x: Tensor) -> Tensor:
        """Return which tokens are neighbours of x: [*P] long → [*P, S] bool."""
        return self.neighbours.to(x.device)[x]

    def propose(self, x: Tensor, u: Tensor) -> Tensor:
        """Return a neighbour of each token, uniform over its neighbours for u uniform on [0, 1): [*P], [*P] → [*P] long."""
        degree = self.degree.to(x.device)[x]
        return self._order.to(x.device)[x, (u * degree).long().clamp_max(degree - 1)]

    def log_proposal_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log q(x|y)/q(y|x) = log |N(x)|/|N(y)| of that proposal, −∞ where x is no neighbour of y: [*P] → [*P]."""
        degree = self.degree.to(x.device).double()
        back = self.neighbours.to(x.device)[y, x]
        return (degree[x] / degree[y]).log().masked_fill(~back, -torch.inf)
