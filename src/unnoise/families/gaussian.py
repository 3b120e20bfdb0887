"""Gaussian embedding diffusion: noise on learned embeddings, its bound, a cross-entropy and the sampler.

z_t = √ā z_0 + √(1−ā) ε with z_0 = E[x_0]; SNR = ā/(1−ā) = e^{−γ(t)} with γ increasing from γ_0 to γ_1, linear or learned. The
rows of E are normalized to length √D, so that each coordinate of z_0 has unit size.

−log p(x_0) ≤ −½∫ SNR′(t) E‖z_0 − ẑ(z_t, t)‖² dt + E −log p(x_0|z_0) + KL(q(z_1|x_0) ‖ N(0, I)). The network outputs p(x_0|z_t)
at each position and ẑ = Σ p·E (Plaid, arXiv:2305.18619; DDPM, 2006.11239).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.objective.objective_base import Objective
from unnoise.objective.times import stratified
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.process_base import gather
from unnoise.process.state import LATEST, ProcessBase
from unnoise.rng import Generator, draw, normal, uniform
from unnoise.sampler.sampler_base import Frame, SteppedSampler


class GaussianNoise(ProcessBase, ABC):
    """Gaussian noise on the vectors v_k of tokens: q(z_t | x_0) = N(√ā(t)·v_{x_0}, (1 − ā(t))·I), v_k ∈ R^D with D = `width`.

    A subclass defines the vectors (`table`) and the signal ā (`signal`, `noise`). Times t: [B] float64; states z: [B, L, D].
    Coefficients are computed in float64 and cast to the dtype of the state.
    """

    holds_tokens = False
    width: int

    @abstractmethod
    def table(self) -> Tensor:
        """Return the vector of each token: [K, D]."""

    @abstractmethod
    def signal(self, t: Tensor) -> Tensor:
        """Return ā(t): [B] → [B]."""

    @abstractmethod
    def noise(self, t: Tensor) -> Tensor:
        """Return 1 − ā(t) to full relative precision: [B] → [B]."""

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
        """Return log q(z_t | x_0 = k) for every token, up to a constant; z_t is state[..., :D]: [B, L, ·], [B] → [B, L, K]."""
        z, table = state[..., : self.width], self.table().to(state.dtype)
        signal, noise = self.signal(t.double()), self.noise(t.double())
        return rows(signal.sqrt() / noise, z) * (z @ table.T) - rows(0.5 * signal / noise, z) * table.square().sum(-1)

    def noise_kl(self, x: Tensor) -> Tensor:
        """Return KL(q(z_1|x_0) ‖ N(0, I)) = ½ Σ_d [ ā v² − ā − log(1−ā) ] at t = 1: [B, L]."""
        one = torch.ones(1, device=x.device, dtype=torch.float64)
        signal, noise = self.signal(one), self.noise(one)
        return 0.5 * (signal * self.table()[x].double().square() - signal - noise.log()).sum(-1)


def rows(values: Tensor, like: Tensor) -> Tensor:
    """Reshape one number per sequence to multiply states: [B] → [B, 1, 1] in the dtype of `like`."""
    return values[:, None, None].to(like.dtype)


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
        """Return g(t) and g′(t): [B] → [B], [B]."""
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
        """Make the next gradient minimize E L², as 2 L·∇L of each row over a fixed scale; E L does not depend on g: [B]."""
        self.row_weight = 2 * nats.detach().double() / scale

    def _by_variance(self, gradient: Tensor) -> Tensor:
        same = self.row_weight is not None and self.row_weight.shape == gradient.shape
        return gradient * self.row_weight.to(gradient) if same and self.row_weight is not None else gradient


class Gaussian(GaussianNoise):
    """Noise on token embeddings of width D. Times t: [B]; states z: [B, L, D].

    learned: learn the ends of γ(t) by minimizing the bound, and its shape, on which the bound does not depend, by minimizing
        the variance of the bound.
    self_condition: add the previous estimate of z_0 to the network's input, which then has 2·D numbers (arXiv:2208.04202).
    """

    def __init__(
        self,
        vocab: int,
        width: int = 16,
        gamma: tuple[float, float] = (-4.0, 6.0),
        learned: bool = False,
        self_condition: bool = False,
    ):
        super().__init__(vocab)
        if width < 1:
            raise ValueError(f"Gaussian needs embeddings of at least one number, found width = {width}")
        if not gamma[0] < gamma[1]:
            raise ValueError(f"Gaussian needs gamma to rise from noise-free to noise, found {gamma}")
        self.width, self.self_condition = width, self_condition
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(vocab, width, generator=generator))
        ends = torch.tensor([gamma[0], torch.tensor(gamma[1] - gamma[0]).expm1().log().item()])
        self.ends = nn.Parameter(ends, requires_grad=learned)
        self.shape = NoiseShape() if learned else None

    @property
    def inputs(self) -> int:
        return 2 * self.width if self.self_condition else self.width

    def table(self) -> Tensor:
        return nn.functional.normalize(self.embedding, dim=-1) * self.width**0.5

    def gamma_and_slope(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return γ(t) = γ_0 + (γ_1 − γ_0)·g(t) = −log SNR and γ′(t) > 0; g(t) = t unless learned: [B] → [B], [B]."""
        rise = nn.functional.softplus(self.ends[1]).to(t.dtype)
        g, slope = (t, torch.ones_like(t)) if self.shape is None else self.shape(t)
        return self.ends[0].to(t.dtype) + rise * g, rise * slope

    def signal(self, t: Tensor) -> Tensor:
        return torch.sigmoid(-self.gamma_and_slope(t)[0])

    def noise(self, t: Tensor) -> Tensor:
        return torch.sigmoid(self.gamma_and_slope(t)[0])

    def observe(self, z: Tensor, guess: Tensor | None) -> Tensor:
        """Return the network's input: z, and the previous estimate of z_0 with self-conditioning: [B, L, inputs]."""
        if not self.self_condition:
            return z
        return torch.cat([z, torch.zeros_like(z) if guess is None else guess], -1)


def estimate(denoiser: Denoiser, process: Gaussian, z: Tensor, t: Tensor, guess: Tensor | None) -> MeanPrediction:
    """Return the denoiser's p(x_0 | z_t) after checking it: [B, L, K]."""
    prediction = denoiser(process.observe(z, guess), t.to(torch.get_default_dtype()))
    if not isinstance(prediction, MeanPrediction) or prediction.log_probs.shape != (*z.shape[:2], process.vocab):
        raise ValueError(f"a Gaussian denoiser must return a MeanPrediction of shape {[*z.shape[:2], process.vocab]}")
    return prediction


class GaussianElbo(Objective):
    """The bound with its three terms, in nats per sequence: [B].

    network_free: reconstruct x_0 from z_0 by Bayes' rule with equal priors instead of another network call; still a bound,
        slightly looser at half the cost.
    simple: use DDPM's ‖ε − ε̂‖² instead of the weighted term; not a bound.
    """

    def __init__(self, process: Gaussian, network_free: bool = False, simple: bool = False):
        super().__init__()
        if not isinstance(process, Gaussian):
            raise ValueError(f"GaussianElbo needs a Gaussian process, found {type(process).__name__}")
        self.process, self.network_free, self.simple = process, network_free, simple

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        return self.drawn(denoiser, x, stratified(len(x), x.device, generator), generator)

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        z_0, t = self.process.table()[x], v
        z = self.process.diffuse(z_0, t, generator)
        guess = self.first_guess(denoiser, z, t, generator)
        start = torch.zeros_like(t)
        z_start = self.process.diffuse(z_0, start, generator)
        start_guess = None if self.network_free else self.first_guess(denoiser, z_start, start, generator)
        diffusion = self.diffusion(denoiser, x, z, t, guess)
        if self.process.shape is not None:
            self.process.shape.minimise_variance(diffusion, x.shape[1] * math.log(self.process.vocab))
        reconstruction = self.reconstruction(denoiser, x, z_start, start, start_guess)
        return diffusion + reconstruction + self.process.noise_kl(x).sum(-1).to(diffusion.dtype)

    def first_guess(self, denoiser: Denoiser, z: Tensor, t: Tensor, generator: Generator) -> Tensor | None:
        """Return the estimate f(z, ∅) for self-conditioning, without gradient, or None if it is not used.

        Half of the training batches do not use it. In evaluation the model is f(z, f(z, ∅)), two calls, which is a function of
        z alone, so the bound holds.
        """
        if not self.process.self_condition:
            return None
        if torch.is_grad_enabled() and float(uniform((), z.device, generator)) < 0.5:
            return None
        with torch.no_grad():
            return self._mean(estimate(denoiser, self.process, z, t, None))

    def _mean(self, prediction: MeanPrediction) -> Tensor:
        return prediction.log_probs.exp() @ self.process.table().to(prediction.log_probs.dtype)

    def diffusion(self, denoiser: Denoiser, x: Tensor, z: Tensor, t: Tensor, guess: Tensor | None = None) -> Tensor:
        """Compute ½ γ′ SNR(t) ‖z_0 − ẑ‖² summed over positions, or SNR ‖z_0 − ẑ‖² = ‖ε − ε̂‖² if simple: [B]."""
        error = self.process.table()[x] - self._mean(estimate(denoiser, self.process, z, t, guess))
        gamma, slope = self.process.gamma_and_slope(t)
        weight = torch.exp(-gamma) * (1.0 if self.simple else 0.5 * slope)
        return weight.to(error.dtype) * error.square().sum((-1, -2))

    def reconstruction(self, denoiser: Denoiser, x: Tensor, z: Tensor, t: Tensor, guess: Tensor | None = None) -> Tensor:
        """Compute Σ −log p(x_0 | z_t) at t = 0: [B]."""
        if self.network_free:
            return -gather(torch.log_softmax(self.process.log_likelihood(z, t), -1), x).sum(-1)
        return -gather(estimate(denoiser, self.process, z, t, guess).log_probs, x).sum(-1)


class GaussianCrossEntropy(GaussianElbo):
    """Σ_positions −log p(x_0 | z_t) at a uniform t: [B]. Not a bound, but it trains faster, with equal weight at every t."""

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        z = self.process.diffuse(self.process.table()[x], v, generator)
        guess = self.first_guess(denoiser, z, v, generator)
        return -gather(estimate(denoiser, self.process, z, v, guess).log_probs, x).sum(-1)


@dataclass(frozen=True)
class GaussianSampler(SteppedSampler):
    """Denoise z from N(0, I) to t = 0 on a uniform grid, then sample each token from p(x_0 | z_0) in the last call.

    Given positions hold the noised embedding of their token at every step, which is a heuristic.

    deterministic: DDIM (arXiv:2010.02502), z_s = √ā_s ẑ + √(1−ā_s)·ε̂, without new noise; otherwise ancestral,
        z_s ~ q(z_s | z_t, z_0 = ẑ).
    """

    deterministic: bool = False

    requires: ClassVar[str] = "a Gaussian process"
    starts_at_any_time: ClassVar[bool] = True

    @property
    def keeps_distribution(self) -> bool:
        return True

    def serves(self, process: ProcessBase, prediction: type[Prediction] = MeanPrediction) -> bool:
        return isinstance(process, Gaussian)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.state_space
        assert isinstance(process, Gaussian)
        z = normal((*x.shape, process.width), x.device, generator, process.embedding.dtype)
        yield from self._walk(denoiser, process, z, x, free, generator=generator, latest=1.0)

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        """state: z [B, L, D]."""
        process = denoiser.state_space
        assert isinstance(process, Gaussian)
        x = process.nearest(state)
        free = torch.ones_like(x, dtype=torch.bool)
        yield from self._walk(denoiser, process, state, x, free, generator=generator, latest=t)

    def _walk(
        self,
        denoiser: SamplingDenoiser,
        process: Gaussian,
        z: Tensor,
        x: Tensor,
        free: Tensor,
        *,
        generator: Generator,
        latest: float,
    ) -> Iterator[Frame]:
        """Yield the states from z at time `latest` to clean data; x is given where not free."""
        known = process.table()[x.clamp_max(process.vocab - 1)]
        times = torch.linspace(latest, 0, self.steps, dtype=known.dtype).clamp_max(LATEST).tolist()
        guess = None
        for t, s in zip(times, [*times[1:], None], strict=True):
            at = torch.full((len(x),), t, device=x.device, dtype=known.dtype)
            z = torch.where(free[..., None], z, process.diffuse(known, at, generator))
            prediction = estimate(denoiser.denoiser, process, z, at, guess).shaped(self.temperature, self.top_p)
            denoiser.nfe += len(x)
            log_p = prediction.log_probs
            guess = log_p.exp() @ process.table().to(log_p.dtype)
            token = draw(log_p.double().exp(), generator) if s is None else log_p.argmax(-1)
            shown = torch.where(free, token, x)
            yield Frame(s or 0.0, shown, gather(log_p, shown).exp().float())
            if s is not None:
                earlier = torch.full_like(at, s)
                if self.deterministic:
                    z = self._ddim(process, z, guess.to(z.dtype), earlier, at)
                else:
                    mean, variance = process.posterior(z, guess.to(z.dtype), earlier, at)
                    z = mean + variance.sqrt() * normal(z.shape, z.device, generator, z.dtype)

    def _ddim(self, process: Gaussian, z: Tensor, z_0: Tensor, s: Tensor, t: Tensor) -> Tensor:
        signal_s, noise_s, signal_t, noise_t = (
            value[:, None, None] for value in (process.signal(s), process.noise(s), process.signal(t), process.noise(t))
        )
        direction = (z - signal_t.sqrt() * z_0) / noise_t.sqrt()
        return signal_s.sqrt() * z_0 + noise_s.sqrt() * direction
