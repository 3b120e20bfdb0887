"""Confidence order: reveal first what the network is surest of."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator
from unnoise.sampler.base import Frame, SteppedSampler
from unnoise.sampler.masked import Certainty, SurestFirst, certainty, reveal, surest


@dataclass(frozen=True)
class Confidence(SurestFirst, SteppedSampler):
    """Masked processes: at each step as many reveals as the schedule expects, at the positions of which the network is surest.

    by: "max", the probability of the favourite (MaskGIT, arXiv:2202.04200); "margin", its lead over the second
        (arXiv:2502.06768); "entropy", the least first.

    Does not keep the model's distribution: easy tokens come first, so texts are less varied.
    """

    by: Certainty = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("max", "margin", "entropy"):
            raise ValueError(f'by must be "max", "margin" or "entropy", found {self.by!r}')

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.process
        confidence = torch.zeros(x.shape, device=x.device)
        total = (process.active(x) & free).sum(1)
        times = torch.linspace(1, 0, self.steps + 1, dtype=torch.float64, device=x.device)
        for t, s in itertools.pairwise(times):
            masks = process.active(x) & free
            keep = (total * process.schedule.noise(s)).floor() if s > 0 else torch.zeros_like(total)
            count = masks.sum(1) - keep
            if (count > 0).any():
                log_p = denoiser.clean(x, t.expand(len(x)), masks)
                moving = surest(certainty(log_p, self.by), masks, count)
                x, confidence = reveal(denoiser, x, log_p, masks, moving, confidence, generator)
            yield Frame(float(s), x, confidence)
