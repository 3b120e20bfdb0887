"""Confidence order: reveal first what the network is surest of."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unnoise.categorical import draw
from unnoise.process.base import Process
from unnoise.process.canvas import Canvas
from unnoise.process.masked import Masked
from unnoise.sampler.base import Asker, Frame, Stepped

Certainty = Literal["max", "margin", "entropy"]


def certainty(log_p: Tensor, by: Certainty) -> Tensor:
    """How sure a distribution is: its largest probability, its lead over the second, or minus its entropy: [n, K] → [n]."""
    match by:
        case "max":
            return log_p.amax(-1)
        case "margin":
            best = log_p.exp().topk(min(2, log_p.shape[-1]), -1).values
            return best[:, 0] - best[:, -1]
        case "entropy":
            return -entropy(log_p)


def entropy(log_p: Tensor) -> Tensor:
    """−Σ p log p in nats, 0·log 0 = 0: [n, K] → [n]."""
    p = log_p.exp()
    return -torch.where(p > 0, p * log_p, torch.zeros_like(p)).sum(-1)


def surest(sure: Tensor, where: Tensor, count: Tensor) -> Tensor:
    """The count[b] surest of the positions `where` in each row: sure [n], where [B, L], count [B] → [B, L] bool."""
    spread = torch.full(where.shape, -torch.inf, dtype=sure.dtype, device=sure.device).masked_scatter(where, sure)
    rank = torch.argsort(torch.argsort(spread, dim=1, descending=True, stable=True), dim=1)
    return where & (rank < count[:, None])


def need_masks(name: str, process: Canvas) -> None:
    """Raise ValueError unless the process is Masked with one schedule."""
    if not isinstance(process, Masked) or process.per_token:
        raise ValueError(f"{name} needs a Masked process with one schedule for all tokens")


def reveal(
    asker: Asker, x: Tensor, log_p: Tensor, masks: Tensor, moving: Tensor, confidence: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw the tokens at `moving` from log_p [n, K], given at `masks`: the new canvas, and the confidences: [B, L] each."""
    x = x.masked_scatter(moving, draw(log_p[moving[masks]].double().exp(), generator))
    return x, asker.confidence(x, confidence)


def told(process: Process, asker: Asker, x: Tensor, t: Tensor, masks: Tensor) -> Tensor:
    """log p(x_0 | x_t) at the n masks: [n, K]."""
    return asker(x, t, masks).clean(process, x[masks], t[:, None].expand(x.shape)[masks])


@dataclass(frozen=True)
class Confidence(Stepped):
    """Masked processes: at each step as many reveals as the schedule expects, at the positions of which the network is surest.

    by: "max", the probability of the favourite (MaskGIT, arXiv:2202.04200); "margin", its lead over the second
    (arXiv:2502.06768); "entropy". Does not keep the model's law: easy tokens come first, so texts are less varied.
    """

    by: Certainty = "max"
    keeps_law: ClassVar[bool] = False
    law: ClassVar[str] = "does not keep the model's law: the surest tokens come first"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("max", "margin", "entropy"):
            raise ValueError(f'by must be "max", "margin" or "entropy", found {self.by!r}')

    @property
    def needs_mean(self) -> bool:
        return True

    def check(self, process: Canvas) -> None:
        need_masks("Confidence", process)

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        process = asker.process
        confidence = torch.zeros(x.shape, device=x.device)
        total = (process.active(x) & free).sum(1)
        times = torch.linspace(1, 0, self.steps + 1, dtype=torch.float64, device=x.device)
        for t, s in itertools.pairwise(times):
            masks = process.active(x) & free
            keep = (total * process.schedule.noise(s)).floor() if s > 0 else torch.zeros_like(total)
            count = masks.sum(1) - keep
            if (count > 0).any():
                log_p = told(process, asker, x, t.expand(len(x)), masks)
                moving = surest(certainty(log_p, self.by), masks, count)
                x, confidence = reveal(asker, x, log_p, masks, moving, confidence, generator)
            yield Frame(float(s), x, confidence)


@dataclass(frozen=True)
class Margin(Confidence):
    """Confidence order by the lead of the favourite over the second."""

    by: Certainty = "margin"


@dataclass(frozen=True)
class LeastEntropy(Confidence):
    """Confidence order by entropy, the least first."""

    by: Certainty = "entropy"
