"""The diffusion Transformer of SEDD, MDLM, BD3-LM, Duo, UDLM, GIDD and Flex-MDM: for their weights, and to train from scratch.

    x ← x + g₁·W_o·attention(LN(x)·w₁·(1 + s₁) + b₁),   x ← x + g₂·MLP(LN(x)·w₂·(1 + s₂) + b₂),   (b, s, g) = adaLN(c)

    c = silu(MLP(φ(σ))) + silu(label),   φ(σ) = [cos(σ f_k), sin(σ f_k)],   f_k = 10000^{−k/128},   k = 0…127

Rotary positions on halves of a head (pairs i, i + D/2), tanh GELU, norms and attention without biases, an output head of its
own. DiT: arXiv:2212.09748; the variant for text: SEDD, arXiv:2310.16834. Where time is not used σ is 0, so that c and all that
follows from it are constants: the norms then have plain weights and biases, and each branch a plain gate.
"""

from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.base import Cache
from unnoise.network.ddit_config import DditConfig
from unnoise.network.dropout import Dropout
from unnoise.network.transformer import attend_visible, rotate
from unnoise.network.visibility import Visibility, block_visibility

WAVES = 256  # cosines and sines of σ
BASE = 10_000.0  # of the waves of σ, and of the rotary positions
EPS = 1e-5  # of the norms


class AdaLN(nn.Linear):
    """adaLN: shifts, scales and gates W·c + b, which begin at zero; those of a constant c are computed once, and kept for as
    long as neither c nor the weights change."""

    def __init__(self, cond_width: int, width: int, chunks: int):
        super().__init__(cond_width, chunks * width)
        self.chunks = chunks
        self._kept: tuple[Tensor, object, list[nn.Parameter], list[Tensor]] | None = None

    def modulation(self, condition: Tensor) -> list[Tensor]:
        """c [B, 1 or L, C] → `chunks` of [B, 1 or L, D], or of [D] for c [C]."""
        if condition.dim() > 1 or torch.is_grad_enabled():
            self._kept = None
            return list(self(condition).chunk(self.chunks, -1))
        stamp = versions(self)
        if self._kept is None or self._kept[0] is not condition or self._kept[1] != stamp:
            self._kept = condition, stamp, [*self.parameters()], list(self(condition).chunk(self.chunks, -1))
        return self._kept[3]


def versions(module: nn.Module) -> tuple[object, ...]:
    """What changes whenever a module's weights do."""
    return tuple((id(weight), weight._version, weight.device, weight.dtype) for weight in module.parameters())


def modulated(x: Tensor, norm: nn.LayerNorm, shift: Tensor, scale: Tensor) -> Tensor:
    """LN(x)·w·(1 + scale) + shift: x [B, L, D] or [n, D], shift and scale of a like shape, or [D]."""
    if scale.dim() == 1:
        return F.layer_norm(x, norm.normalized_shape, norm.weight * (1 + scale), shift, EPS)
    return torch.addcmul(shift, F.layer_norm(x, norm.normalized_shape, norm.weight, None, EPS), 1 + scale)


class Block(nn.Module):
    """x + gate·attention(adaLN x), then x + gate·MLP(adaLN x)."""

    def __init__(self, shape: DditConfig, layer: int):
        super().__init__()
        width = shape.width
        self.layer, self.heads, self.causal = layer, shape.heads, shape.causal
        self.attention_norm = nn.LayerNorm(width, EPS, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width, EPS, bias=False)
        self.up = nn.Linear(width, shape.hidden)
        self.down = nn.Linear(shape.hidden, width)
        self.adaln = AdaLN(shape.cond_width, width, 6)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        condition: Tensor,
        cache: Cache | None,
        visibility: Visibility | None,
        where: Tensor | None,
        dropout: Dropout | None,
    ) -> Tensor:
        """[B, L, D] → [B, L, D]; with `where` the perceptron runs there alone, and only those n positions come back, [n, D]."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.adaln.modulation(condition)
        attended = self._attention(modulated(x, self.attention_norm, shift_1, scale_1), rotation, cache, visibility)
        x = torch.addcmul(x, gate_1, attended if dropout is None else dropout(attended, 2 * self.layer))
        if where is not None:
            shift_2, scale_2, gate_2 = (selected(one, x, where) for one in (shift_2, scale_2, gate_2))
            x = x[where]
        processed = self.down(F.gelu(self.up(modulated(x, self.norm, shift_2, scale_2)), approximate="tanh"))
        return torch.addcmul(x, gate_2, processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))

    def _attention(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: Cache | None, visibility: Visibility | None
    ) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k = rotate(qkv[:, :, :2], rotation).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), qkv[:, :, 2].transpose(1, 2)  # [B, H, L, D]
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)
        y = attend_visible(q, k, v, self.causal, visibility).transpose(1, 2).reshape(batch, length, width)
        if visibility is not None and visibility.present is not None:  # padding sees nothing either
            y = y * visibility.present[..., None]
        return self.out(y)


class GapHead(nn.Module):
    """One number for each position: adaLN, a linear layer, GELU (by erf), a linear layer (Flex-MDM, arXiv:2509.01025)."""

    def __init__(self, shape: DditConfig):
        super().__init__()
        self.norm = nn.LayerNorm(shape.width, EPS, bias=False)
        self.adaln = AdaLN(shape.cond_width, shape.width, 2)
        self.up = nn.Linear(shape.width, shape.width)
        self.head = nn.Linear(shape.width, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """[B, L, D] → [B, L]."""
        return self.head(F.gelu(self.up(modulated(x, self.norm, *self.adaln.modulation(condition)))))[..., 0]


class Ddit(nn.Module):
    """x [B, L] long, t [B] or [B, L] → [B, L, outputs], or [n, outputs] at the positions `where` alone.

    Built from the fields of `DditConfig`. x may also be a state of numbers, [B, L, inputs]: soft tokens, or a noised embedding.
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
        cond_width: int = 128,
        head_rows: int | None = None,
        time: bool = False,
        time_input: str = "loglinear",
        sigma_eps: float = 1e-3,
        sigma_min: float = 1e-4,
        sigma_max: float = 20.0,
        causal: bool = False,
        gaps: bool = False,
        labels: int = 0,
    ):
        super().__init__()
        hidden, head_rows = 4 * width if hidden is None else hidden, outputs if head_rows is None else head_rows
        shape = self.shape = DditConfig(
            *(inputs, outputs, length, width, depth, heads, hidden, cond_width, head_rows, time, time_input),
            *(sigma_eps, sigma_min, sigma_max, causal, gaps, labels),
        )
        self.config = asdict(shape)
        self.embed = nn.Embedding(inputs, width, _weight=torch.empty(inputs, width))
        self.time_embed = nn.Sequential(nn.Linear(WAVES, cond_width), nn.SiLU(), nn.Linear(cond_width, cond_width))
        self.label = nn.Embedding(labels + 1, cond_width, _weight=torch.empty(labels + 1, cond_width)) if labels else None
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(depth))
        self.norm = nn.LayerNorm(width, EPS, bias=False)
        self.adaln = AdaLN(cond_width, width, 2)
        self.head = nn.Linear(width, head_rows)
        self.gap_head = GapHead(shape) if gaps else None
        self._kept: tuple[object, Tensor] | None = None  # c, where time is not used
        self._begin()

    def _begin(self) -> None:
        """Fresh weights as in the papers: adaLN and the heads start at zero, so that every branch does.

        On torch's meta device, where there is nothing to fill, drawing numbers would only import half of torch.
        """
        if self.embed.weight.is_meta:
            return
        zero = [module for module in self.modules() if isinstance(module, AdaLN)]
        for module in (*zero, self.head, *([self.gap_head.head] if self.gap_head is not None else [])):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
        for name, weight in self.time_embed.named_parameters():
            (nn.init.normal_(weight, std=0.02) if name.endswith("weight") else nn.init.zeros_(weight))
        nn.init.normal_(self.embed.weight, std=self.shape.width**-0.5)
        if self.label is not None:
            nn.init.normal_(self.label.weight, std=0.02)

    def forward(
        self,
        x: Tensor,
        t: Tensor | None = None,
        where: Tensor | None = None,
        cache: Cache | None = None,
        label: Tensor | int | None = None,
        present: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        block: int | None = None,
        gaps: bool = False,
        dropout: Dropout | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The output; with `gaps` also the second head's number for each position, [B, L]. For the rest see network/base.py."""
        start = cache.length if cache is not None else 0
        if block is not None:
            attention_mask, positions = block_visibility(x.shape[1] // 2, block, x.device)
        length = self._check_length(start + x.shape[1] if positions is None else int(positions.max()) + 1)
        places = torch.arange(start, length, device=x.device) if positions is None else positions
        limited = present is not None or attention_mask is not None
        visibility = Visibility(present, attention_mask, positions, block) if limited else None
        condition = self._condition(t, label)
        h = x @ self.embed.weight if x.is_floating_point() else self.embed(x)
        rotation = rotary(places, self.shape.width // self.shape.heads, h.dtype)
        *blocks, last = self.blocks
        for one in blocks:
            h = one(h, rotation, condition, cache, visibility, None, dropout)
        h = last(h, rotation, condition, cache, visibility, None if gaps else where, dropout)
        if cache is not None and cache.store:
            cache.length = length
        if not gaps:
            return self._output(h, condition, where)
        if self.gap_head is None:
            raise ValueError("this network was built without a head for gaps")
        kept = h if where is None else h[where]
        return self._output(kept, condition, where), self.gap_head(h, condition)

    def _output(self, h: Tensor, condition: Tensor, where: Tensor | None) -> Tensor:
        """The output head: [B, L, D] → [B, L, outputs], or [n, D] → [n, outputs] at `where`."""
        shift, scale = self.adaln.modulation(condition)
        if where is not None and scale.dim() > 1:
            shift, scale = (one.expand(*where.shape, -1)[where] for one in (shift, scale))
        h = modulated(h, self.norm, shift, scale)
        if self.shape.head_rows == self.shape.outputs:
            return self.head(h)
        return F.linear(h, self.head.weight[: self.shape.outputs], self.head.bias[: self.shape.outputs])

    def _condition(self, t: Tensor | None, label: Tensor | int | None) -> Tensor:
        """c: [B, 1, C], or [B, L, C] where each position has its own time; [C] where it is the same for all."""
        found = self._constant() if not self.shape.time else self._timed(t)
        if self.label is None:
            return found
        number = torch.as_tensor(self.shape.labels if label is None else label, device=found.device)
        known = F.silu(self.label(number))
        return found + (known if known.dim() == 1 else known[:, None])

    def _timed(self, t: Tensor | None) -> Tensor:
        if t is None:
            raise ValueError("this network is conditioned on time: give t")
        return self._embedded(self.shape.read_time(t if t.dim() == 2 else t[:, None]))

    def _constant(self) -> Tensor:
        """c of σ = 0, the same tensor for as long as the weights are the same: [C]."""
        if torch.is_grad_enabled():
            self._kept = None
            return self._embedded(self.head.bias.new_zeros(()))
        key = versions(self.time_embed)
        if self._kept is None or self._kept[0] != key:
            self._kept = key, self._embedded(self.head.bias.new_zeros(()))
        return self._kept[1]

    def _embedded(self, sigma: Tensor) -> Tensor:
        """silu(MLP(φ(σ))): [...] → [..., C]."""
        phases = sigma[..., None] * frequencies(WAVES, sigma.device)
        return F.silu(self.time_embed(torch.cat([phases.cos(), phases.sin()], -1).to(self.head.bias.dtype)))

    def _check_length(self, length: int) -> int:
        if length > self.shape.length:
            raise ValueError(f"this network reads texts of at most {self.shape.length} tokens, found {length}")
        return length


def selected(modulation: Tensor, x: Tensor, where: Tensor) -> Tensor:
    """A shift, scale or gate at the positions `where` of x: [B, 1 or L, D] → [n, D]; one for all positions as it is."""
    return modulation if modulation.dim() == 1 else modulation.expand_as(x)[where]


def frequencies(size: int, device: torch.device) -> Tensor:
    """10000^{−2i/size}, i = 0…size/2 − 1."""
    return BASE ** -(torch.arange(0, size, 2, device=device).float() / size)


def rotary(places: Tensor, head_width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines by which each place turns each pair of features: [L] → [L, D/2] each."""
    angle = places[:, None] * frequencies(head_width, places.device)
    return angle.cos().to(dtype), angle.sin().to(dtype)
