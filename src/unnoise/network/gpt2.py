"""The decoder of GPT-2 (Radford et al. 2019), for published weights and new training runs.

    x_i = E[token i] + P[i],   x ← x + W_o·attention(LayerNorm(x)),   x ← x + W_down·gelu(W_up·LayerNorm(x))

Positions P are learned, norms and matrices have biases, GELU uses the tanh approximation, and there is no time conditioning.
With `causal=False` the same weights serve masked and block methods. Weight matrices may be memory-mapped in half precision;
everything is computed in the precision of the norms.
"""

import inspect
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.attention import KVCache, attend_masked, block_visibility, without_padding
from unnoise.network.layers import Dropout, Linear, initialize, linear
from unnoise.network.network_base import DERIVED, NetworkConfig


@dataclass(frozen=True)
class Gpt2Config(NetworkConfig):
    """Fields of a `Gpt2`, in addition to the common ones; `length` is also the number of learned positions.

    hidden: features of the MLP; four times the width by default.
    causal: whether a position attends only to itself and to earlier positions.
    norm_eps: constant that LayerNorm adds to the variance.
    tied: whether the output head is the embedding of the first `outputs` tokens.
    """

    hidden: int = DERIVED
    causal: bool = False
    norm_eps: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        self.derive(hidden=4 * self.width)
        self.check_sizes("hidden")
        if self.width % self.heads:
            raise ValueError(
                f"a network's width must be a multiple of its heads, found width {self.width} and {self.heads} heads"
            )
        if not isinstance(self.norm_eps, int | float) or not 0 < self.norm_eps < math.inf:
            raise ValueError(f"a network's norm_eps must be a number > 0, found {self.norm_eps!r}")
        if self.tied and self.outputs > self.inputs:
            raise ValueError(f"a tied head needs outputs ≤ inputs, found {self.outputs} and {self.inputs}")


class Attention(nn.Module):
    """Multi-head attention with biases: [B, L, W] → [B, L, W]. The rows of `qkv` are queries, keys and values."""

    def __init__(self, shape: Gpt2Config, layer: int):
        super().__init__()
        self.heads, self.causal, self.layer = shape.heads, shape.causal, layer
        self.qkv = Linear(shape.width, 3 * shape.width)
        self.out = Linear(shape.width, shape.width)

    def forward(self, x: Tensor, cache: KVCache | None, mask: Tensor | None) -> Tensor:
        # q, k, v: [B, H, L, D]
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        y = attend_masked(q, k, v, self.causal, mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(norm x), then x + down(gelu(up)) of norm x."""

    def __init__(self, shape: Gpt2Config, layer: int):
        super().__init__()
        self.layer = layer
        self.attention_norm = nn.LayerNorm(shape.width, shape.norm_eps)
        self.attention = Attention(shape, layer)
        self.norm = nn.LayerNorm(shape.width, shape.norm_eps)
        self.up = Linear(shape.width, shape.hidden)
        self.down = Linear(shape.hidden, shape.width)

    def forward(
        self, x: Tensor, cache: KVCache | None, mask: Tensor | None, where: Tensor | None, dropout: Dropout | None
    ) -> Tensor:
        """[B, L, W] → [B, L, W]; with `where` the MLP runs only at those n positions, and the result is [n, W]."""
        attended = self.attention(self.attention_norm(x), cache, mask)
        x = x + (attended if dropout is None else dropout(attended, 2 * self.layer))
        x = x if where is None else x[where]
        processed = self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))
        return x + (processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))


class Gpt2(nn.Module):
    """x [B, L] long → [B, L, outputs], or [n, outputs] at the positions `where` alone; takes the fields of `Gpt2Config`.

    x may also be a state of real numbers, [B, L, inputs]: soft tokens or noised embeddings. t is ignored.
    """

    __signature__ = inspect.signature(Gpt2Config)

    def __init__(self, **fields: Any):
        super().__init__()
        shape = self.shape = Gpt2Config(**fields)
        self.config = asdict(shape)
        self.embed = nn.Embedding(shape.inputs, shape.width, _weight=torch.empty(shape.inputs, shape.width))
        self.positions = nn.Embedding(shape.length, shape.width, _weight=torch.empty(shape.length, shape.width))
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width, shape.norm_eps)
        self.head = None if shape.tied else Linear(shape.width, shape.outputs, bias=False)
        initialize(self)

    def forward(
        self,
        x: Tensor,
        t: Tensor | None = None,
        where: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        present: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        block: int | None = None,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """Return the output; network/network_base.py explains the arguments.

        attention_mask: [L, L], or [L, n + L] after n cached tokens; it replaces the causal mask.
        """
        if block is not None:
            attention_mask, positions = block_visibility(x.shape[1] // 2, block, x.device)
        start = 0 if cache is None else cache.length
        length = self.shape.check_length(start + x.shape[1] if positions is None else int(positions.max()) + 1)
        places = torch.arange(start, length, device=x.device) if positions is None else positions
        mask = attention_mask if present is None else without_padding(present, attention_mask, self.shape.causal)
        h = self._embedded(x) + F.embedding(places, self.positions.weight).to(self.norm.weight.dtype)
        *blocks, last = self.blocks
        for one in blocks:
            h = one(h, cache, mask, None, dropout)
        h = self.norm(last(h, cache, mask, where, dropout))
        if cache is not None and not cache.frozen:
            cache.length = length
        return linear(h, self.embed.weight[: self.shape.outputs]) if self.head is None else self.head(h)

    def _embedded(self, x: Tensor) -> Tensor:
        """[B, L] long, or [B, L, inputs] soft tokens → [B, L, W]."""
        dtype = self.norm.weight.dtype
        return x @ self.embed.weight.to(dtype) if x.is_floating_point() else F.embedding(x, self.embed.weight).to(dtype)
