"""Remasking: what was written can be taken back and written again."""

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
    """Masked processes, from t to s: a written token becomes a mask again with probability σ = min(rate, (1 − α_s)/α_t), a mask
    is revealed with probability (α_s − (1 − σ)α_t)/(1 − α_t), so that the share of masks is what it would have been
    (ReMDM, arXiv:2503.00307). Given tokens stay. Keeps the distribution of an exact model as steps grow, if the rate shrinks
    with them; at a fixed rate it mends the mistakes of revealing several tokens at once.

    rate: the largest probability at which a written token is masked again in one step.
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
        """The probabilities that a written token is masked, and that a mask is revealed, from t to s: [B] each."""
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
