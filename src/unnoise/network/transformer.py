"""The default network, a Transformer for noised tokens.

It is pre-norm, with rotary positions, SDPA attention with normalized queries and keys, a short depthwise convolution before
each attention, and a squared-ReLU MLP. Time conditioning (adaLN: t scales and shifts the norms) is optional, because masked
models do not need it. With `causal` the network is autoregressive, with a KV cache for sampling. With `pointer` it can copy
tokens of the sequence (network/layers.py). docs/results.md has the measurements behind these choices.
"""

import math
from dataclasses import asdict, dataclass, fields as dataclass_fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.attention import KVCache, Visibility, attend_visible, block_visibility, rotate
from unnoise.network.layers import Dropout, Pointer, SquaredRelu, modulate, normalize
from unnoise.network.network_base import NetworkConfig
from unnoise.registry import check_settings

SIZES = {  # base is the papers' 12 × 768
    "nano": {"width": 64, "depth": 2, "heads": 2, "attention_every": 2},
    "tiny": {"width": 128, "depth": 6, "heads": 4, "attention_every": 3},
    "small": {"width": 384, "depth": 6, "heads": 6, "attention_every": 2},
    "base": {"width": 768, "depth": 12, "heads": 12, "attention_every": 1},
}


def sized(size: str, width: int | None = None, depth: int | None = None, heads: int | None = None) -> dict[str, int]:
    """Return the configuration fields of a size, with width, depth and heads replaced if they are passed."""
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}: use one of {', '.join(SIZES)}")
    given = {"width": width, "depth": depth, "heads": heads}
    return SIZES[size] | {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class TransformerConfig(NetworkConfig):
    """Fields of a `Transformer`, in addition to the common ones.

    time: whether the network is conditioned on t (adaLN).
    causal: whether a position attends only to itself and to earlier positions.
    taps: width of the convolution.
    attention_every: interval of the blocks with attention, counted from the last one; the others only have a convolution.
    gaps: whether there is a second head with one number per position.
    labels: number of classes.
    grid: rows and columns of an image, whose positions are rotated and convolved in two dimensions.
    channels: number of columns per pixel (red, green, blue).
    pointer: whether the output can copy tokens of the sequence (network/layers.py).
    """

    time: bool = False
    causal: bool = False
    taps: int = 9
    attention_every: int = 1
    gaps: bool = False
    labels: int = 0
    grid: tuple[int, ...] = ()
    channels: int = 1
    pointer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(self.grid))  # config.json holds a list
        if self.grid and (len(self.grid) != 2 or math.prod(self.grid) != self.length or self.causal):
            raise ValueError(f"a network's grid must be rows × columns = its length, found {self.grid} and {self.length}")
        if self.grid and math.isqrt(self.taps) ** 2 != self.taps:
            raise ValueError(f"with a grid a network's taps must be the square of an odd number, such as 9, found {self.taps}")
        self.check_sizes("taps", "attention_every", "channels")
        self.check_heads()
        if not isinstance(self.pointer, bool):
            raise ValueError(f"a network's pointer must be true or false, found {self.pointer!r}")
        if self.taps % 2 == 0:
            raise ValueError(f"a network's taps must be odd, found {self.taps}")


class Convolution(nn.Module):
    """Depthwise convolution y_i = Σ_k w_k ⊙ x_{i+k} over visible positions, zero at initialization: [B, L, D] → [B, L, D]."""

    def __init__(self, config: TransformerConfig, layer: int):
        super().__init__()
        self.taps, self.causal, self.grid, self.channels = config.taps, config.causal, config.grid, config.channels
        self.layer = layer
        self.weight = nn.Parameter(torch.zeros(config.taps, config.width))

    @property
    def offsets(self) -> range:
        """The offsets k of the sum."""
        return tap_offsets(self.taps, self.causal)

    def forward(self, x: Tensor, cache: KVCache | None, visibility: Visibility | None) -> Tensor:
        if visibility is not None and visibility.present is not None:
            x = x * visibility.present[..., None]
        if self.grid:
            return self._in_two_dimensions(x)
        if visibility is not None and visibility.block is not None:
            return self._over_blocks(x, visibility.block)
        if visibility is not None and visibility.mask is not None:
            return self._over_visible(x, visibility)
        before, after = -self.offsets[0], self.offsets[-1]
        if cache is None and before == after:
            return self._along(x, before)
        if cache is not None and self.layer in cache.conv_inputs:
            padded = F.pad(torch.cat([cache.conv_inputs[self.layer], x], 1), (0, 0, 0, after))
        else:
            padded = F.pad(x, (0, 0, before, after))
        if cache is not None and not cache.frozen:
            cache.conv_inputs[self.layer] = padded[:, x.shape[1] : x.shape[1] + before]
        return self._along(padded, 0)

    def _along(self, x: Tensor, padding: int) -> Tensor:
        """Convolve along the sequence, as an image one column wide in channels-last memory format.

        This copies nothing and takes a seventh of the time of conv1d, forward and backward (benchmarks/speed.py).
        """
        column = x[:, :, None].permute(0, 3, 1, 2)  # [B, D, L, 1]
        weight = self.weight.T[:, None, :, None]
        return F.conv2d(column, weight, padding=(padding, 0), groups=x.shape[-1]).permute(0, 2, 3, 1)[:, :, 0]

    def _over_blocks(self, x: Tensor, block: int) -> Tensor:
        """Convolve x_t ⊕ x_0: each block is a short sequence that follows the clean tokens before it."""
        before, after = -self.offsets[0], self.offsets[-1]
        length = x.shape[1] // 2
        halves = F.pad(x.unflatten(1, (2, length)), (0, 0, 0, -length % block))  # [B, 2, N·block, D]
        blocks = halves.unflatten(2, (-1, block))  # [B, 2, N, block, D]
        parts = [blocks, blocks.new_zeros(()).expand(*blocks.shape[:3], after, blocks.shape[-1])]
        if before:
            past = F.pad(halves[:, 1], (0, 0, before, 0)).unfold(1, before, block)[:, : blocks.shape[2]]
            parts.insert(0, past.transpose(2, 3)[:, None].expand(-1, 2, -1, -1, -1))
        summed = self._along(torch.cat(parts, 3).flatten(0, 2), 0)
        return summed.view(halves.shape)[:, :, :length].flatten(1, 2)

    def _over_visible(self, x: Tensor, visibility: Visibility) -> Tensor:
        """Convolve over visible neighbours only, by shifted additions."""
        padded = F.pad(x, (0, 0, 0, 1))  # the last row, zero, stands for invisible neighbours
        total = torch.zeros_like(x)
        for weight, neighbour in zip(self.weight, visibility.neighbours(self.offsets), strict=True):
            total = total + weight * padded[:, neighbour]
        return total

    def _in_two_dimensions(self, x: Tensor) -> Tensor:
        """Convolve each channel of an image in two dimensions: 9 taps are a 3 × 3 square."""
        side = math.isqrt(self.taps)
        apart = 1, self.channels
        weight = self.weight.T[:, : side * side].reshape(-1, 1, side, side)
        picture = x.transpose(1, 2).unflatten(2, self.grid)
        padding = side // 2, self.channels * (side // 2)
        return F.conv2d(picture, weight, padding=padding, dilation=apart, groups=x.shape[-1]).flatten(2).transpose(1, 2)


def tap_offsets(taps: int, causal: bool) -> range:
    """Return the offsets of the taps of a convolution."""
    return range(1 - taps, 1) if causal else range(-(taps // 2), taps // 2 + 1)


def shift_taps(weight: Tensor, causal_before: bool, causal: bool) -> Tensor:
    """Convert taps [taps, D] between causal and centred convolutions: offsets in common keep their tap, new ones get zero."""
    before, now = (tap_offsets(len(weight), flag) for flag in (causal_before, causal))
    rows = [weight[before.index(k)] if k in before else torch.zeros_like(weight[0]) for k in now]
    return torch.stack(rows)


class Attention(nn.Module):
    """Attention with normalized, rotated queries and keys: [B, L, D] → [B, L, D]."""

    def __init__(self, config: TransformerConfig, layer: int):
        super().__init__()
        self.heads, self.causal, self.layer = config.heads, config.causal, layer
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: KVCache | None, visibility: Visibility | None
    ) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k = rotate(normalize(qkv[:, :, :2]), rotation).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), qkv[:, :, 2].transpose(1, 2)  # [B, H, L, D]
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        y = attend_visible(q, k, v, self.causal, visibility)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """x + conv(x), x + attention(norm x), x + MLP(norm x); with adaLN t scales and shifts the norms."""

    def __init__(self, config: TransformerConfig, layer: int):
        super().__init__()
        width = config.width
        self.layer = layer
        attends = (config.depth - 1 - layer) % config.attention_every == 0
        self.conv = Convolution(config, layer)
        self.attention = Attention(config, layer) if attends else None
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.adaln = nn.Linear(width, 4 * width) if config.time else None
        nn.init.zeros_(self.down.weight)
        if self.adaln:
            nn.init.zeros_(self.adaln.weight)
            nn.init.zeros_(self.adaln.bias)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        time: Tensor | None,
        cache: KVCache | None,
        visibility: Visibility | None,
        *,
        where: Tensor | None,
        dropout: Dropout | None,
    ) -> Tensor:
        """[B, L, D] → [B, L, D]; with `where` the MLP runs only at those n positions, and the result is [n, D]."""
        x = x + self.conv(x, cache, visibility)
        scale_1, shift_1, scale_2, shift_2 = self._modulation(time)
        if self.attention is not None:
            attended = self.attention(modulate(x, scale_1, shift_1), rotation, cache, visibility)
            x = x + (attended if dropout is None else dropout(attended, 2 * self.layer))
        if where is not None:
            scale_2, shift_2 = (None if one is None else one.expand_as(x)[where] for one in (scale_2, shift_2))
            x = x[where]
        processed = self.down(SquaredRelu.apply(self.up(modulate(x, scale_2, shift_2))))
        return x + (processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))

    def _modulation(self, time: Tensor | None) -> tuple[Tensor | None, ...]:
        if self.adaln is None or time is None:
            return (None,) * 4
        return self.adaln(time).chunk(4, -1)


class Transformer(nn.Module):
    """x [B, L] long, t [B] or [B, L] float → [B, L, outputs], or [n, outputs] at the positions `where` alone.

    x may also be a state of real numbers, [B, L, inputs]: soft tokens or noised embeddings. Takes the fields of
    `TransformerConfig`: Transformer(inputs=28, outputs=27, length=256, width=128, …).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, **fields: Any):
        super().__init__()
        check_settings("transformer", fields, [one.name for one in dataclass_fields(TransformerConfig)], "network")
        shape = self.shape = TransformerConfig(**fields)
        self.config = asdict(shape)
        self.embed = nn.Embedding(shape.inputs, shape.width)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.depth))
        self.time_embed = nn.Sequential(nn.Linear(64, shape.width), nn.SiLU()) if shape.time else None
        self.head = nn.Linear(shape.width, shape.outputs)
        self.gap_head = nn.Linear(shape.width, 1) if shape.gaps else None
        self.pointer = Pointer(shape.width, shape.depth) if shape.pointer else None
        nn.init.normal_(self.embed.weight, std=1.0)
        for head in (self.head, self.gap_head):
            if head is not None:
                nn.init.zeros_(head.weight)
                nn.init.zeros_(head.bias)
        self.label = nn.Embedding(shape.labels + 1, shape.width) if shape.labels else None  # the last: no label
        if self.label is not None:
            nn.init.normal_(self.label.weight, std=1.0)
        self.channel = nn.Embedding(shape.channels, shape.width) if shape.channels > 1 else None
        angle = rotary_angles(shape)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(
        self,
        x: Tensor,
        t: Tensor | None = None,
        where: Tensor | None = None,
        *,
        cache: KVCache | None = None,
        label: Tensor | int | None = None,
        present: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        block: int | None = None,
        gaps: bool = False,
        dropout: Dropout | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output, and with `gaps` also the second head's numbers [B, L]; see `network_base` for the arguments."""
        start = cache.length if cache is not None else 0
        if block is not None:
            attention_mask, positions = block_visibility(x.shape[1] // 2, block, x.device)
        length = self.shape.check_length(start + x.shape[1] if positions is None else int(positions.max()) + 1)
        places = slice(start, length) if positions is None else positions
        rotation = self.cos[places], self.sin[places]
        limited = present is not None or attention_mask is not None
        visibility = Visibility(present, attention_mask, positions, block) if limited else None
        time = self._time(t)
        h = normalize(x @ self.embed.weight if x.is_floating_point() else self.embed(x))
        if self.label is not None:
            known = self.label(torch.as_tensor(self.shape.labels if label is None else label, device=h.device))
            h = h + known.view(-1, 1, known.shape[-1])
        if self.channel is not None:
            h = h + self.channel(torch.arange(start, length, device=h.device) % self.shape.channels)
        *blocks, last = self.blocks
        for one in blocks:
            h = one(h, rotation, time, cache, visibility, where=None, dropout=dropout)
        states = h
        h = last(h, rotation, time, cache, visibility, where=None if gaps else where, dropout=dropout)
        asked = normalize(h[where] if gaps and where is not None else h)
        output = self.head(asked)
        if self.pointer is not None:
            output = self.pointer(
                output, asked, normalize(states), x, where, causal=self.shape.causal, cache=cache, visibility=visibility
            )
        if cache is not None and not cache.frozen:
            cache.length = length
        if not gaps:
            return output
        if self.gap_head is None:
            raise ValueError("this network was built without a head for gaps")
        return output, self.gap_head(normalize(h))[..., 0]

    def _time(self, t: Tensor | None) -> Tensor | None:
        """Return the embedding of t: [B, 1, D], or [B, L, D] if each position has its own time; None without conditioning."""
        if self.time_embed is None:
            return None
        if t is None:
            raise ValueError("this network is conditioned on time: pass t")
        return self.time_embed(waves(t if t.dim() == 2 else t[:, None]))


def rotary_angles(shape: TransformerConfig) -> Tensor:
    """Return the rotation angles of each position: [L, D/2]; in an image half of them are by row, half by pixel column."""
    pairs = shape.width // shape.heads // 2
    if not shape.grid:
        return torch.arange(shape.length)[:, None] * 10_000.0 ** -torch.linspace(0, 1, pairs)
    place = torch.arange(shape.length)
    row, column = place // shape.grid[1], place % shape.grid[1] // shape.channels
    slow = 100.0 ** -torch.linspace(0, 1, pairs - pairs // 2)
    return torch.cat([row[:, None] * slow, column[:, None] * slow[: pairs // 2]], 1)


def waves(t: Tensor) -> Tensor:
    """Return sines and cosines of t and of log t: [...] → [..., 64]."""
    frequency = torch.exp(torch.linspace(0, math.log(1000.0), 16, device=t.device))
    early = torch.log(t.clamp_min(1e-6)) / 14
    phases = torch.cat([t[..., None] * frequency, early[..., None] * frequency], -1)
    return torch.cat([phases.sin(), phases.cos()], -1).to(t.dtype)
