"""Entropy-bounded sampling: as many tokens at once as a budget of entropy allows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.process.canvas import Canvas
from unnoise.sampler.base import Asker, Frame, Stepped
from unnoise.sampler.confidence import entropy, need_masks, reveal, surest, told


@dataclass(frozen=True)
class EntropyBounded(Stepped):
    """Masked processes: each call reveals the positions of least entropy, as many as Σ H − max H ≤ budget allows.

    That sum bounds how much the joint distribution of what is revealed together can differ from the product that is drawn
    (arXiv:2505.24857). budget: in nats; None spreads the entropy that is left evenly over the calls that are left. At most
    `steps` calls; the last reveals the rest. Does not keep the model's law: easy tokens come first.
    """

    budget: float | None = None
    keeps_law: ClassVar[bool] = False
    law: ClassVar[str] = "does not keep the model's law: the surest tokens come first"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and not self.budget >= 0:
            raise ValueError(f"budget must be ≥ 0 nats, found {self.budget}")

    @property
    def needs_mean(self) -> bool:
        return True

    def check(self, process: Canvas) -> None:
        need_masks("EntropyBounded", process)

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        process = asker.process
        confidence = torch.zeros(x.shape, device=x.device)
        total = (process.active(x) & free).sum(1).clamp_min(1)
        for calls_left in range(self.steps, 0, -1):
            masks = process.active(x) & free
            left = masks.sum(1)
            if not left.any():
                break
            t = process.schedule.inverse(1 - left.double() / total)
            log_p = told(process, asker, x, t, masks)
            uncertain = entropy(log_p.double())
            moving = surest(-uncertain, masks, self.count(uncertain, masks, calls_left))
            x, confidence = reveal(asker, x, log_p, masks, moving, confidence, generator)
            after = (process.active(x) & free).sum(1)
            if after.any():
                yield Frame(float(process.schedule.inverse(1 - after.double() / total).max()), x, confidence)
        yield Frame(0.0, x, confidence)

    def count(self, uncertain: Tensor, masks: Tensor, calls_left: int) -> Tensor:
        """How many to reveal in each row, at least one: those whose predecessors' entropies sum to at most the budget: [B]."""
        if calls_left == 1:
            return masks.sum(1)
        spread = torch.full(masks.shape, torch.inf, dtype=uncertain.dtype, device=masks.device).masked_scatter(masks, uncertain)
        ordered = spread.sort(1).values
        before = torch.nn.functional.pad(ordered.cumsum(1)[:, :-1], (1, 0))
        whole = spread.masked_fill(~masks, 0.0).sum(1, keepdim=True)
        budget = whole / calls_left if self.budget is None else self.budget
        return (before <= budget).sum(1)
