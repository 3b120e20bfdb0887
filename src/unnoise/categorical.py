"""Drawing from categorical distributions without losing the rare ones.

Float32 Gumbel noise has a resolution of 2⁻²⁴: over a thousand sampling steps it silently drops rare tokens and flatters
every measure of quality. Here one uniform number in float64 is put through the inverse of the cumulative distribution.
"""

import torch
from torch import Tensor


def draw(probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One index for each row of weights: [..., S] ≥ 0, not necessarily normalised → [...] long.

    y = min{ y : Σ_{k≤y} p_k > u·Σ_k p_k }, u uniform on [0, 1), everything in float64.
    """
    cumulative = probs.double().cumsum(-1)
    total = cumulative[..., -1:].contiguous()
    if not bool((torch.isfinite(total) & (total > 0)).all()):
        raise ValueError("cannot draw from a prediction with NaN, infinite or no probability at all")
    u = uniform(probs.shape[:-1], probs.device, generator)[..., None]
    index = torch.searchsorted(cumulative, u * total, right=True)
    # u·total may round up to total: take the last index with positive weight, not one with none
    last = torch.searchsorted(cumulative, total)
    return torch.minimum(index, last)[..., 0]


def uniform(shape: torch.Size | tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers on [0, 1) in float64."""
    return torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
