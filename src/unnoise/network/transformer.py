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

SIZES = {  # name → width, depth, heads, and one block in how many has attention; base is the papers' 12 × 768
    "nano": (64, 2, 2, 2),
    "tiny": (128, 6, 4, 3),
    "small": (384, 6, 6, 2),
    "base": (768, 12, 12, 1),
}


def sized(size: str) -> tuple[int, int, int, int]:
    """A size's width, depth, heads, and one block in how many has attention."""
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}: use one of {', '.join(SIZES)}")
    return SIZES[size]


@dataclass(frozen=True)
class Shape:
    """How large a network is, and what it reads and writes.

    inputs: how many states a token may have; outputs: entries of the last axis; length: the longest text; time: whether t is
    an input; causal: whether a position sees only what is before it; taps: width of the convolution; every: one block in so
    many has attention (the last does), the others mix by convolution alone; gaps: whether there is a second head, one number
    for each position; labels: how many classes a text can be said to have; grid: rows and columns of a picture, whose
    positions are then rotated and convolved in two dimensions; channels: how many columns make one pixel (red, green, blue).
    """

    inputs: int
    outputs: int
    length: int
    width: int = 128
    depth: int = 4
    heads: int = 4
    time: bool = False
    causal: bool = False
    taps: int = 9
    every: int = 1
    gaps: bool = False
    labels: int = 0
    grid: tuple[int, ...] = ()
    channels: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(self.grid))  # a list in config.json
        if self.grid and (len(self.grid) != 2 or math.prod(self.grid) != self.length or self.causal):
            raise ValueError(f"a network's grid must be rows × columns = its length, found {self.grid} and {self.length}")
        if self.grid and math.isqrt(self.taps) ** 2 != self.taps:
            raise ValueError(f"with a grid a network's taps must be the square of an odd number, such as 9, found {self.taps}")
        for name in ("inputs", "outputs", "length", "width", "depth", "heads", "taps", "every", "channels"):
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
    """What a causal network remembers of the tokens so far: for each layer its convolution's inputs or its keys and values."""

    recent: dict[int, Tensor] = field(default_factory=dict)
    past: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    length: int = 0

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values so far, these included: [B, H, n, D] each."""
        if layer in self.past:
            before = self.past[layer]
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        self.past[layer] = k, v
        return k, v


class Convolution(nn.Module):
    """Depthwise convolution along the text, y_i = Σ_k w_k ⊙ x_{i+k}: [B, L, D] → [B, L, D]. Starts at zero."""

    def __init__(self, width: int, taps: int, causal: bool, grid: tuple[int, ...] = (), channels: int = 1):
        super().__init__()
        self.taps, self.causal, self.grid, self.channels = taps, causal, grid, channels
        self.weight = nn.Parameter(torch.zeros(taps, width))

    def forward(self, x: Tensor, cache: Cache | None, present: Tensor | None) -> Tensor:
        if present is not None:
            x = x * present[..., None]
        if self.grid:
            return self._in_two_dimensions(x)
        before, after = (self.taps - 1, 0) if self.causal else (self.taps // 2, self.taps // 2)
        if cache is not None and id(self) in cache.recent:
            padded = torch.cat([cache.recent[id(self)], x], 1)
        else:
            padded = F.pad(x, (0, 0, before, after))
        if cache is not None:
            cache.recent[id(self)] = padded[:, padded.shape[1] - before :]
        return F.conv1d(padded.transpose(1, 2), self.weight.T[:, None], groups=padded.shape[-1]).transpose(1, 2)

    def _in_two_dimensions(self, x: Tensor) -> Tensor:
        """The taps as a square around each pixel, in its own channel: 9 taps are 3 × 3."""
        side = math.isqrt(self.taps)
        apart = 1, self.channels
        weight = self.weight.T[:, : side * side].reshape(-1, 1, side, side)
        picture = x.transpose(1, 2).unflatten(2, self.grid)
        padding = side // 2, self.channels * (side // 2)
        return F.conv2d(picture, weight, padding=padding, dilation=apart, groups=x.shape[-1]).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Attention over the text with normalised, rotated queries and keys: [B, L, D] → [B, L, D]."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: Cache | None, present: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k = rotate(normalise(qkv[:, :, :2]), rotation).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), qkv[:, :, 2].transpose(1, 2)  # [B, H, L, D]
        if cache is not None:
            k, v = cache.extend(id(self), k, v)
        if self.causal and 1 < length < k.shape[2]:  # several tokens after a cached past: each sees that, and what is before it
            sees = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - length)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=sees)
        elif present is not None:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=present[:, None, None])
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """x + conv(x), x + attention(norm x), x + perceptron(norm x); with time, the two norms are scaled and shifted by t."""

    def __init__(self, shape: Shape, attends: bool):
        super().__init__()
        width = shape.width
        self.conv = Convolution(width, shape.taps, shape.causal, shape.grid, shape.channels)
        self.attention = Attention(width, shape.heads, shape.causal) if attends else None
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.film = nn.Linear(width, 4 * width) if shape.time else None
        nn.init.zeros_(self.down.weight)
        if self.film:
            nn.init.zeros_(self.film.weight)
            nn.init.zeros_(self.film.bias)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        time: Tensor | None,
        cache: Cache | None,
        present: Tensor | None = None,
    ) -> Tensor:
        x = x + self.conv(x, cache, present)
        scale_1, shift_1, scale_2, shift_2 = self._modulation(time)
        if self.attention is not None:
            x = x + self.attention(modulate(x, scale_1, shift_1), rotation, cache, present)
        return x + self.down(F.relu(self.up(modulate(x, scale_2, shift_2))).square())

    def _modulation(self, time: Tensor | None) -> tuple[Tensor | None, ...]:
        if self.film is None or time is None:
            return (None,) * 4
        return self.film(time)[:, None].chunk(4, -1)


class Transformer(nn.Module):
    """x [B, L] long, t [B] float → [B, L, outputs], or [n, outputs] at the positions `where` alone.

    x may also be a state of numbers, [B, L, inputs]: soft tokens, or a noised embedding.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.inputs, shape.width)
        attends = [(shape.depth - 1 - i) % shape.every == 0 for i in range(shape.depth)]
        self.blocks = nn.ModuleList(Block(shape, attend) for attend in attends)
        self.clock = nn.Sequential(nn.Linear(64, shape.width), nn.SiLU()) if shape.time else None
        self.head = nn.Linear(shape.width, shape.outputs)
        self.gap_head = nn.Linear(shape.width, 1) if shape.gaps else None
        nn.init.normal_(self.embed.weight, std=1.0)
        for head in (self.head, self.gap_head):
            if head is not None:
                nn.init.zeros_(head.weight)
                nn.init.zeros_(head.bias)
        self.label = nn.Embedding(shape.labels + 1, shape.width) if shape.labels else None  # the last: none is told
        if self.label is not None:
            nn.init.normal_(self.label.weight, std=1.0)
        self.channel = nn.Embedding(shape.channels, shape.width) if shape.channels > 1 else None
        angle = angles(shape)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(
        self,
        x: Tensor,
        t: Tensor | None = None,
        where: Tensor | None = None,
        cache: Cache | None = None,
        label: Tensor | None = None,
    ) -> Tensor:
        h = self.features(x, t, cache, label=label)
        return self.head(normalise(h if where is None else h[where]))

    def features(
        self,
        x: Tensor,
        t: Tensor | None = None,
        cache: Cache | None = None,
        present: Tensor | None = None,
        label: Tensor | None = None,
    ) -> Tensor:
        """What the heads read: [B, L, D]. present: [B, L] bool, false at padding, which no other position then sees; label:
        [B] or one for all, none by default."""
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
        h = normalise(x @ self.embed.weight if x.is_floating_point() else self.embed(x))
        if self.label is not None:
            told = self.label(torch.as_tensor(self.shape.labels if label is None else label, device=h.device))
            h = h + told.view(-1, 1, told.shape[-1])
        if self.channel is not None:
            h = h + self.channel(torch.arange(start, stop, device=h.device) % self.shape.channels)
        for block in self.blocks:
            h = block(h, rotation, time, cache, present)
        if cache is not None:
            cache.length = stop
        return h

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device


def angles(shape: Shape) -> Tensor:
    """By what each position turns each pair of features: [L, D/2]; in a picture half of them by row, half by pixel column."""
    pairs = shape.width // shape.heads // 2
    if not shape.grid:
        return torch.arange(shape.length)[:, None] * 10_000.0 ** -torch.linspace(0, 1, pairs)
    place = torch.arange(shape.length)
    row, column = place // shape.grid[1], place % shape.grid[1] // shape.channels
    slow = 100.0 ** -torch.linspace(0, 1, pairs - pairs // 2)
    return torch.cat([row[:, None] * slow, column[:, None] * slow[: pairs // 2]], 1)


def normalise(x: Tensor) -> Tensor:
    """Layer norm without weights along the last axis: one fused kernel, where RMS norm is several on a CPU."""
    return F.layer_norm(x, x.shape[-1:])


def modulate(x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """Layer norm, then scaled and shifted if there is time conditioning: [B, L, D]."""
    x = normalise(x)
    return x if scale is None or shift is None else x * (1 + scale) + shift


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs (i, i + D/2) turned by their position's angle: [B, L, ·, ·, D]."""
    cos, sin = (angle[:, None, None] for angle in rotation)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def waves(t: Tensor) -> Tensor:
    """Sines and cosines of t and of its logit-like stretch at both ends: [B] → [B, 64]."""
    frequency = torch.exp(torch.linspace(0, math.log(1000.0), 16, device=t.device))
    early = torch.log(t.clamp_min(1e-6)) / 14
    phases = torch.cat([t[:, None] * frequency, early[:, None] * frequency], -1)
    return torch.cat([phases.sin(), phases.cos()], -1).to(t.dtype)
