"""The decoder of Llama, Mistral, Qwen2 and Qwen3, for published weights and new training runs. Without the causal mask it is
the network of LLaDA, Dream, SDAR, A2D and Fast-dLLM v2.

    x ← x + W_o·attention(RMSNorm(x)),   x ← x + W_down·(silu(W_gate·h) ⊙ W_up·h) with h = RMSNorm(x)

Rotary positions rotate halves of a head (pairs i, i + D/2). Several query heads share one head of keys and values. The MLP is
SwiGLU (arXiv:2002.05202). There is no time conditioning. Llama 2: arXiv:2307.09288; Qwen3, which normalizes queries and keys:
arXiv:2505.09388; masked models with these weights: LLaDA, arXiv:2502.09992, and Dream, arXiv:2508.15487.

Weight matrices may be memory-mapped in half precision; everything is computed in the precision of the norms. In networks that
were causal row i − 1 may predict position i (Dream, Fast-dLLM v2): `ShiftedRows`.
"""

import inspect
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.attention import KVCache, attend_masked, block_visibility, rotate_heads, without_padding
from unnoise.network.layers import Dropout, Linear, initialize, linear
from unnoise.network.network_base import DERIVED, NetworkConfig


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
    def of(x: Tensor, where: Tensor | None, block: int | None, cache: KVCache | None) -> "ShiftedRows":
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
        if cache is not None and not cache.frozen:
            needed[:, -1] = True
        return ShiftedRows(needed, batch, rows, shape if where is None else (len(rows),))

    def taken(self, h: Tensor, cache: KVCache | None) -> Tensor:
        """Select the row of each position from the m computed rows: [m, W] → [n, W] or [B, L, W]; store the last row."""
        number = (self.needed.flatten().cumsum(0) - 1).view(self.needed.shape)
        before = None if cache is None else cache.last_hidden
        if cache is not None and not cache.frozen:
            cache.last_hidden = h[number[:, -1]]
        found = number[self.batch, self.source]
        if before is not None:
            found = torch.where(self.source < 0, len(h) + self.batch, found)
            h = torch.cat([h, before])
        return h[found].view(*self.shape, h.shape[-1])


@dataclass(frozen=True)
class LlamaConfig(NetworkConfig):
    """Fields of a `Llama`, in addition to the common ones.

    kv_heads: number of key and value heads; `heads` by default.
    head_width: features per head; width / heads by default.
    hidden: features of the MLP; 8/3 of the width by default, rounded up to a multiple of 8.
    causal: whether a position attends only to itself and to earlier positions.
    rotary_base: base of the rotary frequencies; the longest wavelength is nearly 2π times this.
    rotary_factors: divisors of the head_width/2 rotary frequencies; none by default.
    norm_eps: constant that RMSNorm adds to the mean square.
    qk_norm: whether queries and keys are normalized per head (Qwen3).
    qkv_bias: whether queries, keys and values have biases (Qwen2).
    tied: whether the output head is the embedding of the first `outputs` tokens.
    shift: whether row i − 1 predicts position i, as in a causal model, and row 0 also position 0 (Dream, Fast-dLLM v2).
    mask_token: vocabulary token that serves as the mask; the last state, inputs − 1, uses its embedding.
    """

    kv_heads: int = DERIVED
    head_width: int = DERIVED
    hidden: int = DERIVED
    causal: bool = False
    rotary_base: float = 10_000.0
    rotary_factors: tuple[float, ...] = ()
    norm_eps: float = 1e-5
    qk_norm: bool = False
    qkv_bias: bool = False
    tied: bool = False
    shift: bool = False
    mask_token: int | None = None

    def __post_init__(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"a network's width must be a multiple of its heads, found width {self.width} and {self.heads} heads"
            )
        hidden = -(-self.width // 3) * 8
        self.derive(kv_heads=self.heads, head_width=self.width // self.heads, hidden=hidden)
        object.__setattr__(self, "rotary_factors", tuple(self.rotary_factors))  # config.json holds a list
        self.check_sizes("kv_heads", "head_width", "hidden")
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
        token = self.mask_token
        if token is not None and (isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self.inputs - 1):
            raise ValueError(f"a network's mask_token must be one of its tokens 0…{self.inputs - 2}, found {token!r}")
        if self.tied and self.outputs > self.rows:
            raise ValueError(f"a tied head needs outputs ≤ inputs, found {self.outputs} and {self.rows}")

    @property
    def rows(self) -> int:
        """Number of rows of the embedding."""
        return self.inputs - (self.mask_token is not None)

    def frequencies(self) -> Tensor:
        """Return the rotary frequencies base^{−2i/D} / factor_i: [D/2]."""
        pairs = torch.arange(0, self.head_width, 2, device="cpu").float()
        waves = 1 / self.rotary_base ** (pairs / self.head_width)
        return waves / torch.tensor(self.rotary_factors, device="cpu") if self.rotary_factors else waves


class Attention(nn.Module):
    """Attention with grouped-query heads and rotated queries and keys: [B, L, W] → [B, L, W]."""

    def __init__(self, shape: LlamaConfig, layer: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = shape.heads, shape.kv_heads, shape.head_width
        self.causal, self.layer = shape.causal, layer
        self.q = Linear(shape.width, shape.heads * shape.head_width, bias=shape.qkv_bias)
        self.k = Linear(shape.width, shape.kv_heads * shape.head_width, bias=shape.qkv_bias)
        self.v = Linear(shape.width, shape.kv_heads * shape.head_width, bias=shape.qkv_bias)
        self.out = Linear(shape.heads * shape.head_width, shape.width, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_width, shape.norm_eps) if shape.qk_norm else None
        self.k_norm = nn.RMSNorm(shape.head_width, shape.norm_eps) if shape.qk_norm else None

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: KVCache | None, mask: Tensor | None) -> Tensor:
        # q, k, v: [B, H, L, D]
        q, k, v = (part(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in (self.q, self.k, self.v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate_heads(q, rotation), rotate_heads(k, rotation)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        y = attend_masked(q, k, v, self.causal, mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(norm x), then x + down(silu(gate) ⊙ up) of norm x."""

    def __init__(self, shape: LlamaConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.attention_norm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.attention = Attention(shape, layer)
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.gate = Linear(shape.width, shape.hidden, bias=False)
        self.up = Linear(shape.width, shape.hidden, bias=False)
        self.down = Linear(shape.hidden, shape.width, bias=False)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        cache: KVCache | None,
        mask: Tensor | None,
        *,
        where: Tensor | None,
        dropout: Dropout | None,
    ) -> Tensor:
        """[B, L, W] → [B, L, W]; with `where` the MLP runs only at those n positions, and the result is [n, W]."""
        attended = self.attention(self.attention_norm(x), rotation, cache, mask)
        x = x + (attended if dropout is None else dropout(attended, 2 * self.layer))
        x = x if where is None else x[where]
        h = self.norm(x)
        processed = self.down(F.silu(self.gate(h)) * self.up(h))
        return x + (processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))


class Llama(nn.Module):
    """x [B, L] long → [B, L, outputs], or [n, outputs] at the positions `where` alone; takes the fields of `LlamaConfig`.

    x may also be a state of real numbers, [B, L, inputs]: soft tokens or noised embeddings. t is ignored.
    """

    frequencies: Tensor

    __signature__ = inspect.signature(LlamaConfig)

    def __init__(self, **fields: Any):
        super().__init__()
        shape = self.shape = LlamaConfig(**fields)
        self.config = asdict(shape)
        self.embed = nn.Embedding(shape.rows, shape.width, _weight=torch.empty(shape.rows, shape.width))
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.depth))
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.head = None if shape.tied else Linear(shape.width, shape.outputs, bias=False)
        self.register_buffer("frequencies", shape.frequencies(), persistent=False)
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
        angle = places[:, None] * self.frequencies  # [L, D/2]
        rotation = angle.cos(), angle.sin()
        mask = attention_mask if present is None else without_padding(present, attention_mask, self.shape.causal)
        rows = ShiftedRows.of(x, where, block, cache) if self.shape.shift else None
        at = where if rows is None else rows.needed
        h = self._embedded(x)
        *blocks, last = self.blocks
        for one in blocks:
            h = one(h, rotation, cache, mask, where=None, dropout=dropout)
        h = self.norm(last(h, rotation, cache, mask, where=at, dropout=dropout))
        h = h if rows is None else rows.taken(h, cache)
        if cache is not None and not cache.frozen:
            cache.length = length
        return linear(h, self.embed.weight[: self.shape.outputs]) if self.head is None else self.head(h)

    def _embedded(self, x: Tensor) -> Tensor:
        """[B, L] long, or [B, L, inputs] soft tokens → [B, L, W]."""
        mask, dtype = self.shape.mask_token, self.norm.weight.dtype
        if not x.is_floating_point():
            x = x if mask is None else x.masked_fill(x == self.shape.inputs - 1, mask)
            return F.embedding(x, self.embed.weight).to(dtype)
        if mask is not None:
            place = torch.tensor([mask], device=x.device)
            x = x[..., :-1].index_add(-1, place, x[..., -1:])
        return x @ self.embed.weight.to(dtype)
