"""Outputs shifted by one position, for networks that were causal: row i − 1 predicts position i (Dream, Fast-dLLM v2)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.network.base import Cache


@dataclass
class ShiftedRows:
    """The row that predicts each position: row i − 1 for position i, and row 0 also for position 0.

    After cached tokens, the row of the last cached token predicts the first position. In x_t ⊕ x_0 the clean row of the
    previous token predicts the first position of a block, with the same result.

    needed: rows to compute, [B, L] bool.
    batch, source: sequence and row of each of the n positions, [n] long; −1 is the row of the last cached token.
    shape: shape of the output without its last axis.
    """

    needed: Tensor
    batch: Tensor
    source: Tensor
    shape: tuple[int, ...]

    @staticmethod
    def of(x: Tensor, where: Tensor | None, block: int | None, cache: Cache | None) -> "ShiftedRows":
        """Return the rows for an input [B, L] or [B, L, inputs]."""
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
        """Select the row of each position from the m computed rows: [m, W] → [n, W] or [B, L, W]; store the last row."""
        number = (self.needed.flatten().cumsum(0) - 1).view(self.needed.shape)
        before = None if cache is None else cache.last
        if cache is not None and cache.store:
            cache.last = h[number[:, -1]]
        found = number[self.batch, self.source]
        if before is not None:
            found = torch.where(self.source < 0, len(h) + self.batch, found)
            h = torch.cat([h, before])
        return h[found].view(*self.shape, h.shape[-1])
