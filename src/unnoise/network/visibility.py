"""Visibility masks shared by attention and convolution."""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor


@dataclass
class Visibility:
    """Positions that are visible from each position.

    present: [B, L] bool, false at padding, which is not visible from any position.
    mask: [L, L] bool, whether position j (column) is visible from position i (row).
    positions: [L] long, the position of each entry in the sequence; 0…L − 1 by default. Two entries may share a position, as in
        x_t ⊕ x_0 of block diffusion (arXiv:2503.09573), if they are not both visible from the same entry.
    block: the block size if the input is x_t ⊕ x_0; convolutions then do not need the mask.
    """

    present: Tensor | None = None
    mask: Tensor | None = None
    positions: Tensor | None = None
    block: int | None = None
    attention_mask: Tensor | None = field(default=None, init=False)
    """for scaled_dot_product_attention: [1 or B, 1, L or 1, L] bool"""
    _neighbours: dict[range, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        rows = None if self.present is None else self.present[:, None, None]
        masks = [mask for mask in (rows, self.mask) if mask is not None]
        self.attention_mask = masks[0] & masks[-1]

    def neighbours(self, offsets: range) -> Tensor:
        """Return for each offset k the visible entry at position i + k, or L if there is none: [k, L] long."""
        if offsets not in self._neighbours:
            assert self.mask is not None
            length = len(self.mask)
            places = torch.arange(length, device=self.mask.device) if self.positions is None else self.positions
            apart = places[None, :] - places[:, None]  # [query, key]
            number = torch.arange(length, device=self.mask.device).expand(length, length)
            found = [torch.where(self.mask & (apart == k), number, length).amin(1) for k in offsets]
            self._neighbours[offsets] = torch.stack(found)
        return self._neighbours[offsets]


@lru_cache(16)
def block_visibility(length: int, block: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the mask [2L, 2L] bool and the positions [2L] long of x_t ⊕ x_0, a sequence of L tokens that occurs twice.

    From a noised entry the noised entries of the same block and the clean entries of earlier blocks are visible. From a clean
    entry the clean entries of the same block and of earlier blocks are visible (block diffusion, arXiv:2503.09573).
    """
    places = torch.arange(length, device=device)
    query, key = places[:, None] // block, places[None, :] // block
    noised = torch.cat([query == key, query > key], 1)
    clean = torch.cat([torch.zeros_like(query == key), query >= key], 1)
    return torch.cat([noised, clean]), places.repeat(2)


def without_padding(present: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Combine padding with an attention mask: present [B, L] bool, mask [L, L] bool → [B, 1, L or 1, L] bool.

    mask: None means the causal mask where `causal` is set, else no mask.
    """
    length = present.shape[1]
    if mask is None and causal:
        mask = torch.ones(length, length, dtype=torch.bool, device=present.device).tril()
    return present[:, None, None] if mask is None else present[:, None, None] & mask
