"""Gaussian embedding diffusion: its bound, the simple loss, and its two samplers.

−log p(x_0) ≤ −½∫ SNR′(t) E‖z_0 − ẑ(z_t, t)‖² dt + E −log p(x_0|z_0) + KL(q(z_1|x_0) ‖ N(0, I)). The network outputs p(x_0|z_t)
at each position and ẑ = Σ p·E (Plaid, arXiv:2305.18619; DDPM, 2006.11239).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.categorical import draw, uniform
from unnoise.denoiser import Denoiser
from unnoise.objective import Objective, stratified
from unnoise.prediction import MeanPrediction
from unnoise.process.base import LATEST, gather
from unnoise.process.canvas import Canvas
from unnoise.process.gaussian import Gaussian
from unnoise.sampler.base import Asker, Frame, Stepped


def estimate(denoiser: Denoiser, process: Gaussian, z: Tensor, t: Tensor, guess: Tensor | None) -> MeanPrediction:
    """p(x_0 | z_t) from a denoiser, checked: [B, L, K]."""
    prediction = denoiser(process.observe(z, guess), t.to(torch.get_default_dtype()))
    if not isinstance(prediction, MeanPrediction) or prediction.log_probs.shape != (*z.shape[:2], process.vocab):
        raise ValueError(f"a Gaussian denoiser must return a MeanPrediction of shape {[*z.shape[:2], process.vocab]}")
    return prediction


class GaussianElbo(Objective):
    """The bound with its three terms, in nats per sequence: [B].

    network_free: reconstruct x_0 from z_0 by Bayes' rule with equal priors instead of asking the network once more; as valid,
    a little looser, and half the cost. simple: DDPM's ‖ε − ε̂‖² in place of the weighted term; not a bound.
    """

    def __init__(self, process: Gaussian, network_free: bool = False, simple: bool = False):
        super().__init__()
        if not isinstance(process, Gaussian):
            raise ValueError(f"GaussianElbo needs a Gaussian process, found {type(process).__name__}")
        self.process, self.network_free, self.simple = process, network_free, simple

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.process.check_tokens(x)
        t = stratified(len(x), x.device, generator)
        z = self.process.diffuse(self.process.table()[x], t, generator)
        guess = self._first_guess(denoiser, z, t, generator)
        start = torch.zeros_like(t)
        z_start = self.process.diffuse(self.process.table()[x], start, generator)
        return (
            self.diffusion(denoiser, x, z, t, guess)
            + self.reconstruction(denoiser, x, z_start, start)
            + self.process.noise_kl(x).sum(-1)
        )

    def _first_guess(self, denoiser: Denoiser, z: Tensor, t: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """For self-conditioning: half of the time the network's own estimate, without gradient; else none."""
        if not self.process.self_condition or float(uniform((), z.device, generator)) < 0.5:
            return None
        with torch.no_grad():
            return self._mean(estimate(denoiser, self.process, z, t, None))

    def _mean(self, prediction: MeanPrediction) -> Tensor:
        return prediction.log_probs.exp() @ self.process.table().to(prediction.log_probs.dtype)

    def diffusion(self, denoiser: Denoiser, x: Tensor, z: Tensor, t: Tensor, guess: Tensor | None = None) -> Tensor:
        """½ γ′ SNR(t) ‖z_0 − ẑ‖² summed over the text, or SNR ‖z_0 − ẑ‖² = ‖ε − ε̂‖² if simple: [B]."""
        error = self.process.table()[x] - self._mean(estimate(denoiser, self.process, z, t, guess))
        weight = torch.exp(-self.process.gamma(t)) * (1.0 if self.simple else 0.5 * self.process.slope())
        return weight.to(error.dtype) * error.square().sum((-1, -2))

    def reconstruction(self, denoiser: Denoiser, x: Tensor, z: Tensor, t: Tensor) -> Tensor:
        """Σ −log p(x_0 | z_t) at the first moment: [B]."""
        if self.network_free:
            log_p = torch.log_softmax(self.process.likelihood(z, t), -1)
        else:
            log_p = estimate(denoiser, self.process, z, t, None).log_probs
        return -gather(log_p, x).sum(-1)


@dataclass(frozen=True)
class GaussianSampler(Stepped):
    """Denoise z from N(0, I) to t = 0 along a uniform grid, then draw each token from p(x_0 | z_0).

    deterministic: DDIM, z_s = √ā_s ẑ + √(1−ā_s)·ε̂, no fresh noise; otherwise ancestral, z_s ~ q(z_s | z_t, z_0 = ẑ). Given
    positions hold the noised embedding of their token at every step: a heuristic, as for all but masked processes.
    """

    deterministic: bool = False

    def check(self, process: Canvas) -> None:
        if not isinstance(process, Gaussian):
            raise ValueError(f"{type(self).__name__} needs a Gaussian process, found {type(process).__name__}")

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        process = asker.canvas
        assert isinstance(process, Gaussian)
        known = process.table()[x.clamp_max(process.vocab - 1)]
        shape = (*x.shape, process.width)
        z = torch.randn(shape, generator=generator, device=x.device, dtype=known.dtype)
        times = torch.linspace(1, 0, self.steps + 1, dtype=known.dtype).clamp_max(LATEST).tolist()
        guess = None
        for t, s in zip(times, [*times[1:], None], strict=True):
            at = torch.full((len(x),), t, device=x.device, dtype=known.dtype)
            z = torch.where(free[..., None], z, process.diffuse(known, at, generator))
            prediction = estimate(asker.denoiser, process, z, at, guess).shaped(self.temperature, self.top_p)
            asker.evaluations += len(x)
            log_p = prediction.log_probs
            guess = log_p.exp() @ process.table().to(log_p.dtype)
            token = draw(log_p.double().exp(), generator) if s is None else log_p.argmax(-1)
            shown = torch.where(free, token, x)
            yield Frame(s or 0.0, shown, gather(log_p, shown).exp().float())
            if s is not None:
                z = self._step(process, z, guess.to(z.dtype), torch.full_like(at, s), at, generator)

    def _step(self, process: Gaussian, z: Tensor, z_0: Tensor, s: Tensor, t: Tensor, generator: torch.Generator) -> Tensor:
        if not self.deterministic:
            mean, variance = process.posterior(z, z_0, s, t)
            return mean + variance.sqrt() * torch.randn(z.shape, generator=generator, device=z.device, dtype=z.dtype)
        signal_s, noise_s, signal_t, noise_t = (
            value[:, None, None] for value in (process.signal(s), process.noise(s), process.signal(t), process.noise(t))
        )
        direction = (z - signal_t.sqrt() * z_0) / noise_t.sqrt()
        return signal_s.sqrt() * z_0 + noise_s.sqrt() * direction


@dataclass(frozen=True)
class Ddim(GaussianSampler):
    """The deterministic sampler (arXiv:2010.02502)."""

    deterministic: bool = True
