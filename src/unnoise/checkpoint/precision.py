"""Weights as they lie on the disk: in half precision, or in eight bits with scales. Loaded, they are float32 again.

int8: row i of a matrix (or of what has more dimensions, by its first) is kept as whole numbers q_i and one scale s_i,

    s_i = max_j |w_ij| / 127,   q_ij = round(w_ij / s_i),   so that |w_ij - s_i q_ij| <= s_i / 2.

The scales are float32, in a tensor of their own named NAME.int8_scale; vectors are float16. A file of this kind says so in what
it says about itself, since whole numbers are not weights otherwise.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

DTYPE = "dtype"  # said in the file of the weights, where they are int8
SCALE = ".int8_scale"
LEVELS = 127
PRECISIONS = ("float32", "float16", "bfloat16", "int8")
_FLOATING = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def check_precision(dtype: str) -> None:
    """ValueError unless weights can be saved as this."""
    if dtype not in PRECISIONS:
        raise ValueError(f"weights are saved as {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, found {dtype!r}")


def narrowed(weights: Mapping[str, Tensor], dtype: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights in this precision (as they are for None), and what the file must say about them.

    ValueError, beginning with the name of the weight, where one holds numbers beyond the precision.
    """
    if dtype is None:
        return dict(weights), {}
    if dtype in _FLOATING:
        return {name: _cast(name, value, _FLOATING[dtype]) for name, value in weights.items()}, {}
    check_precision(dtype)
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        if value.dim() < 2 or not value.is_floating_point():
            found[name] = _cast(name, value, torch.float16)
            continue
        rows = value.detach().float().flatten(1)
        scale = rows.abs().amax(1) / LEVELS if rows.numel() else rows.new_zeros(len(rows))
        found[name + SCALE] = scale
        found[name] = (rows / scale.clamp(min=torch.finfo(scale.dtype).tiny)[:, None]).round().to(torch.int8).view(value.shape)
    return found, {DTYPE: "int8"}


def _cast(name: str, value: Tensor, dtype: torch.dtype) -> Tensor:
    if not value.is_floating_point():
        return value
    if float(value.abs().max() if value.numel() else 0) > torch.finfo(dtype).max:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"{name} holds numbers that are too large for {kind}")
    return value.detach().to(dtype)


def widened(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of a file, with int8 ones multiplied out where the file announces them; ValueError if scales are missing."""
    announced = about.get(DTYPE)
    if announced not in (None, "int8"):
        raise ValueError(f"it says that its weights are {announced!r}, which this version of unnoise does not read")
    if announced is None:
        return dict(tensors)
    weights = {}
    for name, value in tensors.items():
        if name.endswith(SCALE):
            if name.removesuffix(SCALE) not in tensors:
                raise ValueError(f"there are scales {name} and no weight that they belong to")
            continue
        scale = tensors.get(name + SCALE)
        if value.dtype != torch.int8:
            if scale is not None:
                raise ValueError(f"the weight {name} has scales and is not int8 but {value.dtype}")
            weights[name] = value
        elif scale is None:
            raise ValueError(f"the weight {name} is int8 and has no scales ({name}{SCALE})")
        elif value.dim() < 2 or scale.shape != value.shape[:1] or not scale.is_floating_point():
            raise ValueError(f"the weight {name} has shape {list(value.shape)}, and its scales {list(scale.shape)}")
        elif not bool(torch.isfinite(scale).all()):
            raise ValueError(f"the scales of the weight {name} hold numbers that are not finite")
        else:
            weights[name] = value.float() * scale.float().view(-1, *[1] * (value.dim() - 1))
    return weights
