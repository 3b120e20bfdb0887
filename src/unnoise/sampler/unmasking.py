"""Common parts of the samplers of masked processes: base classes, confidence measures and unmasking.

Remasking: sampled tokens can be masked and sampled again.

First-hitting sampling: jump from one unmasking to the next, without a time grid.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.masked import Masked
from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, draw, uniform
from unnoise.sampler.sampler_base import Frame, GridSampler, Sampler

Certainty = Literal["max", "margin", "entropy"]


@dataclass(frozen=True, kw_only=True)
class MaskedSampler(Sampler):
    """A sampler that unmasks by p(x_0 | x_t), for means and Masked processes with one schedule for all tokens."""

    requires: ClassVar[str] = "a Masked process with one schedule for all tokens"
    mean_only: ClassVar[bool] = True

    def serves(self, process: ProcessBase, prediction: type[Prediction] = MeanPrediction) -> bool:
        return isinstance(process, Masked) and not process.per_token and issubclass(prediction, MeanPrediction)


@dataclass(frozen=True, kw_only=True)
class SurestFirst(MaskedSampler):
    """A sampler that unmasks confident positions first, which changes the model's distribution."""

    @property
    def keeps_distribution(self) -> bool:
        return False

    @property
    def distribution(self) -> str:
        return "does not keep the model's distribution: the surest tokens come first"


def certainty(log_p: Tensor, by: Certainty) -> Tensor:
    """Return the confidence of a distribution: max probability, lead over the second, or negative entropy: [n, K] → [n]."""
    match by:
        case "max":
            return log_p.amax(-1)
        case "margin":
            best = log_p.exp().topk(min(2, log_p.shape[-1]), -1).values
            return best[:, 0] - best[:, -1]
        case "entropy":
            return -entropy(log_p)


def entropy(log_p: Tensor) -> Tensor:
    """Compute −Σ p log p in nats: [n, K] → [n]."""
    p = log_p.exp()
    return -torch.where(p > 0, p * log_p, torch.zeros_like(p)).sum(-1)


def surest(sure: Tensor, where: Tensor, count: Tensor) -> Tensor:
    """Select the count[b] most confident positions `where` of each row: sure [n], where [B, L], count [B] → [B, L] bool."""
    spread = torch.full(where.shape, -torch.inf, dtype=sure.dtype, device=sure.device).masked_scatter(where, sure)
    rank = torch.argsort(torch.argsort(spread, dim=1, descending=True, stable=True), dim=1)
    return where & (rank < count[:, None])


def reveal(
    denoiser: SamplingDenoiser,
    x: Tensor,
    log_p: Tensor,
    masks: Tensor,
    moving: Tensor,
    confidence: Tensor,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Sample tokens at `moving` from log_p [n, K], defined at `masks`, and return state and confidences: [B, L] each."""
    x = x.masked_scatter(moving, draw(log_p[moving[masks]].double().exp(), generator, moving))
    return x, denoiser.confidence(x, confidence)


@dataclass(frozen=True)
class Remasking(MaskedSampler, GridSampler):
    """A step from t to s masks sampled tokens with probability σ = min(rate, (1 − α_s)/α_t) and unmasks masks with probability
    (α_s − (1 − σ)α_t)/(1 − α_t), which keeps the expected share of masks (ReMDM, arXiv:2503.00307). Given tokens stay.

    Keeps the distribution of an exact model as steps grow if the rate decreases with them. A fixed rate corrects mistakes of
    unmasking several tokens at once.

    rate: largest probability of masking a sampled token in one step.
    """

    rate: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate must lie in [0, 1], found {self.rate}")

    @property
    def keeps_distribution(self) -> bool:
        return False

    @property
    def distribution(self) -> str:
        return "keeps the model's distribution as steps grow and the rate shrinks with them"

    def chances(self, process: Masked, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities of masking a sampled token and of unmasking a mask from t to s: [B] each."""
        alpha_s, alpha_t = process.schedule.alpha(s), process.schedule.alpha(t)
        remask = ((1 - alpha_s) / alpha_t.clamp_min(1e-12)).clamp_max(self.rate)
        return remask, (alpha_s - (1 - remask) * alpha_t) / (1 - alpha_t)

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        process = denoiser.process
        assert isinstance(process, Masked)
        masks = process.active(x) & free
        written = free & ~masks
        chance = uniform(x.shape, x.device, generator)
        if s is None:
            moving, leaving = masks, torch.zeros_like(masks)
        else:
            remask, show = (share[:, None] for share in self.chances(process, s, t))
            moving, leaving = masks & (chance < show), written & (chance < remask)
        after = x.masked_fill(leaving, process.mask)
        if not moving.any():
            return after
        log_p = denoiser.clean(x, t, moving)  # of the state as it was
        return after.masked_scatter(moving, draw(log_p.double().exp(), generator, moving))


@dataclass(frozen=True)
class FirstHitting(MaskedSampler):
    """Masked processes with one schedule, for which the time of unmasking is independent of the token.

    With n masks at α_t the next unmasking is at α = 1 − (1 − α_t)·U^{1/n}, at a uniformly chosen position (arXiv:2409.02908).
    Samples follow the model's continuous-time distribution exactly, with one evaluation per position.
    """

    starts_at_any_time: ClassVar[bool] = True

    @property
    def keeps_distribution(self) -> bool:
        return True

    @property
    def distribution(self) -> str:
        return "keeps the model's distribution exactly"

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        yield from self._reveal_all(denoiser, x, free, generator, 1.0)

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        level = float(denoiser.process.schedule.noise(torch.tensor(t, dtype=torch.float64)))
        yield from self._reveal_all(denoiser, state, torch.ones_like(state, dtype=torch.bool), generator, level)

    def _reveal_all(
        self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator, level: float
    ) -> Iterator[Frame]:
        """Unmask one position after another, starting from the noise 1 − α = `level`."""
        process = denoiser.process
        noise = torch.full((len(x),), level, dtype=torch.float64, device=x.device)
        confidence = torch.zeros(x.shape, device=x.device)
        while True:
            masks = process.active(x) & free
            left = masks.sum(1)
            if not left.any():
                break
            noise = noise * uniform((len(x),), x.device, generator) ** (1 / left.clamp_min(1))
            t = process.schedule.inverse(1 - noise)
            position = draw(torch.where(left[:, None] > 0, masks, torch.ones_like(masks)).double(), generator)
            where = masks & torch.zeros_like(masks).scatter(1, position[:, None], True)
            log_p = denoiser.clean(x, t, where)
            x = x.masked_scatter(where, draw(log_p.double().exp(), generator, where))
            confidence = denoiser.confidence(x, confidence)
            if int(left.max()) > 1:
                yield Frame(float(t[left > 0].max()), x, confidence)
        yield Frame(0.0, x, confidence)
