"""A sampler turns pure noise into data and yields every state on the way, so that watching is free."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self, cast

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.prediction import MeanPrediction, Prediction, TokenPrediction
from unnoise.process.base import Process
from unnoise.process.state import StateSpace
from unnoise.rng import Generator, RowGenerator, inverse_cdf, uniform

LOWEST_TEMPERATURE = 1e-3  # besides 0; the highest is its inverse
MOST_STEPS = 1_000_000
BLOCK, CPU_BLOCK = 2**24, 2**18  # numbers in float64 that are made at once to draw tokens; a CPU's should stay in its caches


class Frame(NamedTuple):
    """One moment of generation: the state x: [B, L] at time t (1 is noise, 0 is data).

    confidence: [B, L], the probability that the network gave to the token that stands there when it last predicted that
    position (to its favourite, while the position is still masked); 0 where it never did.

    Where texts grow, states are padded with −1, and two more things are said: place [B, L], which entry of `given` each
    position belongs to (elsewhere that is its own number), and fresh [B, L] bool, what this step has put in or changed.

    settled: how many positions at the beginning will not change any more, where a sampler writes from left to right.
    """

    t: float
    x: Tensor
    confidence: Tensor
    place: Tensor | None = None
    fresh: Tensor | None = None
    settled: int = 0


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """How the reverse process is simulated.

    temperature: of the mean μ, μ^{1/temperature} renormalised; 0 takes the likeliest token.
    top_p: keep the smallest set of tokens of this much probability (nucleus sampling).

    Both act on a mean, and at 1 leave the model's distribution alone.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    requires: ClassVar[str] = "a process over tokens"
    mean_only: ClassVar[bool] = False
    starts_anywhere: ClassVar[bool] = False  # also from a text that is noised in part

    def __post_init__(self) -> None:
        low, high = LOWEST_TEMPERATURE, 1 / LOWEST_TEMPERATURE
        if self.temperature != 0 and not low <= self.temperature <= high:
            raise ValueError(f"temperature must be 0, or lie between {low} and {high:g}, found {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], found {self.top_p}")

    @abstractmethod
    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        """Every state after the first, the last one at t = 0 without masks: x, free [B, L]; only free positions move."""

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        """Every state after `state`, the process's own at time 0 < t ≤ 1: the way back of a text that was noised so far."""
        raise ValueError(f"{type(self).__name__} begins with pure noise: it cannot go on from a text that is noised in part")

    @property
    def keeps_distribution(self) -> bool:
        """Whether samples follow the model's own distribution, given enough steps: a claim that a sampler makes for itself."""
        return False

    @property
    def distribution(self) -> str:
        """The same in words."""
        if self.keeps_distribution:
            return "keeps the model's distribution as steps grow"
        return "is not known to keep the model's distribution"

    def with_nfe(self, nfe: int) -> Self:
        """This sampler with at most so many network calls a text; one without a grid of times takes what it needs."""
        return self

    def tokens_read(self, length: int) -> int:
        """How many tokens of a text of this length one network call reads."""
        return length

    def serves(self, process: StateSpace, prediction: type[Prediction] = MeanPrediction) -> bool:
        """Whether this sampler works with the process and with denoisers that return such predictions."""
        wanted = MeanPrediction if self.mean_only else TokenPrediction
        return isinstance(process, Process) and issubclass(prediction, wanted)

    def check(self, process: StateSpace) -> None:
        """Raise ValueError unless this sampler serves the process."""
        if not self.serves(process):
            raise ValueError(f"{type(self).__name__} needs {self.requires}, found {type(process).__name__}")


@dataclass(frozen=True)
class SteppedSampler(Sampler):
    """A sampler with a number of steps to set.

    steps: how many, one network call each.
    """

    steps: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps must be a whole number ≥ 1 (and ≤ {MOST_STEPS:,}), found {self.steps!r}")

    def with_nfe(self, nfe: int) -> Self:
        return replace(self, steps=nfe)


@dataclass(frozen=True)
class GridSampler(SteppedSampler):
    """A sampler that walks a grid of times t_0 > t_1 > … > t_{N−1} and then to clean data, one network call each.

    grid: "uniform", t = 1 − i/N; or "cosine", t = cos(π/2·i/N), which goes slowly at first (MD4).
    """

    grid: Literal["uniform", "cosine"] = "uniform"
    starts_anywhere: ClassVar[bool] = True

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
        """The first time at which the denoiser is called."""
        return 1.0

    @abstractmethod
    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        """From the state at t to the state at s, or to clean data where s is None: [B, L], s, t [B]."""

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        yield from self.walk(denoiser, x, free, generator, self.times(self.begin(denoiser.process)))

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        free = torch.ones_like(state, dtype=torch.bool)
        yield from self.walk(denoiser, state, free, generator, self.times(min(t, self.begin(denoiser.process))))

    def walk(
        self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator, times: list[float]
    ) -> Iterator[Frame]:
        """Every state after x, which is that at times[0]: at the times that follow, and then clean data."""
        ones = torch.ones(len(x), dtype=torch.float64, device=x.device)
        confidence = torch.zeros(x.shape, device=x.device)
        for t, s in zip(times, [*times[1:], None], strict=True):
            x = self.step(denoiser, x, None if s is None else s * ones, t * ones, free, generator)
            if denoiser.track_confidence:
                confidence = denoiser.confidence(x, confidence)
            yield Frame(s or 0.0, x, confidence)


Weights = Callable[[TokenPrediction, Tensor, Tensor | None, Tensor], Tensor]


def draw_tokens(
    prediction: TokenPrediction,
    x: Tensor,
    s: Tensor | None,
    t: Tensor,
    where: Tensor,
    generator: Generator,
    weights: Weights,
) -> Tensor:
    """x with new tokens at the n positions `where`: prediction [n, ·], x and where [B, L], s and t [B] → [B, L].

    weights(prediction, x_t, s, t), each about the same m positions, is what their tokens are drawn by: [m, S]. It is called for
    some positions at a time, since all of them in float64 would fill the memory where the vocabulary is large.
    """
    row = where.nonzero()[:, 0]
    x_t, u = x[where], uniform(where.shape, x.device, generator, where)
    at_once = max(1, (CPU_BLOCK if x.device.type == "cpu" else BLOCK) // prediction.values.shape[-1])
    drawn = []
    for start in range(0, len(row), at_once):
        some = slice(start, start + at_once)
        earlier = None if s is None else s[row[some]]
        part = prediction.replace(prediction.values[some])
        drawn.append(inverse_cdf(weights(part, x_t[some], earlier, t[row[some]]), u[some]))
    return x.masked_scatter(where, torch.cat(drawn))


def sample_frames(
    process: StateSpace,
    denoiser: Denoiser,
    *,
    batch: int,
    length: int,
    sampler: Sampler,
    given: Tensor | None = None,
    seed: int = 0,
    time_free: bool = False,
    independent_rows: bool = False,
    first_row: int = 0,
    track_confidence: bool = True,
) -> Iterator[Frame]:
    """Every state from pure noise (t = 1) to data (t = 0); arguments as for `sample`, and whether confidences are wanted."""
    for name, value in (("batch", batch), ("length", length)):
        if value < 1:
            raise ValueError(f"{name} must be ≥ 1, found {value}")
    if not isinstance(sampler, Sampler):
        raise ValueError(f"sampler must be one such as Ancestral(steps=64), found {sampler!r}")
    if given is None:
        given = process.blank(batch, length)
    process.check_given(given, batch, length)
    sampler.check(process)
    calls = SamplingDenoiser(
        process,
        cast(Process, process),  # those that need one have checked that it is
        denoiser,
        length,
        time_free,
        sampler.temperature,
        sampler.top_p,
        track_confidence,
        type(sampler).__name__ if sampler.mean_only else None,
        independent_rows,
    )
    return _frames(calls, sampler, given, seed, first_row)


def _frames(denoiser: SamplingDenoiser, sampler: Sampler, given: Tensor, seed: int, first_row: int) -> Iterator[Frame]:
    process = denoiser.state_space
    device = process.anchor.device
    generator = RowGenerator(seed, first_row + torch.arange(len(given), device=device))
    x = process.begin(given, generator)
    yield Frame(1.0, x, torch.zeros(x.shape, device=device))
    yield from without_gradients(sampler.frames(denoiser, x, given.to(device) < 0, generator))


def without_gradients(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The same frames, computed without gradients."""
    while True:
        with torch.no_grad():  # entered anew for each frame: a generator must not keep it while it is suspended
            frame = next(frames, None)
        if frame is None:
            return
        yield frame


def sample(
    process: StateSpace,
    denoiser: Denoiser,
    *,
    batch: int,
    length: int,
    sampler: Sampler,
    given: Tensor | None = None,
    seed: int = 0,
    time_free: bool = False,
    independent_rows: bool = False,
    first_row: int = 0,
) -> Tensor:
    """Draw `batch` sequences of `length` tokens (at most, where the model chooses): [B, L] long, without masks.

    given: [B, L] long, −1 where free; given positions never change. That is the exact conditional for masked processes and a
    heuristic elsewhere. time_free: the denoiser ignores t, so sequences that did not change are not evaluated again.
    independent_rows: what the denoiser says of a sequence depends on that one alone, so one where nothing moves in a step is
    not evaluated (time_free implies that).
    seed, first_row: sample i is decided by the seed and by first_row + i alone, not by how many others are drawn with it.
    """
    frames = sample_frames(
        process,
        denoiser,
        batch=batch,
        length=length,
        sampler=sampler,
        given=given,
        seed=seed,
        time_free=time_free,
        independent_rows=independent_rows,
        first_row=first_row,
        track_confidence=False,
    )
    return deque(frames, maxlen=1)[0].x
