"""What the numbers of a published tensor must be; its file has no checksum, so that damage shows in them alone."""

import math

import torch
from torch import Tensor

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LARGEST_WEIGHT = 1e9  # a flipped bit of an exponent makes 10^38, with which a network overflows


def check_numbers(name: str, tensor: Tensor) -> None:
    """ValueError unless a tensor holds floating-point numbers, finite and none beyond all weights; one pass, no copy."""
    if tensor.dtype not in FLOATING:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"the tensor {name} holds {kind}, whole numbers or others that are not floating-point ones")
    if not tensor.numel():
        return
    low, high = (float(end) for end in torch.aminmax(tensor))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"the tensor {name} holds numbers that are not finite")
    largest = max(-low, high)
    if largest > LARGEST_WEIGHT:
        raise ValueError(f"the tensor {name} holds {largest:.3g}, which no weight is: it is damaged")
