"""Attention: the key/value cache, visibility masks, rotary positions and the attention product, shared by the networks."""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

LONGEST_UNFUSED = 256  # number of keys above which the fused kernel is faster


@dataclass
class KVCache:
    """Per-layer key/value cache.

    keys_values: keys and values of each layer, [B, H, n, D].
    conv_inputs: last inputs of the convolution of each layer, [B, taps, D].
    last_hidden: final features of the last token, [B, W], for networks whose row i − 1 predicts position i.
    length: number of cached tokens.
    frozen: whether calls leave the cache unchanged, as calls with a noised block do.
    """

    keys_values: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    conv_inputs: dict[int, Tensor] = field(default_factory=dict)
    last_hidden: Tensor | None = None
    length: int = 0
    frozen: bool = False

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows: [n] long, or [B] bool."""
        self.keys_values = {layer: (k[rows], v[rows]) for layer, (k, v) in self.keys_values.items()}
        self.conv_inputs = {layer: inputs[rows] for layer, inputs in self.conv_inputs.items()}
        self.last_hidden = None if self.last_hidden is None else self.last_hidden[rows]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values and return all of them: [B, H, n, D] each. A frozen cache does not store them."""
        if layer in self.keys_values:
            before = self.keys_values[layer]
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        if not self.frozen:
            self.keys_values[layer] = k, v
        return k, v


@dataclass
class Visibility:
    """Positions that are visible from each position, for attention and convolution.

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


def causal_mask(length: int, total: int, device: torch.device) -> Tensor:
    """Return which of `total` positions are visible from each of the last `length`: [L, S] bool."""
    return torch.ones(length, total, dtype=torch.bool, device=device).tril(total - length)


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

    mask: None is the causal mask if `causal` is set, and no mask otherwise.
    """
    if mask is None and causal:
        mask = causal_mask(present.shape[1], present.shape[1], present.device)
    return present[:, None, None] if mask is None else present[:, None, None] & mask


def copyable(length: int, total: int, causal: bool, visibility: Visibility | None, device: torch.device) -> Tensor:
    """Return which of `total` positions, cached ones first, are visible from the last `length`: [1 or B, L or 1, S] bool."""
    if visibility is not None and visibility.attention_mask is not None:
        mask = visibility.attention_mask
        return mask[:, 0] if mask.dim() == 4 else mask[None]
    if causal:
        return causal_mask(length, total, device)[None]
    return torch.ones(1, length, total, dtype=torch.bool, device=device)


def attend_masked(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None) -> Tensor:
    """Compute attention with grouped heads: q [B, H, L, D], k and v [B, H', n + L, D] after n cached tokens.

    mask: [L, n + L] bool or one that broadcasts to [B, H, L, n + L]; it replaces the causal mask.
    """
    length, total = q.shape[2], k.shape[2]
    if causal and mask is None and 1 < length < total:  # several tokens after cached ones
        mask = causal_mask(length, total, q.device)
    is_causal = causal and mask is None and length > 1
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=grouped)


def attend_visible(q: Tensor, k: Tensor, v: Tensor, causal: bool, visibility: Visibility | None) -> Tensor:
    """Compute attention to the visible positions: q [B, H, L, D], k and v [B, H, n + L, D] after n cached tokens."""
    length, total = q.shape[2], k.shape[2]
    if causal and 1 < length < total:  # several tokens after cached ones
        return attend(q, k, v, attn_mask=causal_mask(length, total, q.device))
    if visibility is None:
        return attend(q, k, v, is_causal=causal and length > 1)
    mask = visibility.attention_mask
    if visibility.block is None or mask is None:
        return attend(q, k, v, attn_mask=mask)
    half = length // 2  # noised entries are not visible from clean ones: skip that quarter
    noised = attend(q[:, :, :half], k, v, attn_mask=mask[..., :half, :])
    clean = (part[:, :, half:] for part in (q, k, v))
    return torch.cat([noised, attend(*clean, attn_mask=mask[..., half:, half:])], 2)


def attend(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """Compute softmax(q·kᵀ/√D)·v: [B, H, L, D] → [B, H, L, D].

    This is torch's fused kernel except for training in bfloat16 on a CPU, where the backward pass of the fused kernel takes
    several times as long as separate products (benchmarks/attention.py).
    """
    bfloat16 = v.dtype == torch.bfloat16  # autocast converts q and k
    slow = q.device.type == "cpu" and bfloat16 and torch.is_grad_enabled() and k.shape[2] <= LONGEST_UNFUSED
    if not slow:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=is_causal)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if is_causal:
        attn_mask = causal_mask(q.shape[2], k.shape[2], q.device)
    if attn_mask is not None:
        scores = scores + torch.zeros_like(attn_mask, dtype=scores.dtype).masked_fill(~attn_mask, -torch.inf)
    return scores.softmax(-1, dtype=scores.dtype) @ v


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the pairs (i, i + D/2) by the angle of their position, as one fused kernel: [B, L, ·, ·, D], [L, D/2] each."""
    cos, sin = (angle[:, None, None] for angle in rotation)
    a, b = x.chunk(2, -1)
    return torch.addcmul(x * torch.cat([cos, cos], -1), torch.cat([b, a], -1), torch.cat([-sin, sin], -1))


def rotate_heads(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate as `rotate`, with the roundings of the published decoders: [B, H, L, D], [L, D/2] each → [B, H, L, D]."""
    cos, sin = rotation
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
