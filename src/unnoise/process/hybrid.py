"""Hybrid noise: a mixture of masks and uniform tokens that changes with t (GIDD, arXiv:2503.04482).

q(x_t | x_0) = Cat(α x_0 + b), with α = (1−t)/C and b = (t·m + c·u)/C, m the mask, u uniform over the K real tokens,
c = B√(t(1−t)), C = 1 + c, B = 2p_u/(1−p_u): at t = ½ a token is uniform noise with probability p_u, and otherwise the mask or
the original token, with equal probability. From s to t the noise

    f = b_t − α_{t|s} b_s,   f_mask = (t−s)/(C_t(1−s)),   f_token = B(t−s)√(1−t) / (K C_t √(1−s) (√(t(1−s)) + √(s(1−t))))

is added: q(x_t | x_s) = Cat(α_{t|s} x_s + f). A jump from any state goes to a token at the rate B/(2KC√(t(1−t))) and to the
mask at 1/(C(1−t)): the mask is not absorbing, and every position contributes to the loss. At t = 1 all positions are masks.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from unnoise.process.process_base import Process, Reverse
from unnoise.rng import Generator, integers, uniform
from unnoise.schedule import Schedule


class HybridSchedule(Schedule):
    """α(t) = (1−t)/(1 + B√(t(1−t))), B = 2p_u/(1−p_u) ≥ 0. At t = 0 its slope is infinite; with p_u = 0 it is `Linear`."""

    def __init__(self, p_uniform: float = 0.2):
        super().__init__()
        if not (math.isfinite(p_uniform) and 0 <= p_uniform < 1):
            raise ValueError(f"hybrid noise needs a uniform share 0 ≤ p_uniform < 1, found {p_uniform}")
        self.p_uniform = p_uniform
        self.weight = 2 * p_uniform / (1 - p_uniform)

    def uniform_part(self, t: Tensor) -> Tensor:
        """Compute c = B√(t(1−t)): [...] → [...]."""
        return self.weight * (t * (1 - t)).sqrt()

    def alpha(self, t: Tensor) -> Tensor:
        return (1 - t) / (1 + self.uniform_part(t))

    def noise(self, t: Tensor) -> Tensor:
        c = self.uniform_part(t)
        return (t + c) / (1 + c)

    def alpha_prime(self, t: Tensor) -> Tensor:
        """Compute α′ = −(1 + B/2·√((1−t)/t))/C²: [...] → [...]."""
        slope = 1 + self.weight / 2 * ((1 - t) / t).sqrt() if self.weight else torch.ones_like(t)
        return -slope / (1 + self.uniform_part(t)) ** 2

    def rate(self, t: Tensor) -> Tensor:
        """Compute β = (1 + B/2·√((1−t)/t))/(C(1−t)): [...] → [...]."""
        return -self.alpha_prime(t) * (1 + self.uniform_part(t)) / (1 - t)

    def inverse(self, alpha: Tensor) -> Tensor:
        """Compute t = z²/(1+z²) with z the positive root of αz² + αBz = 1 − α: [...] → [...]."""
        above = 2 * (1 - alpha).clamp_min(0)
        below = alpha * self.weight + ((alpha * self.weight) ** 2 + 2 * alpha * above).clamp_min(0).sqrt()
        return (above**2 / (above**2 + below**2).clamp_min(1e-30)).clamp(0, 1)


class HybridNoise(Process):
    """Noise of masks (index K) and uniform tokens.

    p_uniform: p_u, the share of positions with uniform noise at t = ½; 0 is Masked with the linear schedule.
    reverse: meaning of a mean (see Process), "plug-in" in the paper.
    """

    def __init__(self, vocab: int, p_uniform: float = 0.2, reverse: Reverse = "plug-in"):
        schedule = HybridSchedule(p_uniform)
        super().__init__(vocab, vocab + 1, schedule, reverse)
        self.mask, self.weight, self.uniform_part = vocab, schedule.weight, schedule.uniform_part

    def _spread(self, token: Tensor, mask: Tensor) -> Tensor:
        """Return a vector with one value for every real token and another for the mask: [*P], [*P] → [*P, S]."""
        return torch.cat([token[..., None].expand(*token.shape, self.vocab), mask[..., None]], -1)

    def _kept_and_added(self, s: Tensor | None, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return α_{t|s} and the entries of f for each token and for the mask: [*P] each."""
        c = self.uniform_part(t)
        if s is None:
            return self.schedule.alpha(t), c / (1 + c) / self.vocab, t / (1 + c)
        kept = self.schedule.alpha(t) / self.schedule.alpha(s)
        roots = (1 - s).sqrt() * ((t * (1 - s)).sqrt() + (s * (1 - t)).sqrt())
        token = self.weight * (t - s) * (1 - t).sqrt() / roots.clamp_min(1e-30)
        return kept, token / (1 + c) / self.vocab, (t - s) / (1 - s) / (1 + c)

    def _into(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rates of jumps to each token and to the mask, from any state: [*P] each."""
        c = self.uniform_part(t)
        token = self.weight / (2 * (t * (1 - t)).sqrt()) if self.weight else torch.zeros_like(t)
        return token / (1 + c) / self.vocab, 1 / (1 - t) / (1 + c)

    # ---- matrices ---------------------------------------------------------------------------------------------------

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        kept, token, mask = self._kept_and_added(s, t)
        diagonal = kept[..., None, None] * torch.eye(self.states, dtype=t.dtype, device=t.device)
        return diagonal + self._spread(token, mask)[..., None, :]

    def rate(self, t: Tensor) -> Tensor:
        into = self._spread(*self._into(t))
        leaving = into.sum(-1)[..., None, None] * torch.eye(self.states, dtype=t.dtype, device=t.device)
        return into[..., None, :] - leaving

    def stationary(self) -> Tensor:
        return one_hot(torch.tensor(self.mask, device=self.device), self.states).double()

    # ---- primitives, O(K) a position --------------------------------------------------------------------------------

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        kept, token, mask = (value.to(weights.dtype) for value in self._kept_and_added(None, t))
        return pad(kept[..., None] * weights, (0, 1)) + self._spread(token, mask) * weights.sum(-1, keepdim=True)

    def row(self, x_s: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept, token, mask = self._kept_and_added(s, t)
        return self._spread(token, mask).scatter_add(-1, x_s[..., None], kept[..., None])

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept, token, mask = self._kept_and_added(s, t)
        anyway = torch.where(x_t == self.mask, mask, token)[..., None].expand(*x_t.shape, self.states)
        return anyway.scatter_add(-1, x_t[..., None], kept[..., None])

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept, token, mask = (value.to(ratios.dtype) for value in self._kept_and_added(s, t))
        return (ratios - self._spread(token, mask) * ratios.sum(-1, keepdim=True)) / kept[..., None]

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        token, mask = self._into(t)
        rate = torch.where(x_t == self.mask, mask, token)[..., None].expand(*x_t.shape, self.states)
        return rate.scatter(-1, x_t[..., None], 0.0)

    # ---- forward ----------------------------------------------------------------------------------------------------

    def prior(self, shape: tuple[int, ...], generator: Generator = None) -> Tensor:
        return torch.full(shape, self.mask, device=self.device)

    def noised(self, x_s: Tensor, s: Tensor | None, t: Tensor, generator: Generator = None) -> Tensor:
        kept, _, mask = self._kept_and_added(s, t)
        u = uniform(x_s.shape, x_s.device, generator)
        token = integers(self.vocab, x_s.shape, x_s.device, generator)
        return torch.where(u < kept, x_s, torch.where(u < kept + mask, self.mask, token))
