"""The decoder of Llama, Mistral, Qwen2 and Qwen3, for weights that were trained elsewhere, and to train from scratch.

    x ← x + W_o·attention(RMSNorm(x)),   x ← x + W_down·(silu(W_gate·h) ⊙ W_up·h) with h = RMSNorm(x)

Rotary positions on halves of a head (pairs i, i + D/2), grouped-query heads (several query heads share one head of keys and
values), SwiGLU (arXiv:2002.05202), no time. Llama 2: arXiv:2307.09288; Qwen3, which normalises queries and keys:
arXiv:2505.09388. Not `causal`, the same weights serve masked and block methods.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.base import Cache
from unnoise.network.dropout import Dropout

LARGEST = {"depth": 1000, "width": 2**16, "heads": 2**12}
STD = 0.02  # of fresh weights


@dataclass(frozen=True)
class LlamaConfig:
    """How large a network is, and what it reads and writes.

    inputs: how many states a token may have, or how many numbers a position holds.
    outputs: entries of the last axis.
    length: the longest text.
    width, depth, heads: features of a position, blocks, heads of queries.
    kv_heads: heads of keys and values; as many as `heads` by default.
    head_width: features of a head; width / heads by default.
    hidden: features of the perceptron; 8/3 of the width by default, rounded up to a multiple of 8.
    causal: whether a position sees only what is before it.
    rotary_base: the longest wave of the rotary positions is nearly 2π times this.
    rotary_factors: by what each of the head_width/2 frequencies is divided; none by default.
    norm_eps: what RMSNorm adds to the mean square.
    qk_norm: whether queries and keys are normalised, head by head (Qwen3).
    qkv_bias: whether queries, keys and values have biases (Qwen2).
    tied: whether the output head is the embedding of the first `outputs` tokens.
    """

    inputs: int
    outputs: int
    length: int
    width: int
    depth: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    causal: bool
    rotary_base: float
    rotary_factors: tuple[float, ...]
    norm_eps: float
    qk_norm: bool
    qkv_bias: bool
    tied: bool

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "length", "width", "depth", "heads", "kv_heads", "head_width", "hidden"):
            value = vars(self)[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"a network's {name} must be a whole number ≥ 1, found {value!r}")
            if value > LARGEST.get(name, 2**24):
                raise ValueError(f"a network's {name} must be ≤ {LARGEST.get(name, 2**24):,}, found {value:,}")
        if self.heads % self.kv_heads:
            raise ValueError(f"a network's heads must be a multiple of its kv_heads, found {self.heads} and {self.kv_heads}")
        if self.head_width % 2:
            raise ValueError(f"a network's head_width must be even, found {self.head_width}")
        if self.rotary_factors and len(self.rotary_factors) != self.head_width // 2:
            raise ValueError(
                f"a network's rotary_factors must be {self.head_width // 2} numbers, found {len(self.rotary_factors)}"
            )
        for name in ("rotary_base", "norm_eps"):
            value = vars(self)[name]
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"a network's {name} must be a number > 0, found {value!r}")
        if self.tied and self.outputs > self.inputs:
            raise ValueError(f"a tied head needs outputs ≤ inputs, found {self.outputs} and {self.inputs}")

    def frequencies(self) -> Tensor:
        """By what each pair of features turns from one position to the next: base^{−2i/D} / factor_i, [D/2]."""
        waves = 1 / self.rotary_base ** (torch.arange(0, self.head_width, 2).float() / self.head_width)
        return waves / torch.tensor(self.rotary_factors) if self.rotary_factors else waves


class Attention(nn.Module):
    """Attention with grouped-query heads and rotated queries and keys: [B, L, W] → [B, L, W]."""

    def __init__(self, shape: LlamaConfig, layer: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = shape.heads, shape.kv_heads, shape.head_width
        self.causal, self.layer = shape.causal, layer
        self.qkv = nn.Linear(shape.width, (shape.heads + 2 * shape.kv_heads) * shape.head_width, bias=shape.qkv_bias)
        self.out = nn.Linear(shape.heads * shape.head_width, shape.width, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_width, shape.norm_eps) if shape.qk_norm else None
        self.k_norm = nn.RMSNorm(shape.head_width, shape.norm_eps) if shape.qk_norm else None

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: Cache | None, mask: Tensor | None) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)  # [B, H, L, D]
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], 1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)
        length, seen = q.shape[2], k.shape[2]
        whole = self.causal and mask is None and length == seen
        if self.causal and mask is None and 1 < length < seen:  # several tokens after a cached past
            mask = torch.ones(length, seen, dtype=torch.bool, device=x.device).tril(seen - length)
        shared = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=whole and length > 1, enable_gqa=shared)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(norm x), then x + down(silu(gate) ⊙ up) of norm x."""

    def __init__(self, shape: LlamaConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.attention_norm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.attention = Attention(shape, layer)
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.gate_up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        cache: Cache | None,
        mask: Tensor | None,
        where: Tensor | None,
        dropout: Dropout | None,
    ) -> Tensor:
        """[B, L, W] → [B, L, W]; with `where` the perceptron runs there alone, and only those n positions come back, [n, W]."""
        attended = self.attention(self.attention_norm(x), rotation, cache, mask)
        x = x + (attended if dropout is None else dropout(attended, 2 * self.layer))
        x = x if where is None else x[where]
        gate, up = self.gate_up(self.norm(x)).chunk(2, -1)
        processed = self.down(F.silu(gate) * up)
        return x + (processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))


class Llama(nn.Module):
    """x [B, L] long → [B, L, outputs], or [n, outputs] at the positions `where` alone; built from the fields of `LlamaConfig`.

    x may also be a state of numbers, [B, L, inputs]: soft tokens, or a noised embedding. t is not read.
    """

    frequencies: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        length: int,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        kv_heads: int | None = None,
        head_width: int | None = None,
        hidden: int | None = None,
        causal: bool = False,
        rotary_base: float = 10_000.0,
        rotary_factors: Sequence[float] = (),
        norm_eps: float = 1e-5,
        qk_norm: bool = False,
        qkv_bias: bool = False,
        tied: bool = False,
    ):
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"a network's width must be a multiple of its heads, found width {width} and {heads} heads")
        kv_heads = heads if kv_heads is None else kv_heads
        head_width = width // heads if head_width is None else head_width
        hidden = -(-width // 3) * 8 if hidden is None else hidden
        shape = self.shape = LlamaConfig(
            *(inputs, outputs, length, width, depth, heads, kv_heads, head_width, hidden, causal),
            *(rotary_base, tuple(rotary_factors), norm_eps, qk_norm, qkv_bias, tied),
        )
        self.config = asdict(shape)
        self.embed = nn.Embedding(inputs, width)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(depth))
        self.norm = nn.RMSNorm(width, norm_eps)
        self.head = None if tied else nn.Linear(width, outputs, bias=False)
        self.register_buffer("frequencies", shape.frequencies(), persistent=False)
        self._begin()

    def _begin(self) -> None:
        """Fresh weights: what is added to x starts at zero, and so does an output head of its own."""
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
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        dropout: Dropout | None = None,
    ) -> Tensor:
        """The output. attention_mask: [L, L], or [L, n + L] after n cached tokens; it alone then says who sees whom. For the
        rest see network/base.py."""
        start = cache.length if cache is not None else 0
        length = self._check_length(start + x.shape[1] if positions is None else int(positions.max()) + 1)
        places = torch.arange(start, length, device=x.device) if positions is None else positions
        angle = places[:, None] * self.frequencies  # [L, D/2]
        rotation = angle.cos(), angle.sin()
        h = x @ self.embed.weight if x.is_floating_point() else self.embed(x)
        *blocks, last = self.blocks
        for block in blocks:
            h = block(h, rotation, cache, attention_mask, None, dropout)
        h = self.norm(last(h, rotation, cache, attention_mask, where, dropout))
        if cache is not None and cache.store:
            cache.length = length
        return F.linear(h, self.embed.weight[: self.shape.outputs]) if self.head is None else self.head(h)

    def _check_length(self, length: int) -> int:
        if length > self.shape.length:
            raise ValueError(f"this network reads texts of at most {self.shape.length} tokens, found {length}")
        return length


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs (i, i + D/2) turned by their position's angle: [B, H, L, D], [L, D/2] → [B, H, L, D]."""
    cos, sin = rotation
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
