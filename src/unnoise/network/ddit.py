"""The diffusion Transformer of SEDD, MDLM, BD3-LM, Duo, UDLM, GIDD and Flex-MDM, for published weights and new training runs.

    x ← x + g₁·W_o·attention(LN(x)·w₁·(1 + s₁) + b₁),   x ← x + g₂·MLP(LN(x)·w₂·(1 + s₂) + b₂),   (b, s, g) = adaLN(c)

    c = silu(MLP(φ(σ))) + silu(label),   φ(σ) = [cos(σ f_k), sin(σ f_k)],   f_k = 10000^{−k/128},   k = 0…127

Rotary positions rotate halves of a head (pairs i, i + D/2). GELU uses the tanh approximation. Norms and attention have no
biases, and the output head is not tied to the embedding. DiT: arXiv:2212.09748; the variant for text: SEDD, arXiv:2310.16834.
Without time conditioning σ is 0 and c is a constant: the norms then have plain weights and biases, and each branch has a plain
gate.
"""

import inspect
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.attention import KVCache, Visibility, attend_visible, block_visibility, rotate
from unnoise.network.layers import Dropout
from unnoise.network.network_base import DERIVED, NetworkConfig
from unnoise.schedule import Geometric, LogLinear

TIME_INPUTS = ("loglinear", "geometric", "t", "1-t")


@dataclass(frozen=True)
class DditConfig(NetworkConfig):
    """Fields of a `Ddit`, in addition to the common ones.

    hidden: features of the MLP; four times the width by default.
    cond_width: features of c; 128 in every published network.
    head_rows: rows of the output head, of which the first `outputs` are used; `outputs` by default.
    time: whether the network is conditioned on t.
    time_input: form in which t enters: σ of the schedule `loglinear` (with sigma_eps) or `geometric` (with sigma_min and
        sigma_max), t itself, or 1-t.
    causal: whether a position attends only to itself and to earlier positions.
    gaps: whether there is a second head with one number per position.
    labels: number of classes; one more embedding stands for "no label".
    """

    hidden: int = DERIVED
    cond_width: int = 128
    head_rows: int = DERIVED
    time: bool = False
    time_input: str = "loglinear"
    sigma_eps: float = 1e-3
    sigma_min: float = 1e-4
    sigma_max: float = 20.0
    causal: bool = False
    gaps: bool = False
    labels: int = 0

    def __post_init__(self) -> None:
        self.derive(hidden=4 * self.width, head_rows=self.outputs)
        self.check_sizes("hidden", "cond_width", "head_rows")
        self.check_heads()
        if self.head_rows < self.outputs:
            raise ValueError(f"a network's head_rows must be ≥ its outputs, found {self.head_rows} and {self.outputs}")
        if self.time_input not in TIME_INPUTS:
            raise ValueError(f"a network's time_input is one of {', '.join(TIME_INPUTS)}, found {self.time_input!r}")
        self.schedule()

    def schedule(self) -> LogLinear | Geometric:
        """Return the schedule that defines σ(t)."""
        return Geometric(self.sigma_min, self.sigma_max) if self.time_input == "geometric" else LogLinear(self.sigma_eps)

    def read_time(self, t: Tensor) -> Tensor:
        """Return the network's time input: [...] → [...]."""
        if self.time_input in ("t", "1-t"):
            return t if self.time_input == "t" else 1 - t
        return self.schedule().sigma(t)


WAVES = 256  # cosines and sines of σ
BASE = 10_000.0  # longest wavelength of the embedding of σ and of rotary positions, over 2π
EPS = 1e-5  # added to the variance in norms


class AdaLN(nn.Linear):
    """Shifts, scales and gates W·c + b, all zero at initialization (adaLN)."""

    def __init__(self, cond_width: int, width: int, chunks: int):
        super().__init__(cond_width, chunks * width)
        self.chunks = chunks

    def modulation(self, condition: Tensor) -> tuple[Tensor, ...]:
        """c [B, 1 or L, C] → `chunks` of [B, 1 or L, D], or of [D] for c [C]."""
        return self(condition).chunk(self.chunks, -1)


def modulated(x: Tensor, norm: nn.LayerNorm, shift: Tensor, scale: Tensor) -> Tensor:
    """LN(x)·w·(1 + scale) + shift: x [B, L, D] or [n, D], shift and scale of the same shape, or [D]."""
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
        cache: KVCache | None,
        visibility: Visibility | None,
        *,
        where: Tensor | None,
        dropout: Dropout | None,
    ) -> Tensor:
        """[B, L, D] → [B, L, D]; with `where` the MLP runs only at those n positions, and the result is [n, D]."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.adaln.modulation(condition)
        attended = self._attention(modulated(x, self.attention_norm, shift_1, scale_1), rotation, cache, visibility)
        x = torch.addcmul(x, gate_1, attended if dropout is None else dropout(attended, 2 * self.layer))
        if where is not None:
            shift_2, scale_2, gate_2 = (selected(one, x, where) for one in (shift_2, scale_2, gate_2))
            x = x[where]
        processed = self.down(F.gelu(self.up(modulated(x, self.norm, shift_2, scale_2)), approximate="tanh"))
        return torch.addcmul(x, gate_2, processed if dropout is None else dropout(processed, 2 * self.layer + 1, where))

    def _attention(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: KVCache | None, visibility: Visibility | None
    ) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k = rotate(qkv[:, :, :2], rotation).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), qkv[:, :, 2].transpose(1, 2)  # [B, H, L, D]
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        y = attend_visible(q, k, v, self.causal, visibility).transpose(1, 2).reshape(batch, length, width)
        if visibility is not None and visibility.present is not None:  # padding attends to nothing
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

    Takes the fields of `DditConfig`. x may also be a state of real numbers, [B, L, inputs]: soft tokens or noised embeddings.
    """

    __signature__ = inspect.signature(DditConfig)

    def __init__(self, **fields: Any):
        super().__init__()
        shape = self.shape = DditConfig(**fields)
        self.config = asdict(shape)
        cond = shape.cond_width
        self.embed = nn.Embedding(shape.inputs, shape.width, _weight=torch.empty(shape.inputs, shape.width))
        self.time_embed = nn.Sequential(nn.Linear(WAVES, cond), nn.SiLU(), nn.Linear(cond, cond))
        rows = shape.labels + 1
        self.label = nn.Embedding(rows, cond, _weight=torch.empty(rows, cond)) if shape.labels else None
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width, EPS, bias=False)
        self.adaln = AdaLN(cond, shape.width, 2)
        self.head = nn.Linear(shape.width, shape.head_rows)
        self.gap_head = GapHead(shape) if shape.gaps else None
        self._initialize()

    def _initialize(self) -> None:
        """Initialize the weights as in the papers: adaLN and the heads start at zero, and so does every branch.

        On torch's meta device there is nothing to fill, and drawing numbers would only import half of torch.
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
        places = torch.arange(start, length, device=x.device) if positions is None else positions
        limited = present is not None or attention_mask is not None
        visibility = Visibility(present, attention_mask, positions, block) if limited else None
        condition = self._condition(t, label)
        h = x @ self.embed.weight if x.is_floating_point() else self.embed(x)
        rotation = rotary(places, self.shape.width // self.shape.heads, h.dtype)
        *blocks, last = self.blocks
        for one in blocks:
            h = one(h, rotation, condition, cache, visibility, where=None, dropout=dropout)
        h = last(h, rotation, condition, cache, visibility, where=None if gaps else where, dropout=dropout)
        if cache is not None and not cache.frozen:
            cache.length = length
        if not gaps:
            return self._output(h, condition, where)
        if self.gap_head is None:
            raise ValueError("this network was built without a head for gaps")
        kept = h if where is None else h[where]
        return self._output(kept, condition, where), self.gap_head(h, condition)

    def _output(self, h: Tensor, condition: Tensor, where: Tensor | None) -> Tensor:
        """Apply the output head: [B, L, D] → [B, L, outputs], or [n, D] → [n, outputs] at `where`."""
        shift, scale = self.adaln.modulation(condition)
        if where is not None and scale.dim() > 1:
            shift, scale = (one.expand(*where.shape, -1)[where] for one in (shift, scale))
        h = modulated(h, self.norm, shift, scale)
        if self.shape.head_rows == self.shape.outputs:
            return self.head(h)
        return F.linear(h, self.head.weight[: self.shape.outputs], self.head.bias[: self.shape.outputs])

    def _condition(self, t: Tensor | None, label: Tensor | int | None) -> Tensor:
        """Return c: [B, 1, C], [B, L, C] if each position has its own time, or [C] if it is the same everywhere."""
        if not self.shape.time:
            sigma = self.head.bias.new_zeros(())
        elif t is None:
            raise ValueError("this network is conditioned on time: pass t")
        else:
            sigma = self.shape.read_time(t if t.dim() == 2 else t[:, None])
        phases = sigma[..., None] * frequencies(WAVES, sigma.device)
        found = F.silu(self.time_embed(torch.cat([phases.cos(), phases.sin()], -1).to(self.head.bias.dtype)))
        if self.label is None:
            return found
        number = torch.as_tensor(self.shape.labels if label is None else label, device=found.device)
        known = F.silu(self.label(number))
        return found + (known if known.dim() == 1 else known[:, None])


def selected(modulation: Tensor, x: Tensor, where: Tensor) -> Tensor:
    """Return a shift, scale or gate at the positions `where` of x: [B, 1 or L, D] → [n, D]; [D] is returned unchanged."""
    return modulation if modulation.dim() == 1 else modulation.expand_as(x)[where]


def frequencies(size: int, device: torch.device) -> Tensor:
    """Return 10000^{−2i/size} for i = 0…size/2 − 1."""
    return BASE ** -(torch.arange(0, size, 2, device=device).float() / size)


def rotary(places: Tensor, head_width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of the angle by which each position rotates each pair of features: [L] → [L, D/2] each."""
    angle = places[:, None] * frequencies(head_width, places.device)
    return angle.cos().to(dtype), angle.sin().to(dtype)
