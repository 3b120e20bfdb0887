"""Gaussian noise on the vectors of tokens: q(z_t | x_0) = N(√ā(t)·v_{x_0}, (1 − ā(t))·I).

A subclass says which vector v_k a token has (`table`) and how the signal ā falls (`signal`, `noise`). Everything here follows
from these: the step from s to t, the posterior, the likelihood of each token, and the divergence from N(0, I) at t = 1.
Coefficients are computed in float64 and cast to the dtype of the state.

The learned shape of Gaussian noise: how γ(t) rises between its two ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, normal


class NoiseShape(nn.Module):
    """A learned rising function g with g(0) = 0 and g(1) = 1, and its slope (Plaid, after VDM, arXiv:2107.00630).

    g = (f(t) − f(0))/(f(1) − f(0)), f(t) = t + Σ_k a_k·sigmoid(b_k t + c_k), a_k, b_k > 0.
    """

    def __init__(self, hidden: int = 32):
        super().__init__()
        self.height = nn.Parameter(torch.full((hidden,), -4.0))
        self.steepness = nn.Parameter(torch.linspace(1.0, 3.0, hidden))
        self.place = nn.Parameter(torch.linspace(1.0, -4.0, hidden))
        self.row_weight: Tensor | None = None

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """g(t) and g′(t): [B] → [B], [B]."""
        height, steepness = (nn.functional.softplus(value).to(t.dtype) for value in (self.height, self.steepness))
        ends = torch.tensor([0.0, 1.0], dtype=t.dtype, device=t.device)
        step = torch.sigmoid(steepness * torch.cat([t, ends])[:, None] + self.place.to(t.dtype))
        f = torch.cat([t, ends]) + step @ height
        slope = 1 + (step * (1 - step)) @ (height * steepness)
        found = (f[:-2] - f[-2]) / (f[-1] - f[-2]), slope[:-2] / (f[-1] - f[-2])
        for values in found:
            if values.requires_grad:
                values.register_hook(self._by_variance)
        return found

    def minimise_variance(self, nats: Tensor, scale: float) -> None:
        """Make the next gradient minimise E L², as 2 L·∇L of each row over a fixed scale; E L does not depend on g: [B]."""
        self.row_weight = 2 * nats.detach().double() / scale

    def _by_variance(self, gradient: Tensor) -> Tensor:
        same = self.row_weight is not None and self.row_weight.shape == gradient.shape
        return gradient * self.row_weight.to(gradient) if same and self.row_weight is not None else gradient


class GaussianNoise(ProcessBase, ABC):
    """Noise on `width` D numbers a token. Times t: [B] float64; states z: [B, L, D]."""

    holds_tokens = False
    width: int

    @abstractmethod
    def table(self) -> Tensor:
        """Return the vector of each token: [K, D]."""

    @abstractmethod
    def signal(self, t: Tensor) -> Tensor:
        """ā(t): [B] → [B]."""

    @abstractmethod
    def noise(self, t: Tensor) -> Tensor:
        """1 − ā(t), with its digits where ā is near 1: [B] → [B]."""

    def curves(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {"ā, the signal left": self.signal}

    def diffuse(self, z_0: Tensor, t: Tensor, generator: Generator = None) -> Tensor:
        """Sample z_t ~ N(√ā z_0, (1−ā) I): [B, L, D], [B] → [B, L, D]."""
        noise = normal(z_0.shape, z_0.device, generator, z_0.dtype)
        return rows(self.signal(t).sqrt(), z_0) * z_0 + rows(self.noise(t).sqrt(), z_0) * noise

    def noised(self, z_s: Tensor, s: Tensor | None, t: Tensor, generator: Generator = None) -> Tensor:
        """Sample z_t ~ N(√a z_s, (1−a) I), a = ā_t/ā_s, from clean vectors if s is None: [B, L, D], [B] → [B, L, D]."""
        if s is None:
            return self.diffuse(z_s, t, generator)
        kept, lost = self.step(s, t)
        noise = normal(z_s.shape, z_s.device, generator, z_s.dtype)
        return rows(kept.sqrt(), z_s) * z_s + rows(lost.sqrt(), z_s) * noise

    def step(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return a = ā_t/ā_s, and 1 − a without cancellation: [B], [B] → [B], [B]."""
        return self.signal(t) / self.signal(s), (self.noise(t) - self.noise(s)) / self.signal(s)

    def nearest(self, z: Tensor) -> Tensor:
        """Return the token whose vector is nearest: [B, L, D] → [B, L] long."""
        table = self.table().to(z.dtype)
        return (z @ table.T - 0.5 * table.square().sum(-1)).argmax(-1)

    def posterior(self, z: Tensor, z_0: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean [B, L, D] and the variance [B, 1, 1] of q(z_s | z_t, z_0), s < t.

        Mean [√ā_s(1−a) z_0 + √a(1−ā_s) z_t]/(1−ā_t), variance (1−a)(1−ā_s)/(1−ā_t), a = ā_t/ā_s.
        """
        of_data, of_state, variance = self.posterior_coefficients(s, t)
        return rows(of_data, z) * z_0 + rows(of_state, z) * z, rows(variance, z)

    def posterior_coefficients(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of z_0 and of z_t in the posterior's mean, and its variance: [B] each."""
        kept, lost = self.step(s, t)
        of_data = self.signal(s).sqrt() * lost / self.noise(t)
        return of_data, kept.sqrt() * self.noise(s) / self.noise(t), lost * self.noise(s) / self.noise(t)

    def log_likelihood(self, state: Tensor, t: Tensor) -> Tensor:
        """Return log q(z_t | x_0 = k) for every token, up to a constant: [B, L, ·], [B] → [B, L, K].

        Of the numbers of a state the first D are z_t.
        """
        z, table = state[..., : self.width], self.table().to(state.dtype)
        signal, noise = self.signal(t.double()), self.noise(t.double())
        return rows(signal.sqrt() / noise, z) * (z @ table.T) - rows(0.5 * signal / noise, z) * table.square().sum(-1)

    def noise_kl(self, x: Tensor) -> Tensor:
        """Return KL(q(z_1|x_0) ‖ N(0, I)) = ½ Σ_d [ ā v² − ā − log(1−ā) ] at t = 1: [B, L]."""
        one = torch.ones(1, device=x.device, dtype=torch.float64)
        signal, noise = self.signal(one), self.noise(one)
        return 0.5 * (signal * self.table()[x].double().square() - signal - noise.log()).sum(-1)


def rows(values: Tensor, like: Tensor) -> Tensor:
    """Return numbers of sequences for states: [B] → [B, 1, 1] in the dtype of `like`."""
    return values[:, None, None].to(like.dtype)
