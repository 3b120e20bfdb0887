"""Flex-MDM: the bound of the insertion process and its sampler (arXiv:2509.01025).

With μ the distribution of each masked token and g ≥ 0 the expected gap between neighbours,

    −log p(x_0) ≤ ∫ E[ b′/(1−b) Σ_masks −log μ(x_0) + a′/(1−a) Σ_gaps φ(gap, g) ] du,  φ(n, g) = g − n − n log g.

With exact μ and g the bound equals −log p(x_0), since a path of insertions fixes the alignment.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from unnoise.categorical import draw
from unnoise.data.texts import PAD
from unnoise.objective import Objective, drawn_times
from unnoise.prediction import MeanPrediction
from unnoise.process.base import LATEST, gather
from unnoise.process.canvas import Canvas
from unnoise.process.insertion import OPEN, Insertion, Partial
from unnoise.sampler.base import Asker, Frame, Stepped
from unnoise.sampler.confidence import surest


@dataclass(frozen=True)
class InsertionPrediction:
    """log_probs: [B, M, K], or [n, K] at the masks alone; gaps: [B, M+1], how many tokens are expected before each position
    and after the last, g ≥ 0."""

    log_probs: Tensor
    gaps: Tensor


class InsertionDenoiser(Protocol):
    """x [B, M] padded with −1, t [B], where [B, M] bool (the masks) → InsertionPrediction."""

    def __call__(self, x: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction: ...


def predict(denoiser: InsertionDenoiser, process: Insertion, x: Tensor, t: Tensor) -> InsertionPrediction:
    """Ask about the n masks and the gaps, and check the answer: log_probs [n, K], gaps [B, M+1]."""
    masked = x == process.mask
    prediction = denoiser(x, t.clamp_max(LATEST).to(torch.get_default_dtype()), masked)
    if not isinstance(prediction, InsertionPrediction):
        raise ValueError(f"an insertion denoiser must return an InsertionPrediction, found {type(prediction).__name__}")
    log_probs, gaps = prediction.log_probs, prediction.gaps
    if log_probs.shape == (*x.shape, process.vocab):
        log_probs = log_probs[masked]
    wanted = (int(masked.sum()), process.vocab), (x.shape[0], x.shape[1] + 1)
    found = tuple(log_probs.shape), tuple(gaps.shape)
    if found != wanted:
        raise ValueError(
            f"an insertion denoiser must return shapes {wanted[0]} and {wanted[1]}, found {found[0]} and {found[1]}"
        )
    return InsertionPrediction(log_probs, gaps)


def gap_cost(count: Tensor, expected: Tensor) -> Tensor:
    """φ(n, g) = g − n − n log g, with 0·log g = 0; it may be negative. Elementwise."""
    some = count > 0
    log_g = torch.where(some, expected, torch.ones_like(expected)).clamp_min(1e-30).log()
    return expected - count - torch.where(some, count * log_g, torch.zeros_like(expected))


class InsertionElbo(Objective):
    """The bound, one draw: texts [B, L] padded with −1 → nats [B].

    t = v², v uniform, weighted by its Jacobian: with uniform t the weight 1/t of a mask has no finite variance.
    """

    def __init__(self, process: Insertion):
        super().__init__()
        if not isinstance(process, Insertion):
            raise ValueError(f"InsertionElbo needs an Insertion process, found {type(process).__name__}")
        self.process = process

    def forward(self, denoiser: InsertionDenoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.process.check_tokens(x)
        t, weight = drawn_times(len(x), x.device, generator, power=2.0)
        nats = self.at(denoiser, self.process.corrupt(x, t, generator), t)
        return weight.to(nats.dtype) * nats

    def at(self, denoiser: InsertionDenoiser, partial: Partial, t: Tensor) -> Tensor:
        """The integrand at one partial text: [B]."""
        prediction = predict(denoiser, self.process, partial.x, t)
        masked = partial.x == self.process.mask
        surprise = -gather(prediction.log_probs, partial.target[masked])
        rows = masked.nonzero()[:, 0]
        tokens = surprise.new_zeros(len(t)).index_add(0, rows, surprise)
        length = (partial.x != PAD).sum(1)
        real = torch.arange(partial.gaps.shape[1], device=t.device) <= length[:, None]
        cost = gap_cost(partial.gaps.to(prediction.gaps.dtype), prediction.gaps)
        gaps = torch.where(real, cost, torch.zeros_like(cost)).sum(-1)
        unmask, insert = self.process.unmasking.hazard(t), self.process.insertion.hazard(t)
        return unmask.to(tokens.dtype) * tokens + insert.to(gaps.dtype) * gaps


@dataclass(frozen=True)
class InsertionSampler(Stepped):
    """From u to v: Poisson(g_i·(a(v) − a(u))/(1 − a(u))) new masks in gap i, each mask unmasked with probability
    (b(v) − b(u))/(1 − b(u)); what was inserted last is unmasked by one more call. Keeps the model's law as steps grow.

    order: which masks these are: "random", or "confidence", as many of those of which the network is surest (that does not
    keep the law).
    """

    order: Literal["random", "confidence"] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("random", "confidence"):
            raise ValueError(f'order must be "random" or "confidence", found {self.order!r}')

    def check(self, process: Canvas) -> None:
        if not isinstance(process, Insertion):
            raise ValueError(f"{type(self).__name__} needs an Insertion process, found {type(process).__name__}")

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        process = asker.canvas
        assert isinstance(process, Insertion)
        doors = Doors(x)
        canvas = doors.canvas(x)
        times = torch.linspace(1, 0, self.steps + 1, dtype=torch.float64).tolist()
        for t, s in itertools.pairwise(times):
            at = torch.full((len(x),), t, dtype=torch.float64, device=x.device)
            prediction = self._ask(asker, process, canvas, at)
            stay = {  # (1 − a(v))/(1 − a(u)), and the same for b
                schedule: float((schedule.noise(at - (t - s)) / schedule.noise(at))[0])
                for schedule in (process.insertion, process.unmasking)
            }
            canvas = self._reveal(process, prediction, canvas, 1 - stay[process.unmasking], generator)
            canvas = self._grow(process, prediction, canvas, 1 - stay[process.insertion], doors, asker.length, generator)
            if s > 0 or not bool((canvas.x == process.mask).any()):
                yield canvas._replace(t=s)
        if bool((canvas.x == process.mask).any()):
            last = torch.zeros(len(x), dtype=torch.float64, device=x.device)
            yield self._reveal(process, self._ask(asker, process, canvas, last), canvas, 1.0, generator)

    def _ask(self, asker: Asker, process: Insertion, canvas: Frame, t: Tensor) -> InsertionPrediction:
        asker.evaluations += len(t)
        return predict(asker.denoiser, process, canvas.x, t)  # pyright: ignore[reportArgumentType]

    def _reveal(
        self, process: Insertion, prediction: InsertionPrediction, canvas: Frame, share: float, generator: torch.Generator
    ) -> Frame:
        """Unmask each mask with probability `share`."""
        x = canvas.x
        masked = x == process.mask
        chance = torch.rand(x.shape, generator=generator, device=x.device, dtype=torch.float64)
        moving = masked & (chance < share)
        probs = MeanPrediction(prediction.log_probs).shaped(self.temperature, self.top_p).log_probs.double().exp()
        sure = torch.zeros(x.shape, device=x.device, dtype=torch.float64).masked_scatter(masked, probs.amax(-1))
        if self.order == "confidence":  # as many, but the surest
            moving = surest(sure[masked], masked, moving.sum(1))
        token = draw(probs[moving[masked]], generator)
        chosen = gather(probs[moving[masked]], token)
        confidence = torch.where(masked, sure, canvas.confidence.double()).masked_scatter(moving, chosen)
        return Frame(0.0, x.masked_scatter(moving, token), confidence.to(canvas.confidence.dtype), canvas.place, moving)

    def _grow(
        self,
        process: Insertion,
        prediction: InsertionPrediction,
        canvas: Frame,
        share: float,
        doors: "Doors",
        longest: int,
        generator: torch.Generator,
    ) -> Frame:
        """Put new masks into the open gaps, as many as there is room for."""
        x, place, fresh = canvas.x, canvas.place, canvas.fresh
        assert place is not None and fresh is not None
        where, is_open = doors.at(place)
        mean = prediction.gaps.double() * share * is_open
        count = torch.poisson(mean, generator=generator).long()
        room = longest - (x != PAD).sum(1, keepdim=True)
        count = torch.minimum(count, (room - (count.cumsum(1) - count)).clamp_min(0))
        x, place, confidence, fresh = grow(
            count,
            x != PAD,
            (x, torch.full_like(where, process.mask), PAD),
            (place, where, doors.size),
            (canvas.confidence, torch.zeros_like(mean, dtype=canvas.confidence.dtype), 0.0),
            (fresh, torch.ones_like(is_open), False),
        )
        return Frame(0.0, x, confidence, place, fresh)


@dataclass(frozen=True)
class ConfidentInsertion(InsertionSampler):
    """The same number of masks at a time, the surest first."""

    order: Literal["random", "confidence"] = "confidence"
    keeps_law: ClassVar[bool] = False
    law: ClassVar[str] = "does not keep the model's law: the surest tokens come first"


class Doors:
    """Where a template lets new tokens in: its marks −2, [B, n]."""

    def __init__(self, template: Tensor):
        self.size = template.shape[1]
        number = torch.arange(self.size + 1, device=template.device)
        marked = torch.nn.functional.pad(template == OPEN, (0, 1))
        none = self.size + 1
        self.following = torch.where(marked, number, none).flip(1).cummin(1).values.flip(1)  # the next mark from here on

    def canvas(self, template: Tensor) -> Frame:
        """The template without its marks, padded, with the place of each position."""
        there = template != OPEN
        order = torch.argsort((~there).long(), dim=1, stable=True)
        longest = int(there.sum(1).max())
        beyond = (torch.arange(self.size, device=template.device) >= there.sum(1, keepdim=True))[:, :longest]
        x = template.gather(1, order)[:, :longest].masked_fill(beyond, PAD)
        place = order[:, :longest].masked_fill(beyond, self.size)
        return Frame(1.0, x, torch.zeros(x.shape, device=x.device), place, torch.zeros_like(beyond))

    def at(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The mark of each gap between neighbours that stand at `place` [B, M], and whether there is one: [B, M+1] each."""
        left = torch.nn.functional.pad(place, (1, 0), value=0)
        right = torch.nn.functional.pad(place, (0, 1), value=self.size)
        mark = self.following.gather(1, left)
        return mark, mark <= right


def grow(count: Tensor, there: Tensor, *layers: tuple[Tensor, Tensor, float]) -> list[Tensor]:
    """Put count[b, i] new entries before position i of each row (the last: after them all); there: [B, M], what is kept.

    Each layer is (old [B, M], new [B, M+1], padding); it comes back [B, M′], with `new` of the gap at each new entry.
    """
    ends = _interleave(count, there.long()).cumsum(1)
    total = ends[:, -1:]
    at = torch.arange(int(total.max()), device=count.device).expand(len(count), -1).contiguous()
    slot = torch.searchsorted(ends, at, right=True).clamp_max(ends.shape[1] - 1)
    return [_interleave(new, old).gather(1, slot).masked_fill(at >= total, padding) for old, new, padding in layers]


def _interleave(gaps: Tensor, positions: Tensor) -> Tensor:
    """gap, position, gap, …, gap: [B, M+1], [B, M] → [B, 2M+1]."""
    return torch.cat([torch.stack([gaps[:, :-1], positions], -1).flatten(1), gaps[:, -1:]], 1)
