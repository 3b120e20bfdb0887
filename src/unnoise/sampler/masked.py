"""Common parts of the samplers of masked processes: base classes, confidence measures and unmasking."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.masked import Masked
from unnoise.process.state import StateSpace
from unnoise.rng import Generator, draw
from unnoise.sampler.base import Sampler

Certainty = Literal["max", "margin", "entropy"]


@dataclass(frozen=True, kw_only=True)
class MaskedSampler(Sampler):
    """A sampler that unmasks by p(x_0 | x_t), for means and Masked processes with one schedule for all tokens."""

    requires: ClassVar[str] = "a Masked process with one schedule for all tokens"
    mean_only: ClassVar[bool] = True

    def serves(self, process: StateSpace, prediction: type[Prediction] = MeanPrediction) -> bool:
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
