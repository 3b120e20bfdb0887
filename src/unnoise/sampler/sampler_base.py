"""Base classes of samplers, which yield every state from pure noise to data."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import MeanPrediction, Prediction, TokenPrediction
from unnoise.process.process_base import Process
from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, inverse_cdf, uniform

LOWEST_TEMPERATURE = 1e-3  # lowest temperature other than 0; the highest is its inverse
MOST_STEPS = 1_000_000
BLOCK, CPU_BLOCK = 2**24, 2**18  # float64 numbers per draw of tokens; a CPU's fit into its caches


class Frame(NamedTuple):
    """A state of the reverse process.

    t: time; 1 is noise, 0 is data.
    x: [B, L], padded with −1 for variable-length models.
    confidence: [B, L], probability of each token in the last prediction at its position, or of the most probable token if the
        position is masked; 0 before the first prediction.
    place: [B, L], index of each position in `given`, for variable-length models.
    fresh: [B, L] bool, positions that this step inserted or changed, for variable-length models.
    settled: number of leading positions that will not change, for samplers that run from left to right.
    """

    t: float
    x: Tensor
    confidence: Tensor
    place: Tensor | None = None
    fresh: Tensor | None = None
    settled: int = 0


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """Base class of samplers, which simulate the reverse process.

    temperature: exponent 1/temperature of the mean μ, renormalized; 0 takes the most probable token.
    top_p: sample from the smallest set of tokens with this probability (nucleus sampling).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    requires: ClassVar[str] = "a process over tokens"
    mean_only: ClassVar[bool] = False
    starts_at_any_time: ClassVar[bool] = False  # whether `frames_from` is supported

    def __post_init__(self) -> None:
        low, high = LOWEST_TEMPERATURE, 1 / LOWEST_TEMPERATURE
        if self.temperature != 0 and not low <= self.temperature <= high:
            raise ValueError(f"temperature must be 0, or lie between {low} and {high:g}, found {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], found {self.top_p}")

    @abstractmethod
    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        """Yield every state after the first; the last is at t = 0. Only free positions change: x, free [B, L]."""

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        """Yield every state after `state`, a state of the process at time 0 < t ≤ 1."""
        raise ValueError(f"{type(self).__name__} starts from pure noise and cannot denoise a partially noised sequence")

    @property
    def keeps_distribution(self) -> bool:
        """True if samples follow the model's distribution, given enough steps."""
        return False

    @property
    def distribution(self) -> str:
        """Description of `keeps_distribution`."""
        if self.keeps_distribution:
            return "keeps the model's distribution as steps grow"
        return "is not known to keep the model's distribution"

    def with_nfe(self, nfe: int) -> Self:
        """Return this sampler with at most `nfe` network calls per sequence, if it has a number of steps."""
        return self

    def tokens_read(self, length: int) -> int:
        """Return the number of tokens per network call for a sequence length."""
        return length

    def serves(self, process: ProcessBase, prediction: type[Prediction] = MeanPrediction) -> bool:
        """Return whether this sampler supports the process and the type of prediction."""
        wanted = MeanPrediction if self.mean_only else TokenPrediction
        return isinstance(process, Process) and issubclass(prediction, wanted)

    def check(self, process: ProcessBase) -> None:
        """Raise ValueError unless this sampler supports the process."""
        if not self.serves(process):
            raise ValueError(f"{type(self).__name__} needs {self.requires}, found {type(process).__name__}")


@dataclass(frozen=True)
class SteppedSampler(Sampler):
    """A sampler with a configurable number of steps.

    steps: number of steps, one network call each.
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
    """A sampler with a time grid t_0 > t_1 > … > t_{N−1} and a last step to clean data, one network call each.

    grid: "uniform", t = 1 − i/N, or "cosine", t = cos(π/2·i/N), with smaller steps at first (MD4).
    """

    grid: Literal["uniform", "cosine"] = "uniform"
    starts_at_any_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid not in ("uniform", "cosine"):
            raise ValueError(f'grid must be "uniform" or "cosine", found {self.grid!r}')

    def times(self, latest: float = 1.0) -> list[float]:
        """Return t_0 … t_{N−1}, scaled to start at `latest`."""
        u = torch.arange(self.steps, dtype=torch.float64) / self.steps
        t = 1 - u if self.grid == "uniform" else torch.cos(torch.pi / 2 * u)
        return (latest * t).tolist()

    def begin(self, process: Process) -> float:
        """Return the first time at which the denoiser is called."""
        return 1.0

    @abstractmethod
    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        """Sample the state at s, or clean data if s is None, from the state at t: [B, L], s, t [B] → [B, L]."""

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        yield from self.walk(denoiser, x, free, generator, self.times(self.begin(denoiser.process)))

    def frames_from(self, denoiser: SamplingDenoiser, state: Tensor, t: float, generator: Generator) -> Iterator[Frame]:
        free = torch.ones_like(state, dtype=torch.bool)
        yield from self.walk(denoiser, state, free, generator, self.times(min(t, self.begin(denoiser.process))))

    def walk(
        self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator, times: list[float]
    ) -> Iterator[Frame]:
        """Yield the states at times[1], times[2], … and then clean data, starting from x at times[0]."""
        ones = torch.ones(len(x), dtype=torch.float64, device=x.device)
        confidence = torch.zeros(x.shape, device=x.device)
        for t, s in zip(times, [*times[1:], None], strict=True):
            x = self.step(denoiser, x, None if s is None else s * ones, t * ones, free, generator=generator)
            if denoiser.track_confidence:
                confidence = denoiser.confidence(x, confidence)
            yield Frame(s or 0.0, x, confidence)


@dataclass(frozen=True)
class DrawingSampler(GridSampler):
    """A grid sampler that, given the prediction, samples the new tokens of a step independently of each other."""

    @abstractmethod
    def weights(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        """Return the unnormalized probabilities of the tokens of m positions at s, or of clean data: x_t, s, t [m] → [m, S]."""

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        return self.draw_at(denoiser.process.active(x) & free, denoiser, x, s, t, generator=generator)

    def draw_at(
        self, where: Tensor, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, *, generator: Generator
    ) -> Tensor:
        """Sample new tokens at the n positions `where`, a few at a time to save memory: x, where [B, L], s, t [B] → [B, L]."""
        if not where.any():
            return x
        prediction = denoiser.predict(x, t, where)
        row = where.nonzero()[:, 0]
        x_t, u = x[where], uniform(where.shape, x.device, generator, where)
        at_once = max(1, (CPU_BLOCK if x.device.type == "cpu" else BLOCK) // prediction.values.shape[-1])
        drawn = []
        for start in range(0, len(row), at_once):
            some = slice(start, start + at_once)
            part, earlier = prediction.replace(prediction.values[some]), None if s is None else s[row[some]]
            drawn.append(inverse_cdf(self.weights(denoiser.process, part, x_t[some], earlier, t[row[some]]), u[some]))
        return x.masked_scatter(where, torch.cat(drawn))
