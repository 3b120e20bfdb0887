"""How much of what the machine can do a run uses: floating-point operations a second, over those of a plain matrix product."""

import time

import torch
from torch import nn

SIZE, TIMES = 768, 4


def product_flops(device: torch.device, dtype: torch.dtype | None) -> float:
    """Floating-point operations a second of a matrix product here and now, the fastest of a few: 2n³ / seconds."""
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
    """Of a forward and backward pass: 6 for each number of a network that is multiplied by, as all but embeddings are."""
    embeddings = {id(layer.weight) for layer in network.modules() if isinstance(layer, nn.Embedding)}
    return 6.0 * sum(weight.numel() for weight in network.parameters() if id(weight) not in embeddings)
