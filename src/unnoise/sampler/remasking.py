"""Remasking: sampled tokens can be masked and sampled again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.process.masked import Masked
from unnoise.rng import Generator, draw, uniform
from unnoise.sampler.base import GridSampler
from unnoise.sampler.masked import MaskedSampler


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
        log_p = denoiser.clean(x, t, moving)  # of the state as it was
        return after.masked_scatter(moving, draw(log_p.double().exp(), generator, moving))
