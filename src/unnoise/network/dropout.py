"""Dropout with random numbers that depend on (seed, step, row), whatever the number of processes.

torch's dropout has one stream for the whole batch, so the mask of a row would depend on the other rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.rng import bits

STEPS = 2**16  # resolution of the rate: 64 random bits decide about four features


@dataclass(frozen=True)
class Dropout:
    """Zeroing of features with probability `rate`; the others are scaled by 1/(1 − rate).

    keys: one key per row, [B] long (`RowGenerator.keys`). There is no state, so activation checkpointing drops the same
        features when it recomputes a block.
    """

    rate: float
    keys: Tensor

    def __call__(self, x: Tensor, branch: int, where: Tensor | None = None) -> Tensor:
        """Apply dropout to a branch, numbered through the network: x [B, L, D], or [n, D] at the positions `where`."""
        batch, length = x.shape[:2] if where is None else where.shape
        width, quarters = x.shape[-1], -(-x.shape[-1] // 4)
        keys = bits(self.keys, branch + 1)[:, branch]
        draws = bits(keys, length * quarters).view(torch.int16).view(batch, length, 4 * quarters)[..., :width]
        kept = (draws if where is None else draws[where]) >= min(round(self.rate * STEPS), STEPS - 1) - STEPS // 2
        return torch.where(kept, x / (1 - self.rate), torch.zeros((), dtype=x.dtype, device=x.device))
