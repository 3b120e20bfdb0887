"""Attention in bfloat16 on a CPU, forward and backward: torch's fused kernel beside the plain products that training uses.

    OMP_NUM_THREADS=1 python benchmarks/attention.py

Milliseconds of one thread for a batch of texts, the median of nine rounds in turns, and the ratio.
"""

import statistics
import time

import torch
from torch.nn import functional as F

from unnoise.network.attention import attend

SHAPES = [(64, 8, 42, 32), (32, 8, 128, 32), (32, 4, 128, 64), (16, 8, 256, 32), (16, 8, 512, 32)]  # B, H, L, D


def seconds(function, tensors: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    y = function(*tensors, is_causal=True)
    y.backward(torch.ones_like(y))
    return time.perf_counter() - start


if __name__ == "__main__":
    print(f"{'batch × heads × length × features':36s} {'fused':>9s} {'plain':>9s}  ratio")
    for batch, heads, length, features in SHAPES:
        shape = batch, length, heads, features
        tensors = [torch.randn(shape, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3)]
        rounds = [(seconds(F.scaled_dot_product_attention, tensors), seconds(attend, tensors)) for _ in range(10)][1:]
        fused, plain = (1000 * statistics.median(column) for column in zip(*rounds, strict=True))
        name = f"{batch} × {heads} × {length} × {features}"
        print(f"{name:36s} {fused:6.1f} ms {plain:6.1f} ms  {fused / plain:.2f}", flush=True)
