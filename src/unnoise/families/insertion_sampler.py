"""Sampling of Flex-MDM (arXiv:2509.01025): masks are inserted into the gaps, and masks are unmasked."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.families.insertion import Insertion, InsertionPrediction, predict_insertion
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.process_base import gather
from unnoise.process.state import OPEN_GAP, PAD, ProcessBase
from unnoise.rng import Generator, draw, poisson, uniform
from unnoise.sampler.sampler_base import Frame, SteppedSampler
from unnoise.sampler.unmasking import surest


@dataclass(frozen=True)
class InsertionSampler(SteppedSampler):
    """From u to v: Poisson(g_i·(a(v) − a(u))/(1 − a(u))) new masks in gap i, each mask unmasked with probability
    (b(v) − b(u))/(1 − b(u)). The last call unmasks the masks inserted before it, so at least two calls are needed. Keeps the
    model's distribution as steps grow.

    order: choice of the masks to unmask: "random", or "confidence", equally many with the highest confidence, which does not
        keep the model's distribution.
    """

    order: Literal["random", "confidence"] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 2:
            raise ValueError("inserting tokens and unmasking them takes at least two network calls: steps must be ≥ 2, found 1")
        if self.order not in ("random", "confidence"):
            raise ValueError(f'order must be "random" or "confidence", found {self.order!r}')

    requires: ClassVar[str] = "an Insertion process"

    @property
    def keeps_distribution(self) -> bool:
        return self.order == "random"

    @property
    def distribution(self) -> str:
        if self.order == "random":
            return super().distribution
        return "does not keep the model's distribution: the surest tokens come first"

    def serves(self, process: ProcessBase, prediction: type[Prediction] = InsertionPrediction) -> bool:
        return isinstance(process, Insertion)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.state_space
        assert isinstance(process, Insertion)
        gaps = OpenGaps(x)
        frame = gaps.first_frame(x)
        times = torch.linspace(1, 0, self.steps, dtype=torch.float64).tolist()
        for t, s in itertools.pairwise(times):
            at = torch.full((len(x),), t, dtype=torch.float64, device=x.device)
            prediction = self._predict(denoiser, process, frame, at)
            stay = {  # (1 − a(v))/(1 − a(u)), and the same for b
                schedule: float((schedule.noise(at - (t - s)) / schedule.noise(at))[0])
                for schedule in (process.insertion, process.unmasking)
            }
            frame = self._reveal(process, prediction, frame, 1 - stay[process.unmasking], generator)
            frame = self._grow(
                process, prediction, frame, 1 - stay[process.insertion], gaps, longest=denoiser.length, generator=generator
            )
            if s > 0 or not bool((frame.x == process.mask).any()):
                yield frame._replace(t=s)
        if bool((frame.x == process.mask).any()):
            last = torch.zeros(len(x), dtype=torch.float64, device=x.device)
            done = self._reveal(process, self._predict(denoiser, process, frame, last), frame, 1.0, generator)
            assert done.fresh is not None and frame.fresh is not None
            yield done._replace(fresh=done.fresh | frame.fresh)  # the state before was not yielded

    def _predict(self, denoiser: SamplingDenoiser, process: Insertion, frame: Frame, t: Tensor) -> InsertionPrediction:
        denoiser.nfe += len(t)
        return predict_insertion(denoiser.denoiser, process, frame.x, t)

    def _reveal(
        self, process: Insertion, prediction: InsertionPrediction, frame: Frame, share: float, generator: Generator
    ) -> Frame:
        """Unmask each mask with probability `share`."""
        x = frame.x
        masked = x == process.mask
        chance = uniform(x.shape, x.device, generator)
        moving = masked & (chance < share)
        probs = MeanPrediction(prediction.log_probs).shaped(self.temperature, self.top_p).log_probs.double().exp()
        sure = torch.zeros(x.shape, device=x.device, dtype=torch.float64).masked_scatter(masked, probs.amax(-1))
        if self.order == "confidence":  # equally many, with the highest confidence
            moving = surest(sure[masked], masked, moving.sum(1))
        token = draw(probs[moving[masked]], generator, moving)
        chosen = gather(probs[moving[masked]], token)
        confidence = torch.where(masked, sure, frame.confidence.double()).masked_scatter(moving, chosen)
        return Frame(0.0, x.masked_scatter(moving, token), confidence.to(frame.confidence.dtype), frame.place, moving)

    def _grow(
        self,
        process: Insertion,
        prediction: InsertionPrediction,
        frame: Frame,
        share: float,
        gaps: "OpenGaps",
        *,
        longest: int,
        generator: Generator,
    ) -> Frame:
        """Insert new masks into the open gaps, up to the maximum length."""
        x, place, fresh = frame.x, frame.place, frame.fresh
        assert place is not None and fresh is not None
        where, is_open = gaps.at(place)
        mean = prediction.gaps.double() * share * is_open
        count = poisson(mean, generator)
        room = longest - (x != PAD).sum(1, keepdim=True)
        count = torch.minimum(count, (room - (count.cumsum(1) - count)).clamp_min(0))
        layers = (
            (x, torch.full_like(where, process.mask), PAD),
            (place, where, gaps.size),
            (frame.confidence, torch.zeros_like(mean, dtype=frame.confidence.dtype), 0.0),
            (fresh, torch.ones_like(is_open), False),
        )
        x, place, confidence, fresh = grow(count, x != PAD, *layers)
        return Frame(0.0, x, confidence, place, fresh)


class OpenGaps:
    """The gaps of a template [B, n] in which tokens may be inserted, marked by −2."""

    def __init__(self, template: Tensor):
        self.size = template.shape[1]
        number = torch.arange(self.size + 1, device=template.device)
        marked = torch.nn.functional.pad(template == OPEN_GAP, (0, 1))
        none = self.size + 1
        self.following = torch.where(marked, number, none).flip(1).cummin(1).values.flip(1)  # the next mark from here on

    def first_frame(self, template: Tensor) -> Frame:
        """Return the template without its marks, padded, with the place of each position."""
        there = template != OPEN_GAP
        order = torch.argsort((~there).long(), dim=1, stable=True)
        longest = int(there.sum(1).max())
        beyond = (torch.arange(self.size, device=template.device) >= there.sum(1, keepdim=True))[:, :longest]
        x = template.gather(1, order)[:, :longest].masked_fill(beyond, PAD)
        place = order[:, :longest].masked_fill(beyond, self.size)
        return Frame(1.0, x, torch.zeros(x.shape, device=x.device), place, torch.zeros_like(beyond))

    def at(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mark of each gap between neighbours at `place` [B, M], and whether the gap is open: [B, M+1] each."""
        left = torch.nn.functional.pad(place, (1, 0), value=0)
        right = torch.nn.functional.pad(place, (0, 1), value=self.size)
        mark = self.following.gather(1, left)
        return mark, mark <= right


def grow(count: Tensor, there: Tensor, *layers: tuple[Tensor, Tensor, float]) -> list[Tensor]:
    """Insert count[b, i] new entries before position i of each row, and the last count after all positions.

    there: [B, M] bool, existing positions. Each layer is (old [B, M], new [B, M+1], padding) and becomes [B, M′], in which a
    new entry has the value `new` of its gap.
    """
    ends = _interleave(count, there.long()).cumsum(1)
    total = ends[:, -1:]
    at = torch.arange(int(total.max()), device=count.device).expand(len(count), -1).contiguous()
    slot = torch.searchsorted(ends, at, right=True).clamp_max(ends.shape[1] - 1)
    return [_interleave(new, old).gather(1, slot).masked_fill(at >= total, padding) for old, new, padding in layers]


def _interleave(gaps: Tensor, positions: Tensor) -> Tensor:
    """Interleave gap, position, gap, …, gap: [B, M+1], [B, M] → [B, 2M+1]."""
    return torch.cat([torch.stack([gaps[:, :-1], positions], -1).flatten(1), gaps[:, -1:]], 1)
