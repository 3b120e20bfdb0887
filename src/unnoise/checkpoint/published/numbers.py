"""Checked access to the tensors of a published file. The files have no checksum, so damage shows only in the values."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LARGEST_WEIGHT = 1e9  # a flipped exponent bit gives values near 10^38


class Tensors:
    """Tensors by name. Each is taken once, with the shape it must have."""

    def __init__(self, found: Mapping[str, Tensor]):
        self.found = dict(found)

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor; raise ValueError if it is missing or has the wrong shape, a wrong type or values out of range.

        Matrices keep their type and stay memory-mapped. Vectors and float64 tensors become float32.
        """
        if name not in self.found:
            raise ValueError(f"the tensor {name} is missing")
        tensor = self.found.pop(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"the tensor {name} has shape {list(tensor.shape)}, not {list(shape)}")
        if tensor.dtype not in FLOATING:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"the tensor {name} holds {kind} values, not floating-point numbers")
        if tensor.numel():
            low, high = map(float, torch.aminmax(tensor))
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ValueError(f"the tensor {name} holds numbers that are not finite")
            if max(-low, high) > LARGEST_WEIGHT:
                raise ValueError(f"the tensor {name} holds {max(-low, high):.3g}, too large for a weight: it is damaged")
        return tensor.float() if tensor.dim() == 1 or tensor.dtype == torch.float64 else tensor

    def check_all_taken(self, kind: str) -> None:
        """Raise ValueError if tensors are left over, since the file then holds another network."""
        if self.found:
            raise ValueError(f"the tensor {min(self.found)} is unknown to {kind}")
