"""The network of MD4 (arXiv:2406.04329), for its published weights and new training runs.

    x ← x + g_1 ⊙ W_o·attention((1 + s_1) ⊙ LN(x) + b_1),   x ← x + g_2 ⊙ W_2(a(W_1 h) ⊙ W_3 h),  h = (1 + s_2) ⊙ LN(x) + b_2

LayerNorm has no weights (ε = 10⁻⁵), positions are rotary, and the gated MLP has a = sigmoid ("glu"). Shifts b, scales s and
gates g of each block are W·a(c) + bias (adaLN-zero), where c is an MLP of [sin, cos](1000·t·f_k),
f_k = 10000^{−k/(F/2−1)}.
"""

import inspect
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.attention import rotate_heads
from unnoise.network.network_base import DERIVED, NetworkConfig

BASE = 10_000.0  # longest wavelength of rotary positions and of the time embedding, over 2π
EPS = 1e-5
TIMES = 1000.0  # factor applied to t
STD = 0.02  # standard deviation of initial weights
ACTIVATIONS = {"glu": torch.sigmoid, "swiglu": F.silu}


@dataclass(frozen=True)
class Md4Config(NetworkConfig):
    """Fields of an `Md4Network`, in addition to the common ones.

    hidden: features of the MLP; 8/3 of the width by default, rounded up to a multiple of 32.
    features: features of the condition c, an even number; the width of a head by default.
    embed_width: features of the embedding, which a matrix projects to `width`; 0 for an embedding of that width.
    mlp_type: activation a of the MLP and of the condition, "glu" (sigmoid) or "swiglu" (silu).
    time: whether the network is conditioned on t; otherwise c is 0.
    """

    hidden: int = DERIVED
    features: int = DERIVED
    embed_width: int = 0
    mlp_type: str = "glu"
    time: bool = True

    def __post_init__(self) -> None:
        hidden = -(-(8 * self.width // 3) // 32) * 32
        self.derive(hidden=hidden, features=max(4, self.width // max(1, self.heads)))
        self.check_sizes("hidden", "features")
        if isinstance(self.embed_width, bool) or not isinstance(self.embed_width, int) or not 0 <= self.embed_width <= 2**16:
            raise ValueError(f"a network's embed_width must be a whole number ≥ 0, found {self.embed_width!r}")
        self.check_heads()
        if self.features % 2 or self.features < 4:
            raise ValueError(f"a network's features must be an even number ≥ 4, found {self.features}")
        if self.mlp_type not in ACTIVATIONS:
            raise ValueError(f"a network's mlp_type must be one of {', '.join(ACTIVATIONS)}, found {self.mlp_type!r}")


class Block(nn.Module):
    """Attention and a gated MLP, each with a gate and with a norm that the condition scales and shifts."""

    def __init__(self, shape: Md4Config):
        super().__init__()
        self.heads, self.activation = shape.heads, ACTIVATIONS[shape.mlp_type]
        self.q, self.k, self.v, self.out = (nn.Linear(shape.width, shape.width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(shape.width, shape.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)
        self.adaln = nn.Linear(shape.features, 6 * shape.width)

    def forward(self, x: Tensor, c: Tensor, rotation: tuple[Tensor, Tensor], where: Tensor | None) -> Tensor:
        """x [B, L, W], c [B, 1 or L, F] → [B, L, W]; with `where` the MLP runs only there: [n, W]."""
        changes = self.adaln(c).chunk(6, -1)
        h = scaled(x, changes[0], changes[1])
        q, k, v = (part(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate_heads(q, rotation), rotate_heads(k, rotation), v)
        x = x + changes[2] * self.out(y.transpose(1, 2).flatten(2))
        shift, scale, gate = changes[3:]
        if where is not None:
            shift, scale, gate = (change.expand_as(x)[where] for change in (shift, scale, gate))
            x = x[where]
        h = scaled(x, shift, scale)
        return x + gate * self.down(self.activation(self.gate(h)) * self.up(h))


class Md4Network(nn.Module):
    """x [B, L] long, t [B] or [B, L] → [B, L, outputs], or [n, outputs] at the positions `where` alone; takes the fields
    of `Md4Config`."""

    frequencies: Tensor
    waves: Tensor

    __signature__ = inspect.signature(Md4Config)

    def __init__(self, **fields: Any):
        super().__init__()
        shape = self.shape = Md4Config(**fields)
        self.config = asdict(shape)
        width, features = shape.width, shape.features
        self.embed = nn.Embedding(shape.inputs, shape.embed_width or width)
        self.embed_out = nn.Linear(shape.embed_width, width) if shape.embed_width else None
        self.time_in = nn.Linear(features, 4 * features)
        self.time_out = nn.Linear(4 * features, features)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.adaln = nn.Linear(features, 2 * width)
        self.head = nn.Linear(width, shape.outputs, bias=False)
        half, size = features // 2, width // shape.heads
        turns = 1 / BASE ** (torch.arange(0, size, 2, device="cpu").float() / size)
        waves = BASE ** (-torch.arange(half, device="cpu").float() / (half - 1))
        self.register_buffer("frequencies", turns, persistent=False)
        self.register_buffer("waves", waves, persistent=False)
        for name, weight in self.named_parameters():
            if name.startswith("head") or "adaln" in name or name.endswith("bias"):
                nn.init.zeros_(weight)
            else:
                nn.init.normal_(weight, std=STD)

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        self.shape.check_length(x.shape[1])
        h = x @ self.embed.weight if x.is_floating_point() else self.embed(x)
        h = h if self.embed_out is None else self.embed_out(h)
        angle = torch.arange(x.shape[1], device=x.device)[:, None] * self.frequencies
        rotation = angle.cos(), angle.sin()
        c = ACTIVATIONS[self.shape.mlp_type](self._condition(t, x))
        *blocks, last = self.blocks
        for block in blocks:
            h = block(h, c, rotation, None)
        h = last(h, c, rotation, where)
        shift, scale = self.adaln(c).chunk(2, -1)
        if where is not None:
            shift, scale = (change.expand(*x.shape[:2], -1)[where] for change in (shift, scale))
        return self.head(scaled(h, shift, scale))

    def _condition(self, t: Tensor | None, x: Tensor) -> Tensor:
        """Return c of each sequence or position: t [B] or [B, L] → [B, 1 or L, F]."""
        if not self.shape.time:
            return self.waves.new_zeros(len(x), 1, self.shape.features)
        if t is None:
            raise ValueError("this network is conditioned on time: pass t")
        at = (t[:, None] if t.dim() == 1 else t).to(self.waves.dtype)
        angle = TIMES * at[..., None] * self.waves
        return self.time_out(F.silu(self.time_in(torch.cat([angle.sin(), angle.cos()], -1))))


def scaled(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Compute (1 + scale) ⊙ LayerNorm(x) + shift: [*, W]."""
    return F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + scale) + shift
