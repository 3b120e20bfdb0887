"""A sampler turns pure noise into data and yields every canvas on the way, so that watching is free."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, ask
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.base import Process
from unnoise.process.canvas import Canvas

COLDEST = 1e-3  # of temperatures other than 0; the hottest is its inverse
MOST_STEPS = 1_000_000


class Frame(NamedTuple):
    """One moment of generation: the canvas x: [B, L] at time t (1 is noise, 0 is data).

    confidence: [B, L], the probability that the network gave to the token that stands there when it was last asked about
    that position (to its favourite, while the position is still masked); 0 where it was never asked.

    Where texts grow, canvases are padded with −1, and two more things are told: place [B, L], which entry of `given` each
    position belongs to (elsewhere that is its own number), and fresh [B, L] bool, what this step has put in or changed.
    """

    t: float
    x: Tensor
    confidence: Tensor
    place: Tensor | None = None
    fresh: Tensor | None = None


@dataclass
class Asker:
    """Asks a denoiser while a canvas is being filled, only at positions that matter.

    With `time_free` the denoiser ignores t, so a row that has not changed since it was last asked at the same positions is
    not asked again, nor is one where nothing moves; the answers are the same, so is the law of the samples. Otherwise the
    whole batch is asked. `evaluations` counts rows asked.
    """

    canvas: Canvas
    denoiser: Denoiser
    length: int  # of the longest text
    time_free: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    needs_mean: str | None = None  # the name of the sampler, if it can use a mean only

    def __post_init__(self) -> None:
        self.evaluations = 0
        self.last: tuple[Tensor, Tensor, Tensor, Prediction] | None = None  # x, t, where and the answer
        self._known: dict[int, tuple[Tensor, Tensor, Prediction]] = {}

    @property
    def process(self) -> Process:
        """The canvas as a process over tokens, which samplers of jumps need."""
        if not isinstance(self.canvas, Process):
            raise ValueError(f"this sampler needs a process over tokens, found {type(self.canvas).__name__}")
        return self.canvas

    def __call__(self, x: Tensor, t: Tensor, where: Tensor) -> Prediction:
        """The prediction at the n positions `where`, shaped by temperature and top-p: [n, ·]."""
        answer = self._answer(x, t, where)
        self.last = x, t, where, answer
        return answer

    def confidence(self, x: Tensor, before: Tensor) -> Tensor:
        """`before`, brought up to date with the last answer about the canvas that became x: [B, L]."""
        if self.last is None:
            return before
        asked, t, where, answer = self.last
        self.last = None
        log_p = answer.clean(self.process, asked[where], t[:, None].expand(x.shape)[where])
        token = x[where]
        chosen = log_p.gather(-1, token.clamp_max(self.process.vocab - 1)[:, None])[:, 0]
        log_c = torch.where(token < self.process.vocab, chosen, log_p.amax(-1))
        return before.masked_scatter(where, log_c.exp().to(before.dtype))

    def _answer(self, x: Tensor, t: Tensor, where: Tensor) -> Prediction:
        if not self.time_free:
            return self._ask(x, t, where)
        rows = where.any(1).nonzero()[:, 0].tolist()
        changed = [row for row in rows if not self._is_known(row, x[row], where[row])]
        if changed:
            prediction = self._ask(x[changed], t[changed], where[changed])
            parts = prediction.values.split(where[changed].sum(1).tolist())
            for row, values in zip(changed, parts, strict=True):
                self._known[row] = (x[row], where[row], prediction.replace(values))
        kept = [self._known[row][2] for row in rows]
        return kept[0].replace(torch.cat([prediction.values for prediction in kept]))

    def _is_known(self, row: int, x: Tensor, where: Tensor) -> bool:
        known = self._known.get(row)
        return known is not None and torch.equal(known[0], x) and torch.equal(known[1], where)

    def _ask(self, x: Tensor, t: Tensor, where: Tensor) -> Prediction:
        self.evaluations += len(x)
        prediction = ask(self.denoiser, self.process, x, t, where)
        if isinstance(prediction, MeanPrediction):
            return prediction.shaped(self.temperature, self.top_p)
        if self.needs_mean is not None:
            raise ValueError(
                f"{self.needs_mean} needs a denoiser that returns a MeanPrediction, found {type(prediction).__name__}; "
                "use TweedieLeaping or EulerLeaping with a score"
            )
        if self.temperature != 1 or self.top_p != 1:
            raise ValueError("temperature and top_p shape a mean; with a ScorePrediction leave both at 1")
        return prediction


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """Temperature and top-p act on the mean μ; both at 1 leave the model's law alone.

    keeps_law: whether what is drawn by its name follows the model's law with enough steps; law: the same in words.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    keeps_law: ClassVar[bool] = True
    law: ClassVar[str] = "keeps the model's law as steps grow"

    def __post_init__(self) -> None:
        if self.temperature != 0 and not COLDEST <= self.temperature <= 1 / COLDEST:
            raise ValueError(f"temperature must be 0, or lie between {COLDEST} and {1 / COLDEST:g}, found {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], found {self.top_p}")

    @abstractmethod
    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        """Every canvas after the first, the last one at t = 0 without masks: x, free [B, L]; only free positions move."""

    @classmethod
    def make(cls, steps: int, temperature: float = 1.0, top_p: float = 1.0) -> "Sampler":
        """This sampler from what a person sets; a sampler without a grid of times ignores `steps`."""
        return cls(temperature=temperature, top_p=top_p)

    @property
    def needs_mean(self) -> bool:
        """Whether this sampler can use a mean only."""
        return False

    def check(self, process: Canvas) -> None:
        """Raise ValueError if this sampler cannot serve the process; most serve all processes over tokens."""
        if not isinstance(process, Process):
            raise ValueError(f"{type(self).__name__} needs a process over tokens, found {type(process).__name__}")


@dataclass(frozen=True)
class Stepped(Sampler):
    """A sampler with a number of steps to set."""

    steps: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps must be a whole number ≥ 1 (and ≤ {MOST_STEPS:,}), found {self.steps!r}")

    @classmethod
    def make(cls, steps: int, temperature: float = 1.0, top_p: float = 1.0) -> "Sampler":
        return cls(steps, temperature=temperature, top_p=top_p)


@dataclass(frozen=True)
class GridSampler(Stepped):
    """A sampler that walks a grid of times t_0 > t_1 > … > t_{N−1} and then to clean data, one network call each.

    grid: "uniform", t = 1 − i/N; or "cosine", t = cos(π/2·i/N), which goes slowly at first (MD4).
    """

    grid: Literal["uniform", "cosine"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid not in ("uniform", "cosine"):
            raise ValueError(f'grid must be "uniform" or "cosine", found {self.grid!r}')

    def times(self, latest: float = 1.0) -> list[float]:
        """t_0 … t_{N−1}, scaled to begin at `latest`."""
        u = torch.arange(self.steps, dtype=torch.float64) / self.steps
        t = 1 - u if self.grid == "uniform" else torch.cos(torch.pi / 2 * u)
        return (latest * t).tolist()

    def begin(self, process: Process) -> float:
        """The first time at which the denoiser is asked."""
        return 1.0

    @abstractmethod
    def step(self, asker: Asker, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
        """From the canvas at t to the canvas at s, or to clean data where s is None: [B, L], s, t [B]."""

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        times = self.times(self.begin(asker.process))
        ones = torch.ones(len(x), dtype=torch.float64, device=x.device)
        confidence = torch.zeros(x.shape, device=x.device)
        for t, s in zip(times, [*times[1:], None], strict=True):
            x = self.step(asker, x, None if s is None else s * ones, t * ones, free, generator)
            confidence = asker.confidence(x, confidence)
            yield Frame(s or 0.0, x, confidence)


def chain(
    process: Canvas,
    denoiser: Denoiser,
    *,
    batch: int,
    length: int,
    sampler: Sampler,
    given: Tensor | None = None,
    seed: int = 0,
    time_free: bool = False,
) -> Iterator[Frame]:
    """Every canvas from pure noise (t = 1) to data (t = 0); arguments as for `sample`."""
    for name, value in (("batch", batch), ("length", length)):
        if value < 1:
            raise ValueError(f"{name} must be ≥ 1, found {value}")
    if not isinstance(sampler, Sampler):
        raise ValueError(f"sampler must be one such as Ancestral(steps=64), found {sampler!r}")
    if given is None:
        given = process.blank(batch, length)
    process.check_given(given, batch, length)
    sampler.check(process)
    return _chain(process, denoiser, length, sampler, given, seed, time_free)


def _chain(
    process: Canvas,
    denoiser: Denoiser,
    length: int,
    sampler: Sampler,
    given: Tensor,
    seed: int,
    time_free: bool,
) -> Iterator[Frame]:
    device = process.device
    generator = torch.Generator(device).manual_seed(seed)
    x = process.begin(given, generator)
    free = given.to(device) < 0
    needs_mean = type(sampler).__name__ if sampler.needs_mean else None
    asker = Asker(process, denoiser, length, time_free, sampler.temperature, sampler.top_p, needs_mean)
    yield Frame(1.0, x, torch.zeros(x.shape, device=device))
    steps = sampler.chain(asker, x, free, generator)
    while True:
        with torch.no_grad():  # entered anew for each frame: a generator must not keep it while it is suspended
            frame = next(steps, None)
        if frame is None:
            return
        yield frame


def sample(
    process: Canvas,
    denoiser: Denoiser,
    *,
    batch: int,
    length: int,
    sampler: Sampler,
    given: Tensor | None = None,
    seed: int = 0,
    time_free: bool = False,
) -> Tensor:
    """Draw `batch` sequences of `length` tokens (at most, where the model chooses): [B, L] long, without masks.

    given: [B, L] long, −1 where free; given positions never change. That is the exact conditional for masked processes and a
    heuristic elsewhere. time_free: the denoiser ignores t, so sequences that did not change are not evaluated again.
    The same seed gives the same samples.
    """
    frames = chain(process, denoiser, batch=batch, length=length, sampler=sampler, given=given, seed=seed, time_free=time_free)
    last = next(frames)
    for frame in frames:
        last = frame
    return last.x
