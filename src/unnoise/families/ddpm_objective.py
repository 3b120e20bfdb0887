"""DDPM's predictions, its bound and simple loss, and its ancestral sampler (arXiv:2006.11239).

−log p(x_0) ≤ L_T + Σ_{t=2}^T L_{t−1} + L_0 with L_T = KL(q(x_T | x_0) ‖ N(0, I)), L_{t−1} = E KL(q(x_{t−1} | x_t, x_0) ‖
p(x_{t−1} | x_t)) and L_0 = E −log p(x_0 | x_1).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.families.ddpm import Ddpm
from unnoise.families.gaussian import rows
from unnoise.network.parameterization import Parameterization
from unnoise.objective.objective_base import Objective
from unnoise.objective.times import stratified
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.process_base import gather
from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, draw, normal, uniform
from unnoise.sampler.sampler_base import Frame, SteppedSampler


@dataclass(frozen=True)
class DdpmPrediction(Prediction):
    """ε̂, x̂_0 or μ_θ(x_t, t), whichever is the target of the process: value [B, L, D]."""

    value: Tensor


def predicted(denoiser: Denoiser, process: Ddpm, z: Tensor, step: Tensor) -> Tensor:
    """Return the denoiser's answer at x_t = z, checked: [B, L, D], [B] long → [B, L, D] float64."""
    prediction = denoiser(z, process.time_of(step).to(torch.get_default_dtype()))
    if not isinstance(prediction, DdpmPrediction) or prediction.value.shape != z.shape:
        raise ValueError(f"a denoiser of ddpm must return a DdpmPrediction of shape {list(z.shape)}")
    return prediction.value.to(z.dtype)


class DdpmParameterization(Parameterization):
    """The network's output f as a prediction: ε̂ = f, x̂_0 = f, or μ_θ = x_t + √β_t·f.

    μ̃_t is close to x_t, so for that target the network predicts the difference, in units of the noise of the step. With
    guidance scale w the output is f(∅) + w·(f(label) − f(∅)) (arXiv:2207.12598).
    """

    prediction: ClassVar[type[Prediction]] = DdpmPrediction
    takes_guidance: ClassVar[bool] = True
    process: Ddpm

    def __init__(self, network: nn.Module, process: ProcessBase, length: int, labels: int = 0):
        if not isinstance(process, Ddpm):
            raise ValueError(f"DdpmParameterization needs a Ddpm process, found {type(process).__name__}")
        super().__init__(network, process, length, labels)

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        assert isinstance(process, Ddpm)
        return super().network_config(process, length, time_free) | {"outputs": process.width}

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> DdpmPrediction:
        found = self.vectors(x_t, t)
        if self.guidance_scale != 1 and self.label is not None:
            unconditional = self.condition(None).vectors(x_t, t)
            found = unconditional + self.guidance_scale * (found - unconditional)
        if self.process.target == "mean":
            beta = self.process.betas[self.process.step_of(t) - 1]
            found = x_t + rows(beta.sqrt(), x_t) * found
        return DdpmPrediction(found)

    def vectors(self, z: Tensor, t: Tensor) -> Tensor:
        """Return the network's output f: [B, L, D], [B] → [B, L, D]."""
        return self.output(self.process.observe(z), t, None).to(z.dtype)


EVEN = 0.1  # uniform share of the density of steps, so that no weight exceeds 10(T − 1)


class DdpmElbo(Objective):
    """The bound L_T + ΣL_{t−1} + L_0 in nats per sequence: [B]. L_T is exact; of the sum one step is drawn.

    clip: clip x̂_0 of pixel values to [−1, 1], as the sampler does. Training needs the gradient of every step and does not clip.
    share: share of the batches in which L_0 is computed and weighted back; 1 in evaluation.
    """

    def __init__(self, process: Ddpm, clip: bool = True, share: float = 1.0):
        super().__init__()
        if not isinstance(process, Ddpm):
            raise ValueError(f"DdpmElbo needs a Ddpm process, found {type(process).__name__}")
        self.process, self.clip, self.share = process, clip, share

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        process = self.process
        process.check_tokens(x)
        z_0 = process.table()[x]
        nats = process.noise_kl(x).sum(-1)
        if process.steps > 1:
            step, weight = self.steps_at(stratified(len(x), x.device, generator))
            z = process.diffuse(z_0, process.time_of(step), generator)
            nats = nats + weight * self.kl(denoiser, z_0, z, step)
        first = torch.ones(len(x), dtype=torch.long, device=x.device)
        if self.share == 1 or float(uniform((), x.device, generator)) < self.share:
            z = process.diffuse(z_0, process.time_of(first), generator)
            nats = nats + self.reconstruction(denoiser, x, z) / self.share
        return nats

    def density(self) -> Tensor:
        """Return the probability of each step t = 2…T: [T − 1].

        A tenth of it is uniform. The rest is proportional to L_{t−1} of the best linear denoiser of data with unit variance,
        ½(SNR_{t−1} − SNR_t)(1 − ᾱ_t), which is large for small t.
        """
        noise = self.process.one_minus_alpha_bar
        snr = self.process.alpha_bar[1:] / noise[1:]
        cost = (snr[:-1] - snr[1:]) * noise[2:]
        return (1 - EVEN) * cost / cost.sum() + EVEN / len(cost)

    def steps_at(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the steps t ≥ 2 of uniform numbers v, by inverting their distribution, and 1/probability: [B] → [B], [B]."""
        p = self.density()
        place = torch.searchsorted(p.cumsum(0), v, right=True).clamp_max(len(p) - 1)
        return place + 2, 1 / p[place]

    def kl(self, denoiser: Denoiser, z_0: Tensor, z: Tensor, step: Tensor) -> Tensor:
        """Return L_{t−1} at x_t = z: z_0, z [B, L, D], step [B] → [B]."""
        clean = self.process.clean(predicted(denoiser, self.process, z, step), z, step, self.clip)
        return self.process.step_kl(z_0, clean, step)

    def reconstruction(self, denoiser: Denoiser, x: Tensor, z: Tensor) -> Tensor:
        """Return −log p(x_0 | x_1) at x_1 = z: x [B, L], z [B, L, D] → [B]."""
        first = torch.ones(len(x), dtype=torch.long, device=x.device)
        clean = self.process.clean(predicted(denoiser, self.process, z, first), z, first, self.clip)
        return -self.process.decoded_token(clean, x).sum(-1)


class DdpmSimple(Objective):
    """‖target − prediction‖² at a step t uniform on 1…T, summed over the sequence: [B]. Not a bound (L_simple, Algorithm 1)."""

    def __init__(self, process: Ddpm):
        super().__init__()
        if not isinstance(process, Ddpm):
            raise ValueError(f"DdpmSimple needs a Ddpm process, found {type(process).__name__}")
        if process.embed == "learned":
            raise ValueError(
                "the simple loss is least when all embeddings are the same: learn them with loss=elbo, or use embed=fixed"
            )
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        process = self.process
        process.check_tokens(x)
        z_0, v = process.table()[x], stratified(len(x), x.device, generator)
        step = (v * process.steps).long().clamp_max(process.steps - 1) + 1
        z = process.diffuse(z_0, process.time_of(step), generator)
        return (process.wanted(z_0, z, step) - predicted(denoiser, process, z, step)).square().sum((-1, -2))


@dataclass(frozen=True)
class DdpmSampler(SteppedSampler):
    """x_{t−1} = μ_θ(x_t, t) + σ_t·noise from x_T ~ N(0, I), and finally a token from p(x_0 | x_1).

    With fewer calls than T the sampler visits evenly spaced steps, including 1 and T. Temperature and top-p apply only to the
    last draw; temperature 0 takes its most probable token, as in Algorithm 2. Given positions hold the noised value of their
    token at every step, which is a heuristic.

    variance: σ_t², beta (β_t), posterior (β̃_t), or model, the variance of the process.
    """

    variance: Literal["model", "beta", "posterior"] = "model"

    requires: ClassVar[str] = "a Ddpm process"
    starts_at_any_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("model", "beta", "posterior")
        if self.variance not in known:
            raise ValueError(f"variance must be {' or '.join(known)}, found {self.variance!r}")

    @property
    def keeps_distribution(self) -> bool:
        return True

    def serves(self, process: ProcessBase, prediction: type[Prediction] = DdpmPrediction) -> bool:
        return isinstance(process, Ddpm)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.state_space
        assert isinstance(process, Ddpm)
        z = normal((*x.shape, process.width), x.device, generator, torch.float64)
        yield from self._walk(denoiser, process, z, x, free, generator=generator, begin=process.steps)

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        """state: x_t [B, L, D]."""
        process = denoiser.state_space
        assert isinstance(process, Ddpm)
        x, begin = process.nearest(state), max(1, round(t * process.steps))
        free = torch.ones_like(x, dtype=torch.bool)
        yield from self._walk(denoiser, process, state, x, free, generator=generator, begin=begin)

    def _walk(
        self,
        denoiser: SamplingDenoiser,
        process: Ddpm,
        z: Tensor,
        x: Tensor,
        free: Tensor,
        *,
        generator: Generator,
        begin: int,
    ) -> Iterator[Frame]:
        """Yield the states from z at the step `begin` to clean data; x is given at positions that are not free."""
        known = process.table()[x.clamp_max(process.vocab - 1)]
        visited = torch.linspace(begin, 1, min(self.steps, begin), dtype=torch.float64).round().long().tolist()
        for i, earlier in zip(visited, [*visited[1:], 0], strict=True):
            step = torch.full((len(x),), i, device=x.device)
            s, t = process.time_of(torch.full_like(step, earlier)), process.time_of(step)
            z = torch.where(free[..., None], z, process.diffuse(known, t, generator))
            clean = process.clean(predicted(denoiser.denoiser, process, z, step), z, step)
            denoiser.nfe += len(x)
            if earlier == 0:
                log_p = MeanPrediction(process.decoded(clean)).shaped(self.temperature, self.top_p).log_probs
                shown = torch.where(free, draw(log_p.exp(), generator), x)
            else:
                shown = torch.where(free, process.nearest(clean), x)
                log_p = torch.log_softmax(process.log_likelihood(z, t), -1) if denoiser.track_confidence else None
            confidence = torch.zeros_like(shown, dtype=torch.float32) if log_p is None else gather(log_p, shown).exp().float()
            yield Frame(earlier / process.steps, shown, confidence)
            if earlier > 0:
                variance = None if self.variance == "model" else self.variance
                sigma = process.reverse_variance(s, t, variance).sqrt()[:, None, None]
                z = process.posterior(z, clean, s, t)[0] + sigma * normal(z.shape, z.device, generator, z.dtype)
