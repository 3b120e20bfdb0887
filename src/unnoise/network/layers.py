"""Layers that the networks share: linear maps, activations, norms, dropout and the pointer head."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.attention import KVCache, Visibility, copyable
from unnoise.rng import bits

RAISED = 2**22  # weights that are converted at once
STD = 0.02  # standard deviation of initial weights


class Linear(nn.Linear):
    """xWᵀ + b in the precision of x: [*, in] → [*, out]. Its weights are drawn by `initialize`, for the whole network."""

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


def initialize(decoder: nn.Module) -> None:
    """Draw the weights of a decoder: matrices from N(0, 0.02²); branches, biases and a separate output head start at zero."""
    for name, weight in decoder.named_parameters():
        if weight.is_meta:
            return
        if name.endswith((".out.weight", ".down.weight", "head.weight", ".bias")):
            nn.init.zeros_(weight)
        elif weight.dim() == 2:
            nn.init.normal_(weight, std=STD)


class SquaredRelu(torch.autograd.Function):
    """y = max(x, 0)², dy/dx = 2·max(x, 0), in two passes over memory each way instead of the five of relu and square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.clamp_min(0)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return (gradients[0] * positive).mul_(2)


def normalize(x: Tensor) -> Tensor:
    """Apply LayerNorm without weights; it is one fused kernel, while RMSNorm is several on a CPU."""
    return F.layer_norm(x, x.shape[-1:])


def modulate(x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """Apply LayerNorm, then the scale and shift of the time conditioning, if any: [B, L, D]."""
    x = normalize(x)
    return x if scale is None or shift is None else x * (1 + scale) + shift


STEPS = 2**16  # resolution of the rate: 64 random bits decide about four features


@dataclass(frozen=True)
class Dropout:
    """Zeroing of features with probability `rate`; the others are scaled by 1/(1 − rate).

    keys: one key per row, [B] long (`RowGenerator.next_keys`). There is no state, so activation checkpointing drops the same
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


FEATURES = 64  # F of queries and keys, at most


class Pointer(nn.Module):
    """Output head that mixes the logits with a copy distribution over the visible tokens.

    It maps o [n, K] → o' [n, K], or [B, L, K] → [B, L, K]. q and k are layer-normalized, so |q·k|/√F ≤ √F. The copy strength
    of a position, c = w·h + b, is 0 at initialization. Masks, and tokens that are not visible from a position, are never
    copied.
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
        *,
        causal: bool,
        cache: KVCache | None,
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
            k, tokens = (part[:, 0] for part in cache.append(self.layer, k[:, None], tokens[:, None]))
        copied = (tokens < vocab)[:, None] & copyable(x.shape[1], tokens.shape[1], causal, visibility, x.device)
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
