"""Confidence order: unmask the most confident positions first.

Entropy-bounded sampling: unmask as many tokens per step as an entropy budget allows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.process.process_base import Process
from unnoise.rng import Generator
from unnoise.sampler.sampler_base import Frame, SteppedSampler
from unnoise.sampler.unmasking import Certainty, SurestFirst, certainty, entropy, reveal, surest

EARLIEST = 1e-3  # the last time of Dream's grid


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
                x, confidence = reveal(denoiser, x, log_p, masks, moving, confidence, generator)
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
            x, confidence = reveal(denoiser, x, log_p, masks, moving, confidence, generator)
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
