"""Floating-point utilisation of a run, relative to a plain matrix product."""

import time

import torch
from torch import nn

SIZE, TIMES = 768, 4


def product_flops(device: torch.device, dtype: torch.dtype | None) -> float:
    """Measure the floating-point operations per second of a matrix product, 2n³ / seconds, the fastest of a few."""
    a = torch.ones(SIZE, SIZE, device=device, dtype=dtype)
    fastest = float("inf")
    for _ in range(TIMES):
        _wait(device)
        start = time.perf_counter()
        torch.mm(a, a)
        _wait(device)
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * SIZE**3 / fastest


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def flops_per_token(network: nn.Module) -> float:
    """Return the operations of a forward and backward pass: 6 per weight, embeddings excluded."""
    embeddings = {id(layer.weight) for layer in network.modules() if isinstance(layer, nn.Embedding)}
    return 6.0 * sum(weight.numel() for weight in network.parameters() if id(weight) not in embeddings)
