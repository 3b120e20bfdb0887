"""The one network of the house: a Transformer that sees noised tokens and says something about every position.

Pre-norm, rotary positions, SDPA attention with normalised queries and keys, a short depthwise convolution before each
attention (characters live off their neighbours), squared-ReLU perceptron. Time conditioning is optional, since masked models
do not need it. With `causal` the same network is autoregressive, with a cache for sampling. What was measured and chosen is in
docs/results.md.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = {  # name → width, depth, heads; base is the papers' 12 × 768
    "nano": (64, 2, 2),
    "tiny": (128, 4, 4),
    "small": (384, 6, 6),
    "base": (768, 12, 12),
}


@dataclass(frozen=True)
class Shape:
    """How large a network is, and what it reads and writes.

    inputs: how many states a token may have; outputs: entries of the last axis; length: the longest text; time: whether t is
    an input; causal: whether a position sees only what is before it; taps: width of the convolution.
    """

    inputs: int
    outputs: int
    length: int
    width: int = 128
    depth: int = 4
    heads: int = 4
    time: bool = False
    causal: bool = False
    taps: int = 5

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "length", "width", "depth", "heads", "taps"):
            value = vars(self)[name]
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"a network's {name} must be a whole number ≥ 1, found {value!r}")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"a network's width must be an even multiple of its heads, found width {self.width} and {self.heads} heads"
            )
        if self.taps % 2 == 0:
            raise ValueError(f"a network's taps must be odd, found {self.taps}")


@dataclass
class Cache:
    """What a causal network remembers of the tokens so far, for each block: convolution inputs, keys and values."""

    recent: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    length: int = 0


class Convolution(nn.Module):
    """Depthwise convolution along the text, y_i = Σ_k w_k ⊙ x_{i+k}: [B, L, D] → [B, L, D]. Starts as the identity's zero."""

    def __init__(self, width: int, taps: int, causal: bool):
        super().__init__()
        self.taps, self.causal = taps, causal
        self.weight = nn.Parameter(torch.zeros(taps, width))

    def forward(self, x: Tensor) -> Tensor:
        before, after = (self.taps - 1, 0) if self.causal else (self.taps // 2, self.taps // 2)
        return self.slide(F.pad(x, (0, 0, before, after)))

    def slide(self, padded: Tensor) -> Tensor:
        """Σ_k w_k ⊙ padded_{i+k}: [B, L + taps − 1, D] → [B, L, D]."""
        return F.conv1d(padded.transpose(1, 2), self.weight.T[:, None], groups=padded.shape[-1]).transpose(1, 2)


class Block(nn.Module):
    """x + conv(x), x + attention(norm x), x + perceptron(norm x); with time, the two norms are scaled and shifted by t."""

    def __init__(self, shape: Shape):
        super().__init__()
        width = shape.width
        self.heads, self.causal = shape.heads, shape.causal
        self.conv = Convolution(width, shape.taps, shape.causal)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.film = nn.Linear(width, 4 * width) if shape.time else None
        for zero in (self.out, self.down, *([self.film] if self.film else [])):
            nn.init.zeros_(zero.weight)
        if self.film:
            nn.init.zeros_(self.film.bias)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], time: Tensor | None, cache: Cache | None, index: int
    ) -> Tensor:
        x = x + (self.conv(x) if cache is None else self._conv_step(x, cache, index))
        scale_1, shift_1, scale_2, shift_2 = self._modulation(time)
        x = x + self._attend(modulate(x, scale_1, shift_1), rotation, cache, index)
        return x + self.down(F.relu(self.up(modulate(x, scale_2, shift_2))).square())

    def _modulation(self, time: Tensor | None) -> tuple[Tensor | None, ...]:
        if self.film is None or time is None:
            return (None,) * 4
        return self.film(time)[:, None].chunk(4, -1)

    def _attend(self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: Cache | None, index: int) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(normalise(q), rotation), rotate(normalise(k), rotation)
        if cache is not None:
            if len(cache.keys) > index:
                k, v = torch.cat([cache.keys[index], k], 2), torch.cat([cache.values[index], v], 2)
                cache.keys[index], cache.values[index] = k, v
            else:
                cache.keys.append(k)
                cache.values.append(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def _conv_step(self, x: Tensor, cache: Cache, index: int) -> Tensor:
        keep = self.conv.taps - 1
        if len(cache.recent) > index:
            padded = torch.cat([cache.recent[index], x], 1)
            cache.recent[index] = padded[:, -keep:]
        else:
            padded = F.pad(x, (0, 0, keep, 0))
            cache.recent.append(padded[:, -keep:])
        return self.conv.slide(padded)


class Transformer(nn.Module):
    """x [B, L] long, t [B] float → [B, L, outputs], or [n, outputs] at the positions `where` alone."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.inputs, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.clock = nn.Sequential(nn.Linear(64, shape.width), nn.SiLU()) if shape.time else None
        self.head = nn.Linear(shape.width, shape.outputs)
        nn.init.normal_(self.embed.weight, std=1.0)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        angle = torch.arange(shape.length)[:, None] * 10_000.0 ** -torch.linspace(0, 1, shape.width // shape.heads // 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        start = cache.length if cache is not None else 0
        stop = start + x.shape[1]
        if stop > self.shape.length:
            raise ValueError(f"this network reads texts of at most {self.shape.length} tokens, found {stop}")
        rotation = self.cos[start:stop], self.sin[start:stop]
        time = None
        if self.clock is not None:
            if t is None:
                raise ValueError("this network is conditioned on time: give t")
            time = self.clock(waves(t))
        h = normalise(self.embed(x))
        for index, block in enumerate(self.blocks):
            h = block(h, rotation, time, cache, index)
        if cache is not None:
            cache.length = stop
        return self.head(normalise(h if where is None else h[where]))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device


def normalise(x: Tensor) -> Tensor:
    """x divided by its root mean square along the last axis."""
    return F.rms_norm(x, x.shape[-1:])


def modulate(x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """RMS norm, then scaled and shifted if there is time conditioning: [B, L, D]."""
    x = normalise(x)
    return x if scale is None or shift is None else x * (1 + scale) + shift


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs (i, i + D/2) turned by their position's angle: [B, H, L, D]."""
    cos, sin = rotation
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def waves(t: Tensor) -> Tensor:
    """Sines and cosines of t and of its logit-like stretch at both ends: [B] → [B, 64]."""
    frequency = torch.exp(torch.linspace(0, math.log(1000.0), 16, device=t.device))
    early = torch.log(t.clamp_min(1e-6)) / 14
    phases = torch.cat([t[:, None] * frequency, early[:, None] * frequency], -1)
    return torch.cat([phases.sin(), phases.cos()], -1).to(t.dtype)
