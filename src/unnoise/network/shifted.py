"""Outputs one place later: in a network that was causal, the row of a token predicts the next one (Dream, Fast-dLLM v2)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.network.base import Cache


@dataclass
class ShiftedRows:
    """Which row predicts each position where outputs are shifted: row i − 1 position i, and row 0 also position 0.

    After a cached past the row of the token before predicts the first position; in x_t ⊕ x_0 the clean row of the token before
    predicts the first position of a block, so that both give the same.

    needed: the rows that are computed, [B, L] bool. batch, source: for each of the n positions its text and its row, [n] long,
    −1 for the row before a cached past. shape: of the output but for its last axis.
    """

    needed: Tensor
    batch: Tensor
    source: Tensor
    shape: tuple[int, ...]

    @staticmethod
    def of(x: Tensor, where: Tensor | None, block: int | None, cache: Cache | None) -> "ShiftedRows":
        """For an input [B, L] or [B, L, inputs]."""
        shape = tuple(x.shape[:2])
        asked = torch.ones(shape, dtype=torch.bool, device=x.device) if where is None else where
        source = torch.arange(-1, shape[1] - 1, device=x.device)
        if block is not None:
            half = shape[1] // 2
            first = torch.arange(block, half, block, device=x.device)
            source[first] = half + first - 1
            source[half] = half
        if cache is None or not cache.length:
            source[0] = 0
        batch, place = asked.nonzero(as_tuple=True)
        rows = source[place]
        needed = torch.zeros_like(asked)
        needed[batch[rows >= 0], rows[rows >= 0]] = True
        if cache is not None and cache.store:
            needed[:, -1] = True
        return ShiftedRows(needed, batch, rows, shape if where is None else (len(rows),))

    def taken(self, h: Tensor, cache: Cache | None) -> Tensor:
        """What predicts each position, from the m rows needed: [m, W] → [n, W] or [B, L, W]; the cache keeps the last row."""
        number = (self.needed.flatten().cumsum(0) - 1).view(self.needed.shape)
        before = None if cache is None else cache.last
        if cache is not None and cache.store:
            cache.last = h[number[:, -1]]
        found = number[self.batch, self.source]
        if before is not None:
            found = torch.where(self.source < 0, len(h) + self.batch, found)
            h = torch.cat([h, before])
        return h[found].view(*self.shape, h.shape[-1])
