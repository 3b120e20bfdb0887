"""First-hitting sampling: jump from one reveal to the next, with no time grid."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.categorical import draw, uniform
from unnoise.process.canvas import Canvas
from unnoise.sampler.base import Asker, Frame, Sampler
from unnoise.sampler.confidence import need_masks


@dataclass(frozen=True)
class FirstHitting(Sampler):
    """Masked processes with one schedule: when a position is revealed does not depend on what it becomes.

    With n masks left at α_t the next reveal is at α = 1 − (1 − α_t)·U^{1/n}, at a uniformly chosen position
    (arXiv:2409.02908). Exactly the model's law in continuous time; each sequence is evaluated once a position.
    """

    law: ClassVar[str] = "keeps the model's law exactly"

    @property
    def needs_mean(self) -> bool:
        return True

    def check(self, process: Canvas) -> None:
        need_masks("FirstHitting", process)

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        process = asker.process
        noise = torch.ones(len(x), dtype=torch.float64, device=x.device)
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
            prediction = asker(x, t, where)
            log_p = prediction.clean(process, x[where], t[where.any(1)])
            x = x.masked_scatter(where, draw(log_p.double().exp(), generator))
            confidence = asker.confidence(x, confidence)
            if int(left.max()) > 1:
                yield Frame(float(t[left > 0].max()), x, confidence)
        yield Frame(0.0, x, confidence)
