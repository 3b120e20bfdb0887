"""Flex-MDM: the bound of the insertion process and its sampler (arXiv:2509.01025).

With μ the distribution of each masked token and g ≥ 0 the expected gap between neighbours,

    −log p(x_0) ≤ ∫ E[ b′/(1−b) Σ_masks −log μ(x_0) + a′/(1−a) Σ_gaps φ(gap, g) ] du,  φ(n, g) = g − n − n log g.

With exact μ and g the bound equals −log p(x_0), since a path of insertions fixes the alignment.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from unnoise.categorical import draw
from unnoise.objective import Objective, stratified
from unnoise.prediction import MeanPrediction
from unnoise.process.base import LATEST, gather
from unnoise.process.insertion import PAD, Insertion, Partial


@dataclass(frozen=True)
class InsertionPrediction:
    """log_probs: [B, M, K] of each position's token (used at masks); gaps: [B, M+1], expected missing tokens g ≥ 0."""

    log_probs: Tensor
    gaps: Tensor


class InsertionDenoiser(Protocol):
    """x [B, M] padded with −1, t [B] → InsertionPrediction."""

    def __call__(self, x: Tensor, t: Tensor) -> InsertionPrediction: ...


def predict(denoiser: InsertionDenoiser, process: Insertion, x: Tensor, t: Tensor) -> InsertionPrediction:
    """Ask, and check the answer's shapes."""
    prediction = denoiser(x, t.clamp_max(LATEST).to(torch.get_default_dtype()))
    wanted = (*x.shape, process.vocab), (x.shape[0], x.shape[1] + 1)
    if not isinstance(prediction, InsertionPrediction):
        raise ValueError(f"an insertion denoiser must return an InsertionPrediction, found {type(prediction).__name__}")
    found = tuple(prediction.log_probs.shape), tuple(prediction.gaps.shape)
    if found != wanted:
        raise ValueError(
            f"an insertion denoiser must return shapes {wanted[0]} and {wanted[1]}, found {found[0]} and {found[1]}"
        )
    return prediction


def gap_cost(count: Tensor, expected: Tensor) -> Tensor:
    """φ(n, g) = g − n − n log g, with 0·log g = 0; it may be negative. Elementwise."""
    some = count > 0
    log_g = torch.where(some, expected, torch.ones_like(expected)).clamp_min(1e-30).log()
    return expected - count - torch.where(some, count * log_g, torch.zeros_like(expected))


class InsertionElbo(Objective):
    """The bound, one draw: texts [B, L] padded with −1 → nats [B]."""

    def __init__(self, process: Insertion):
        super().__init__()
        if not isinstance(process, Insertion):
            raise ValueError(f"InsertionElbo needs an Insertion process, found {type(process).__name__}")
        self.process = process

    def forward(self, denoiser: InsertionDenoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.process.check_tokens(x)
        t = stratified(len(x), x.device, generator).clamp(1e-9, LATEST)
        return self.at(denoiser, self.process.corrupt(x, t, generator), t)

    def at(self, denoiser: InsertionDenoiser, partial: Partial, t: Tensor) -> Tensor:
        """The integrand at one partial text: [B]."""
        prediction = predict(denoiser, self.process, partial.x, t)
        masked = partial.x == self.process.mask
        surprise = -gather(prediction.log_probs, partial.target.clamp_min(0))
        tokens = torch.where(masked, surprise, torch.zeros_like(surprise)).sum(-1)
        length = (partial.x != PAD).sum(1)
        real = torch.arange(partial.gaps.shape[1], device=t.device) <= length[:, None]
        cost = gap_cost(partial.gaps.to(prediction.gaps.dtype), prediction.gaps)
        gaps = torch.where(real, cost, torch.zeros_like(cost)).sum(-1)
        unmask, insert = self.process.unmasking.hazard(t), self.process.insertion.hazard(t)
        return unmask.to(tokens.dtype) * tokens + insert.to(gaps.dtype) * gaps


@dataclass(frozen=True)
class InsertionFrame:
    """One moment: the canvas x [B, M] padded with −1 at time t; origin: [B, M], the given position that stands there, or −1."""

    t: float
    x: Tensor
    origin: Tensor


@dataclass(frozen=True)
class InsertionSampler:
    """From u to v: Poisson(g_i·(a(v) − a(u))/(1 − a(u))) new masks in gap i, each mask unmasked with probability
    (b(v) − b(u))/(1 − b(u)); what was inserted last is unmasked by one more call. Keeps the model's law as steps grow.

    longest: texts stop growing there.
    """

    steps: int = 64
    longest: int = 256
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"steps must be a whole number ≥ 1, found {self.steps!r}")
        if self.longest < 1:
            raise ValueError(f"longest must be ≥ 1, found {self.longest}")

    def chain(
        self,
        process: Insertion,
        denoiser: InsertionDenoiser,
        batch: int,
        seed: int = 0,
        given: Tensor | None = None,
        open_gaps: Tensor | None = None,
    ) -> Iterator[InsertionFrame]:
        """Every canvas from the given tokens (none: empty) to the whole text.

        given: [n] tokens that never change and keep their order; open_gaps: [n+1] bool, where new tokens may come (all).
        """
        generator = torch.Generator(process.device).manual_seed(seed)
        tokens = torch.empty(0, dtype=torch.long) if given is None else given
        x = tokens.to(process.device).expand(batch, -1).clone()
        origin = torch.arange(len(tokens), device=process.device).expand(batch, -1).clone()
        closed = None if open_gaps is None else ~open_gaps.to(process.device)
        yield InsertionFrame(1.0, x, origin)
        times = torch.linspace(1, 0, self.steps + 1, dtype=torch.float64).tolist()
        for t, s in itertools.pairwise(times):
            with torch.no_grad():
                x, origin = self._step(process, denoiser, x, origin, s, t, closed, generator)
            if s > 0 or not bool((x == process.mask).any()):
                yield InsertionFrame(s, x, origin)
        if bool((x == process.mask).any()):
            with torch.no_grad():
                x = self._unmask(process, denoiser, x, torch.zeros(batch, dtype=torch.float64), 1.0, generator)
            yield InsertionFrame(0.0, x, origin)

    def _step(
        self,
        process: Insertion,
        denoiser: InsertionDenoiser,
        x: Tensor,
        origin: Tensor,
        s: float,
        t: float,
        closed: Tensor | None,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        at = torch.full((len(x),), t, dtype=torch.float64, device=x.device)
        prediction = predict(denoiser, process, x, at)
        then = torch.full_like(at, s)
        share = {
            name: float(1 - (schedule.noise(then) / schedule.noise(at))[0])
            for name, schedule in (("insert", process.insertion), ("unmask", process.unmasking))
        }
        x = self._reveal(process, prediction, x, share["unmask"], generator)
        length = (x != PAD).sum(1)
        mean = prediction.gaps.double() * share["insert"]
        real = torch.arange(mean.shape[1], device=x.device) <= length[:, None]
        if closed is not None:
            real &= self._open(origin, closed)
        count = torch.poisson(torch.where(real, mean, torch.zeros_like(mean)), generator=generator).long()
        room = (self.longest - length)[:, None]  # no text grows beyond the longest
        count = torch.minimum(count, (room - (count.cumsum(1) - count)).clamp_min(0))
        return insert(x, origin, count, process.mask)

    def _open(self, origin: Tensor, closed: Tensor) -> Tensor:
        """Whether each gap may grow: it lies after the given tokens seen so far, whose gap must be open: [B, M+1] bool."""
        passed = torch.nn.functional.pad((origin >= 0).long().cumsum(1), (1, 0))
        return ~closed[passed]

    def _reveal(
        self, process: Insertion, prediction: InsertionPrediction, x: Tensor, share: float, generator: torch.Generator
    ) -> Tensor:
        chance = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float64)
        moving = (x == process.mask) & (chance < share)
        if not moving.any():
            return x
        shaped = MeanPrediction(prediction.log_probs[moving]).shaped(self.temperature, self.top_p)
        return x.masked_scatter(moving, draw(shaped.log_probs.double().exp(), generator))

    def _unmask(
        self, process: Insertion, denoiser: InsertionDenoiser, x: Tensor, t: Tensor, share: float, generator: torch.Generator
    ) -> Tensor:
        return self._reveal(process, predict(denoiser, process, x, t.to(x.device)), x, share, generator)


def insert(x: Tensor, origin: Tensor, count: Tensor, mask: int) -> tuple[Tensor, Tensor]:
    """Put count[b, i] masks before position i of each row (the last: after them all): x, origin [B, M], count [B, M+1].

    Returns the longer canvases, padded with −1, and where the given tokens stand in them.
    """
    batch, width = x.shape
    length = (x != PAD).sum(1)
    total = length + count.sum(1)
    longest = int(total.max())
    moved = torch.arange(width, device=x.device) + count.cumsum(1)[:, :width]  # where each old position goes
    target = torch.where(x != PAD, moved, longest)
    canvas = torch.full((batch, longest + 1), mask, device=x.device).scatter(1, target, x)[:, :longest]
    stands = torch.full((batch, longest + 1), -1, device=x.device).scatter(1, target, origin)[:, :longest]
    beyond = torch.arange(longest, device=x.device) >= total[:, None]
    return canvas.masked_fill(beyond, PAD), stands.masked_fill(beyond, -1)
