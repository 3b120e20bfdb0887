"""Samplers of masked processes: first-hitting, remasking, confidence order and entropy bounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.masked import Masked
from unnoise.process.process_base import Process
from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, draw, uniform
from unnoise.sampler.sampler_base import Frame, GridSampler, Sampler, SteppedSampler

EARLIEST = 1e-3  # the last time of Dream's grid
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
    *,
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
        log_p = denoiser.clean(x, t, moving)  # for the state before the move
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


@dataclass(frozen=True)
class Confidence(SurestFirst, SteppedSampler):
    """Masked processes: each step unmasks the most confident positions, by the network's distribution at temperature 1.

    by: "max", the largest probability (MaskGIT, arXiv:2202.04200); "margin", its lead over the second largest
        (arXiv:2502.06768); "entropy", the lowest entropy.

    spread: tokens per step: "schedule", the number expected under the noise schedule; "even", equally many, with the remainder
        in the first steps (LLaDA, arXiv:2502.09992); "floor", ⌊masks·(1 − s/t)⌋ from t = 1 to 10⁻³ and the rest in the last
        step (Dream, arXiv:2508.15487).

    block: number of masks that are sampled together, from left to right, with later ones masked (semi-autoregressive, LLaDA); 0
        for all. The steps are divided over the blocks.

    Does not keep the model's distribution: easy tokens come first, so samples are less diverse.
    """

    by: Certainty = "max"
    spread: Literal["schedule", "even", "floor"] = "schedule"
    block: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("max", "margin", "entropy"):
            raise ValueError(f'by must be "max", "margin" or "entropy", found {self.by!r}')
        if self.spread not in ("schedule", "even", "floor"):
            raise ValueError(f'spread must be "schedule", "even" or "floor", found {self.spread!r}')
        if isinstance(self.block, bool) or not isinstance(self.block, int) or self.block < 0:
            raise ValueError(f"block must be a whole number ≥ 0, found {self.block!r}")

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.process
        confidence = torch.zeros(x.shape, device=x.device)
        blanks = process.active(x) & free
        most = max(1, int(blanks.sum(1).max()))
        size = self.block or most
        number = -(-most // size)
        steps = max(1, self.steps // number)
        times = torch.linspace(1, 0, number * steps + 1, dtype=torch.float64, device=x.device)
        belongs = torch.where(blanks, (blanks.cumsum(1) - 1) // size, -1)  # block number
        for step in range(number * steps):
            k, i = divmod(step, steps)
            masks = process.active(x) & (belongs == k)
            count = self.count(process, (belongs == k).sum(1), masks.sum(1), i, steps)
            t, s = times[step], times[step + 1]
            if (count > 0).any():
                at = t.expand(len(x))
                log_p = denoiser.clean(x, at, masks)
                moving = surest(certainty(denoiser.own(x, at, masks), self.by), masks, count)
                x, confidence = reveal(denoiser, x, log_p, masks, moving, confidence=confidence, generator=generator)
            yield Frame(float(s), x, confidence)

    def count(self, process: Process, total: Tensor, left: Tensor, i: int, steps: int) -> Tensor:
        """Return the number of tokens to unmask in step i: total, left [B] are the masks of a block at first and now → [B]."""
        if i == steps - 1:
            return left
        if self.spread == "even":
            return total // steps + (i < total % steps)
        if self.spread == "floor":
            t = torch.linspace(1, EARLIEST, steps + 1, device=left.device)
            return (left * (1 - t[i + 1] / t[i])).floor().long()
        later = torch.linspace(1, 0, steps + 1, dtype=torch.float64, device=left.device)[i + 1]
        return left - (total * process.schedule.noise(later)).floor()


@dataclass(frozen=True)
class EntropyBounded(SurestFirst, SteppedSampler):
    """Masked processes: each step unmasks the positions of lowest entropy, as many as Σ H − max H ≤ budget allows.

    The sum bounds the distance between the joint distribution of these tokens and the product that is sampled
    (arXiv:2505.24857). There are at most `steps` calls; the last one unmasks the rest. Does not keep the model's distribution:
    easy tokens come first.

    budget: in nats; None divides the remaining entropy evenly over the remaining calls.
    """

    budget: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and not self.budget >= 0:
            raise ValueError(f"budget must be ≥ 0 nats, found {self.budget}")

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.process
        confidence = torch.zeros(x.shape, device=x.device)
        total = (process.active(x) & free).sum(1).clamp_min(1)
        for calls_left in range(self.steps, 0, -1):
            masks = process.active(x) & free
            left = masks.sum(1)
            if not left.any():
                break
            t = process.schedule.inverse(1 - left.double() / total)
            log_p = denoiser.clean(x, t, masks)
            uncertain = entropy(denoiser.own(x, t, masks).double())
            moving = surest(-uncertain, masks, self.count(uncertain, masks, calls_left))
            x, confidence = reveal(denoiser, x, log_p, masks, moving, confidence=confidence, generator=generator)
            after = (process.active(x) & free).sum(1)
            if after.any():
                yield Frame(float(process.schedule.inverse(1 - after.double() / total).max()), x, confidence)
        yield Frame(0.0, x, confidence)

    def count(self, uncertain: Tensor, masks: Tensor, calls_left: int) -> Tensor:
        """Return the number of positions to unmask in each row: those before which the entropies sum to ≤ budget: [B]."""
        if calls_left == 1:
            return masks.sum(1)
        spread = torch.full(masks.shape, torch.inf, dtype=uncertain.dtype, device=masks.device).masked_scatter(masks, uncertain)
        ordered = spread.sort(1).values
        before = torch.nn.functional.pad(ordered.cumsum(1)[:, :-1], (1, 0))
        whole = spread.masked_fill(~masks, 0.0).sum(1, keepdim=True)
        budget = whole / calls_left if self.budget is None else self.budget
        return (before <= budget).sum(1)
