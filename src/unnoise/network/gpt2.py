"""The decoder of GPT-2 (Radford et al. 2019), for published weights, and to train from scratch.

    x_i = E[token i] + P[i],   x ← x + W_o·attention(LayerNorm(x)),   x ← x + W_down·gelu(W_up·LayerNorm(x))

Learned positions P, LayerNorm and matrices with biases, gelu by its tanh approximation, no time. With `causal=False` the same
weights serve masked and block methods. Matrices may be in half precision, memory-mapped on the disk; everything is computed in
the precision of the norms.
"""

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.base import Cache
from unnoise.network.config import check_sizes
from unnoise.network.dropout import Dropout
from unnoise.network.linear import Linear, linear
from unnoise.network.visibility import block_visibility, without_padding

STD = 0.02  # of fresh weights


@dataclass(frozen=True)
class Gpt2Config:
    """Sizes of a network, and its inputs and outputs.

    inputs: number of states of a token, or of numbers at a position.
    outputs: number of entries of the last axis.
    length: the longest sequence; the number of learned positions.
    width, depth, heads: features of a position, blocks, attention heads.
    hidden: features of the perceptron; four times the width by default.
    causal: whether a position attends only to itself and to what is before it.
    norm_eps: the term that LayerNorm adds to the variance.
    tied: whether the output head is the embedding of the first `outputs` tokens.
    """

    inputs: int
    outputs: int
    length: int
    width: int
    depth: int
    heads: int
    hidden: int
    causal: bool
    norm_eps: float
    tied: bool

    def __post_init__(self) -> None:
        check_sizes(self, "inputs", "outputs", "length", "width", "depth", "heads", "hidden")
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

    def forward(self, x: Tensor, cache: Cache | None, mask: Tensor | None) -> Tensor:
        # q, k, v: [B, H, L, D]
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)
        length, seen = q.shape[2], k.shape[2]
        whole = self.causal and mask is None and length == seen
        if self.causal and mask is None and 1 < length < seen:  # several tokens after a cached past
            mask = torch.ones(length, seen, dtype=torch.bool, device=x.device).tril(seen - length)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=whole and length > 1)
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
        self, x: Tensor, cache: Cache | None, mask: Tensor | None, where: Tensor | None, dropout: Dropout | None
    ) -> Tensor:
        """[B, L, W] → [B, L, W]; with `where` the perceptron runs at those n positions alone, and the result is [n, W]."""
        attended = self.attention(self.attention_norm(x), cache, mask)
        x = x + (attended if dropout is None else dropout(attended, 2 * self.layer))
        x = x if where is None else x[where]
        processed = self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))
        return x + (processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))


class Gpt2(nn.Module):
    """x [B, L] long → [B, L, outputs], or [n, outputs] at the positions `where` alone; built from the fields of `Gpt2Config`.

    x may also be a state of numbers, [B, L, inputs]: soft tokens, or a noised embedding. t is not used.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        length: int,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        hidden: int | None = None,
        causal: bool = False,
        norm_eps: float = 1e-5,
        tied: bool = True,
    ):
        super().__init__()
        hidden = 4 * width if hidden is None else hidden
        shape = self.shape = Gpt2Config(inputs, outputs, length, width, depth, heads, hidden, causal, norm_eps, tied)
        self.config = asdict(shape)
        self.embed = nn.Embedding(inputs, width, _weight=torch.empty(inputs, width))
        self.positions = nn.Embedding(length, width, _weight=torch.empty(length, width))
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(depth))
        self.norm = nn.LayerNorm(width, norm_eps)
        self.head = None if tied else Linear(width, outputs, bias=False)
        self._begin()

    def _begin(self) -> None:
        """Draw fresh weights: the output of each branch starts at zero, and so do all biases and a separate output head."""
        if self.embed.weight.is_meta:
            return
        for name, weight in self.named_parameters():
            if name.endswith((".out.weight", ".down.weight", "head.weight", ".bias")):
                nn.init.zeros_(weight)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=STD)

    def forward(
        self,
        x: Tensor,
        t: Tensor | None = None,
        where: Tensor | None = None,
        cache: Cache | None = None,
        present: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        block: int | None = None,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """Return the output.

        present: [B, L], false at padding, to which no position attends.
        attention_mask: [L, L], or [L, n + L] after n cached tokens; it replaces the causal mask.
        block: x is x_t ⊕ x_0 in blocks of this size.
        The other arguments are described in `network/base.py`.
        """
        if block is not None:
            attention_mask, positions = block_visibility(x.shape[1] // 2, block, x.device)
        start = 0 if cache is None else cache.length
        length = start + x.shape[1] if positions is None else int(positions.max()) + 1
        if length > self.shape.length:
            raise ValueError(f"this network takes sequences of at most {self.shape.length} tokens, found {length}")
        places = torch.arange(start, length, device=x.device) if positions is None else positions
        mask = attention_mask if present is None else without_padding(present, attention_mask, self.shape.causal)
        h = self._embedded(x) + F.embedding(places, self.positions.weight).to(self.norm.weight.dtype)
        *blocks, last = self.blocks
        for one in blocks:
            h = one(h, cache, mask, None, dropout)
        h = self.norm(last(h, cache, mask, where, dropout))
        if cache is not None and cache.store:
            cache.length = length
        return linear(h, self.embed.weight[: self.shape.outputs]) if self.head is None else self.head(h)

    def _embedded(self, x: Tensor) -> Tensor:
        """[B, L] long, or [B, L, inputs] soft tokens → [B, L, W]."""
        dtype = self.norm.weight.dtype
        return x @ self.embed.weight.to(dtype) if x.is_floating_point() else F.embedding(x, self.embed.weight).to(dtype)
