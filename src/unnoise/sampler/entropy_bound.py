"""Entropy-bounded sampling: unmask as many tokens per step as an entropy budget allows."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator
from unnoise.sampler.base import Frame, SteppedSampler
from unnoise.sampler.masked import SurestFirst, entropy, reveal, surest


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
