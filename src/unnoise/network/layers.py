"""Linear layers whose weights may be stored in lower precision than the inputs, for example memory-mapped on disk.

Dropout with random numbers that depend on (seed, step, row), whatever the number of processes.

torch's dropout has one stream for the whole batch, so the mask of a row would depend on the other rows.

Visibility masks shared by attention and convolution.

A pointer head, which can copy tokens of the sequence (Merity et al. 2016, arXiv:1609.07843).

In addition to the K outputs o_v of the head there is a score a_j for each visible token x_j, and the outputs become

    o'_v = log(e^{o_v} + Σ_{j: x_j = v} e^{a_j}),    a_j = q·k_j/√F + c,

so the vocabulary and the sequence share one softmax; if the outputs are log ratios, the scores are added to the ratios. The
vocabulary has to be learned token by token, but comparing the contexts of two positions works for all tokens.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.network_base import Cache
from unnoise.rng import bits

RAISED = 2**22  # weights that are converted at once
STD = 0.02  # of initial weights


class Linear(nn.Linear):
    """xWᵀ + b in the precision of x: [*, in] → [*, out]. Its weights are drawn by `initialise`, for the whole network."""

    def reset_parameters(self) -> None:
        return

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute xWᵀ + b in the precision of x. A weight of lower precision is converted a few rows at a time, to save memory."""
    if weight.dtype.itemsize >= x.dtype.itemsize:
        return F.linear(x, weight, bias)
    y = x.new_empty(*x.shape[:-1], len(weight))
    rows = max(1, RAISED // weight.shape[1])
    for first in range(0, len(weight), rows):
        some = slice(first, first + rows)
        y[..., some] = F.linear(x, weight[some].to(x.dtype), None if bias is None else bias[some].to(x.dtype))
    return y


def initialise(decoder: nn.Module) -> None:
    """Draw the weights of a decoder: matrices from N(0, 0.02²); branches, biases and a separate output head start at zero."""
    for name, weight in decoder.named_parameters():
        if weight.is_meta:
            return
        if name.endswith((".out.weight", ".down.weight", "head.weight", ".bias")):
            nn.init.zeros_(weight)
        elif weight.dim() == 2:
            nn.init.normal_(weight, std=STD)


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


FEATURES = 64  # F of queries and keys, at most


class Pointer(nn.Module):
    """o [n, K] → o' [n, K], or [B, L, K] → [B, L, K].

    q and k are layer-normed, so |q·k|/√F ≤ √F. c = w·h + b controls how much a position copies; it is 0 at initialisation.
    Masks and tokens that are not visible from a position are not copied.
    """

    def __init__(self, width: int, layer: int):
        super().__init__()
        self.layer = layer  # under which the cache keeps keys [B, 1, n, F] and tokens [B, 1, n]
        features = min(FEATURES, width)
        self.query = nn.Linear(width, features, bias=False)
        self.key = nn.Linear(width, features, bias=False)
        self.level = nn.Linear(width, 1)
        nn.init.zeros_(self.level.weight)
        nn.init.zeros_(self.level.bias)

    def forward(
        self,
        output: Tensor,
        asked: Tensor,
        states: Tensor,
        x: Tensor,
        where: Tensor | None,
        causal: bool,
        cache: Cache | None,
        visibility: Visibility | None,
    ) -> Tensor:
        """Return o'.

        output: o, [n, K] at `where` or [B, L, K].
        asked: the normed features h from which o is computed, [n, D] or [B, L, D].
        states: the normed features of the keys, [B, L, D].
        x: the tokens, [B, L].
        """
        if x.is_floating_point():
            raise ValueError("a pointer needs tokens, found a state of real numbers: build the network with pointer=False")
        vocab = output.shape[-1]
        if where is None:
            where = torch.ones_like(x, dtype=torch.bool)
        row = where.nonzero()[:, 0]
        q, k = (F.layer_norm(part, part.shape[-1:]) for part in (self.query(asked), self.key(states)))
        tokens = x
        if cache is not None:
            k, tokens = (part[:, 0] for part in cache.extend(self.layer, k[:, None], tokens[:, None]))
        copied = (tokens < vocab)[:, None] & seen(x.shape[1], tokens.shape[1], causal, visibility, x.device)
        copied = copied.expand(*x.shape, -1)[where]  # [n, S]
        tokens = torch.where(tokens < vocab, tokens, 0)
        first = (tokens[:, :, None] == tokens[:, None]).byte().argmax(2)[row]  # first position of each token
        q = q.new_zeros(*x.shape, q.shape[-1]).masked_scatter(where[..., None], q)
        scores = (q @ k.transpose(1, 2))[where] * q.shape[-1] ** -0.5 + self.level(asked).reshape(-1, 1)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~copied, -torch.inf)
        highest = scores.detach().amax(1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        sums = torch.zeros_like(scores).scatter_add(1, first, (scores - highest).exp())  # Σ over the positions of a token
        there = sums > 0
        log_sums = torch.where(there, sums, 1.0).log() + highest
        flat, at = output.reshape(-1, vocab), tokens[row]
        now = flat.gather(1, at).to(scores.dtype)
        more = torch.where(there, torch.logaddexp(now, torch.where(there, log_sums, now)) - now, 0.0)  # o' − o
        return flat.scatter_add(1, at, more.to(flat.dtype)).view_as(output)


def seen(length: int, total: int, causal: bool, visibility: Visibility | None, device: torch.device) -> Tensor:
    """Return which of `total` positions, the first of them cached, are visible from the last `length`: [1 or B, L or 1, S]."""
    if visibility is not None and visibility.attention_mask is not None:
        mask = visibility.attention_mask
        return mask[:, 0] if mask.dim() == 4 else mask[None]
    everything = torch.ones(1, length, total, dtype=torch.bool, device=device)
    return everything.tril(total - length) if causal else everything
