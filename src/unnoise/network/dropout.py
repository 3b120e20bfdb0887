"""Dropout whose random numbers belong to (seed, step, row): the same for any number of processes, and when it is repeated.

torch's own dropout draws from one stream for the whole batch, so what a row loses would depend on its neighbours in the batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.rng import bits

STEPS = 2**16  # in which a rate is counted: each number of 64 random bits decides about four features


@dataclass(frozen=True)
class Dropout:
    """Zeroes each feature with probability `rate` and scales the others by 1/(1 − rate).

    keys: one for each row, [B] long (`RowGenerator.keys`). Nothing is kept between calls, so that a block that is computed
    once more for its gradient (activation checkpointing) loses the same features.
    """

    rate: float
    keys: Tensor

    def __call__(self, x: Tensor, branch: int, where: Tensor | None = None) -> Tensor:
        """x of the branch with this number, counted through the network: [B, L, D]; or of the n positions `where`: [n, D]."""
        batch, length = x.shape[:2] if where is None else where.shape
        width, quarters = x.shape[-1], -(-x.shape[-1] // 4)
        keys = bits(self.keys, branch + 1)[:, branch]
        draws = bits(keys, length * quarters).view(torch.int16).view(batch, length, 4 * quarters)[..., :width]
        kept = (draws if where is None else draws[where]) >= min(round(self.rate * STEPS), STEPS - 1) - STEPS // 2
        return torch.where(kept, x / (1 - self.rate), torch.zeros((), dtype=x.dtype, device=x.device))
