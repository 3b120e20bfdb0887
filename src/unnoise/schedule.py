"""Noise schedules: the remaining signal α(t) at time t.

t = 0 is data, t = 1 is noise, and α decreases. Near the two ends both α and 1 − α are needed to full relative precision, even
in float32, so every schedule defines both: `alpha` and `noise` = 1 − α. Methods name their schedules in `token_methods`.

| quantity | method | formula |
|---|---|---|
| signal | `alpha(t)` | α |
| noise | `noise(t)` | 1 − α |
| slope | `alpha_prime(t)` | α′ ≤ 0 |
| total rate | `sigma(t)` | σ̄ = −log α |
| rate | `rate(t)` | β = −α′/α |
| hazard of the reverse jump | `hazard(t)` | −α′/(1 − α) |
| time at which the signal is α | `inverse(alpha)` | t(α) |

All are elementwise and keep the dtype of their argument. Only `PerToken` adds a last axis, with one schedule per token.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

HALF_PI = math.pi / 2


class Schedule(nn.Module, ABC):
    """A decreasing function α: [0, 1] → [0, 1], its slope and its inverse.

    A subclass defines `alpha`, `alpha_prime` and `inverse`, and also `noise` if 1 − α loses digits.
    """

    @abstractmethod
    def alpha(self, t: Tensor) -> Tensor:
        """Return α(t): [...] → [...]."""

    @abstractmethod
    def alpha_prime(self, t: Tensor) -> Tensor:
        """Return α′(t) ≤ 0: [...] → [...]."""

    @abstractmethod
    def inverse(self, alpha: Tensor) -> Tensor:
        """Return the time t with α(t) = alpha, clamped to [0, 1]: [...] → [...]."""

    def noise(self, t: Tensor) -> Tensor:
        """Return 1 − α(t): [...] → [...]."""
        return 1 - self.alpha(t)

    def sigma(self, t: Tensor) -> Tensor:
        """Return σ̄(t) = −log α(t), which is infinite where α = 0: [...] → [...]."""
        noise = self.noise(t)
        return torch.where(noise < 0.5, -torch.log1p(-noise), -torch.log(self.alpha(t)))

    def rate(self, t: Tensor) -> Tensor:
        """Return β(t) = σ̄′(t) = −α′/α: [...] → [...]."""
        return -self.alpha_prime(t) / self.alpha(t)

    def hazard(self, t: Tensor) -> Tensor:
        """Return −α′/(1 − α), the rate at which a masked token is revealed in reverse time: [...] → [...]."""
        return -self.alpha_prime(t) / self.noise(t)

    def check(self) -> None:
        """Raise ValueError unless α decreases from at most 1 to at least 0."""
        with torch.no_grad():
            device = next((weight.device for weight in self.parameters()), None)
            t = torch.linspace(0, 1, 129, dtype=torch.float64, device=device)
            alpha = self.alpha(t)
            flat = alpha.reshape(len(t), -1)
            if not torch.isfinite(flat).all() or flat.max() > 1 + 1e-9 or flat.min() < -1e-9:
                raise ValueError(
                    f"a schedule's α(t) must lie in [0, 1], found {flat.min().item():.4g} to {flat.max().item():.4g}"
                )
            rise = (flat[1:] - flat[:-1]).max().item()
            if rise > 1e-9:
                raise ValueError(f"a schedule's α(t) must decrease from t = 0 to t = 1, found a rise of {rise:.4g}")


class Linear(Schedule):
    """α(t) = 1 − t. The weight of the masked bound is then 1/t (MDLM, MD4)."""

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - t

    def noise(self, t: Tensor) -> Tensor:
        return t.clone()

    def alpha_prime(self, t: Tensor) -> Tensor:
        return -torch.ones_like(t)

    def inverse(self, alpha: Tensor) -> Tensor:
        return (1 - alpha).clamp(0, 1)


class Polynomial(Schedule):
    """α(t) = 1 − t^w, w > 0 (MD4)."""

    def __init__(self, w: float):
        super().__init__()
        if not (math.isfinite(w) and w > 0):
            raise ValueError(f"Polynomial needs an exponent w > 0, found {w}")
        self.w = w

    def alpha(self, t: Tensor) -> Tensor:
        return -torch.expm1(self.w * torch.log(t))

    def noise(self, t: Tensor) -> Tensor:
        return t**self.w

    def alpha_prime(self, t: Tensor) -> Tensor:
        return -self.w * t ** (self.w - 1)

    def hazard(self, t: Tensor) -> Tensor:
        return self.w / t

    def inverse(self, alpha: Tensor) -> Tensor:
        return ((1 - alpha).clamp(0, 1) ** (1 / self.w)).clamp(0, 1)


class Cosine(Schedule):
    """α(t) = 1 − cos(π/2·(1 − t)) (MD4)."""

    def alpha(self, t: Tensor) -> Tensor:
        return 2 * torch.sin(HALF_PI / 2 * (1 - t)) ** 2

    def noise(self, t: Tensor) -> Tensor:
        return torch.sin(HALF_PI * t)

    def alpha_prime(self, t: Tensor) -> Tensor:
        return -HALF_PI * torch.sin(HALF_PI * (1 - t))

    def inverse(self, alpha: Tensor) -> Tensor:
        return (1 - torch.asin((alpha / 2).clamp(0, 1).sqrt()) * (2 / HALF_PI)).clamp(0, 1)


class LogLinear(Schedule):
    """α(t) = 1 − (1 − ε)t, so that σ̄(t) = −log(1 − (1 − ε)t) (SEDD, MDLM). Stops at α(1) = ε."""

    def __init__(self, eps: float = 1e-3):
        super().__init__()
        if not 0 <= eps < 1:
            raise ValueError(f"LogLinear needs 0 ≤ eps < 1, found {eps}")
        self.eps = eps

    def alpha(self, t: Tensor) -> Tensor:
        return (1 - t) + self.eps * t

    def noise(self, t: Tensor) -> Tensor:
        return (1 - self.eps) * t

    def alpha_prime(self, t: Tensor) -> Tensor:
        return torch.full_like(t, self.eps - 1)

    def inverse(self, alpha: Tensor) -> Tensor:
        return ((1 - alpha) / (1 - self.eps)).clamp(0, 1)


class SigmaSchedule(Schedule):
    """A schedule α = e^{−σ̄} defined by its total rate σ̄(t) and its rate β(t) = σ̄′(t): `sigma` and `rate` of a subclass."""

    def alpha(self, t: Tensor) -> Tensor:
        return torch.exp(-self.sigma(t))

    def noise(self, t: Tensor) -> Tensor:
        return -torch.expm1(-self.sigma(t))

    def alpha_prime(self, t: Tensor) -> Tensor:
        return -self.alpha(t) * self.rate(t)


class Geometric(SigmaSchedule):
    """α(t) = exp(−σ̄), σ̄(t) = lo^{1−t}·hi^t (SEDD). Starts at α(0) = e^{−lo}, stops at α(1) = e^{−hi}."""

    def __init__(self, lo: float = 1e-4, hi: float = 20.0):
        super().__init__()
        if not (0 < lo < hi and math.isfinite(hi)):
            raise ValueError(f"Geometric needs 0 < lo < hi, found lo = {lo}, hi = {hi}")
        self.lo, self.hi = lo, hi
        self.log_range = math.log(hi / lo)

    def sigma(self, t: Tensor) -> Tensor:
        return self.lo * torch.exp(t * self.log_range)

    def rate(self, t: Tensor) -> Tensor:
        return self.sigma(t) * self.log_range

    def inverse(self, alpha: Tensor) -> Tensor:
        return (torch.log(-torch.log(alpha) / self.lo) / self.log_range).clamp(0, 1)


class CosineTable(Schedule):
    """α(t) = cos(π/2·(t+s)/(1+s)) / cos(π/2·s/(1+s)), for the times t = i/T (Multinomial Diffusion, D3PM).

    `table` holds the T + 1 values. Between these times α is the same smooth function.
    """

    def __init__(self, steps: int = 1000, s: float = 0.008):
        super().__init__()
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"CosineTable needs at least one step, found {steps}")
        if s < 0:
            raise ValueError(f"CosineTable needs an offset s ≥ 0, found {s}")
        self.steps, self.s = steps, s
        self.start = HALF_PI * s / (1 + s)
        self.speed = HALF_PI / (1 + s)

    @property
    def table(self) -> Tensor:
        """α(i/T) for i = 0…T: [T+1], float64."""
        return self.alpha(torch.arange(self.steps + 1, dtype=torch.float64) / self.steps)

    def alpha(self, t: Tensor) -> Tensor:
        return torch.sin(self.speed * (1 - t)) / math.cos(self.start)

    def noise(self, t: Tensor) -> Tensor:
        half = self.speed * t / 2
        return 2 * torch.sin(self.start + half) * torch.sin(half) / math.cos(self.start)

    def alpha_prime(self, t: Tensor) -> Tensor:
        return -self.speed * torch.cos(self.speed * (1 - t)) / math.cos(self.start)

    def inverse(self, alpha: Tensor) -> Tensor:
        return (1 - torch.asin((alpha * math.cos(self.start)).clamp(0, 1)) / self.speed).clamp(0, 1)


class Table(SigmaSchedule):
    """σ̄(t) = −log α(t), interpolated linearly between its values at t = 0, 1/n, …, 1: sigmas [n+1], rising from 0."""

    sigmas: Tensor

    def __init__(self, sigmas: Tensor):
        super().__init__()
        values = torch.as_tensor(sigmas, dtype=torch.float64)
        if values.dim() != 1 or len(values) < 2 or not bool((values.diff() > 0).all()) or float(values[0]) != 0:
            raise ValueError("a Table needs at least two values of σ̄, rising from 0")
        self.register_buffer("sigmas", values)

    def _cell(self, t: Tensor) -> Tensor:
        return (t * (len(self.sigmas) - 1)).long().clamp(0, len(self.sigmas) - 2)

    def sigma(self, t: Tensor) -> Tensor:
        cell = self._cell(t)
        return (self.sigmas[cell] + (t.double() - cell / (len(self.sigmas) - 1)) * self.rate(t.double())).to(t.dtype)

    def rate(self, t: Tensor) -> Tensor:
        return (self.sigmas.diff()[self._cell(t)] * (len(self.sigmas) - 1)).to(t.dtype)

    def inverse(self, alpha: Tensor) -> Tensor:
        sigma = -torch.log(alpha.double())
        cell = (torch.searchsorted(self.sigmas, sigma.contiguous(), right=True) - 1).clamp(0, len(self.sigmas) - 2)
        inside = (sigma - self.sigmas[cell]) / self.sigmas.diff()[cell]
        return ((cell + inside) / (len(self.sigmas) - 1)).clamp(0, 1).to(alpha.dtype)


class Offset(Schedule):
    """α(t) = (1 − 2ε)·α̃(t) + ε for another schedule α̃, so that α stays between ε and 1 − ε (MD4, ε = 1e-4)."""

    def __init__(self, schedule: Schedule, eps: float = 1e-4):
        super().__init__()
        if not 0 <= eps < 0.5:
            raise ValueError(f"Offset needs 0 ≤ eps < 1/2, found {eps}")
        self.schedule, self.eps = schedule, eps

    def alpha(self, t: Tensor) -> Tensor:
        return (1 - 2 * self.eps) * self.schedule.alpha(t) + self.eps

    def noise(self, t: Tensor) -> Tensor:
        return (1 - 2 * self.eps) * self.schedule.noise(t) + self.eps

    def alpha_prime(self, t: Tensor) -> Tensor:
        return (1 - 2 * self.eps) * self.schedule.alpha_prime(t)

    def inverse(self, alpha: Tensor) -> Tensor:
        return self.schedule.inverse(((alpha - self.eps) / (1 - 2 * self.eps)).clamp(0, 1))


class PerToken(Schedule):
    """α_i(t) = 1 − t^{w_i} with a learned exponent w_i = softplus(θ_i) for each token i (GenMD4).

    Every result has a last axis of length `vocab`: `alpha(t)`: [...] → [..., K]. `inverse`: [..., K] → [..., K].
    """

    def __init__(self, vocab: int, w: float = 1.0):
        super().__init__()
        if vocab < 1:
            raise ValueError(f"PerToken needs a vocabulary of at least one token, found {vocab}")
        if not 0 < w < 100:
            raise ValueError(f"PerToken needs an exponent w > 0 and below 100, found {w}")
        self.vocab = vocab
        self.theta = nn.Parameter(torch.full((vocab,), math.log(math.expm1(w))))

    def exponents(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return w = softplus(θ): [K]."""
        return softplus(self.theta.to(dtype or self.theta.dtype))

    def alpha(self, t: Tensor) -> Tensor:
        return -torch.expm1(self.exponents(t.dtype) * torch.log(t)[..., None])

    def noise(self, t: Tensor) -> Tensor:
        return t[..., None] ** self.exponents(t.dtype)

    def alpha_prime(self, t: Tensor) -> Tensor:
        w = self.exponents(t.dtype)
        return -w * t[..., None] ** (w - 1)

    def hazard(self, t: Tensor) -> Tensor:
        return self.exponents(t.dtype) / t[..., None]

    def inverse(self, alpha: Tensor) -> Tensor:
        return ((1 - alpha).clamp(0, 1) ** (1 / self.exponents(alpha.dtype))).clamp(0, 1)
