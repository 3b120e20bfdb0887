"""Drawing from categorical distributions without losing the rare ones.

Float32 Gumbel noise has a resolution of 2⁻²⁴: over a thousand sampling steps it silently drops rare tokens and flatters
every measure of quality. Here one uniform number in float64 is put through the inverse of the cumulative distribution.
"""

import torch
from torch import Tensor

from unnoise.rng import Generator, RowGenerator, uniform


def draw(probs: Tensor, generator: Generator = None, where: Tensor | None = None) -> Tensor:
    """One index for each row of weights: [..., S] ≥ 0, not necessarily normalised → [...] long.

    y = min{ y : Σ_{k≤y} p_k > u·Σ_k p_k }, u uniform on [0, 1), everything in float64. where: [B, L] bool, the n positions of
    a batch that probs [n, S] are about.
    """
    cumulative = probs.double().cumsum(-1)
    total = cumulative[..., -1:].contiguous()
    if not bool((torch.isfinite(total) & (total > 0)).all()):
        raise ValueError("cannot draw from a prediction with NaN, infinite or no probability at all")
    u = uniform(probs.shape[:-1] if where is None else where.shape, probs.device, generator, where)[..., None]
    index = torch.searchsorted(cumulative, u * total, right=True)
    # u·total may round up to total: take the last index with positive weight, not one with none
    last = torch.searchsorted(cumulative, total)
    return torch.minimum(index, last)[..., 0]


def poisson(mean: Tensor, generator: Generator = None) -> Tensor:
    """Counts k ~ e^{−λ} λ^k/k!, for each λ ≥ 0: [...] → [...] long."""
    if not isinstance(generator, RowGenerator):
        return torch.poisson(mean, generator=generator).long()
    most = float(mean.max()) if mean.numel() else 0.0
    k = torch.arange(int(most + 12 * most**0.5 + 24), device=mean.device, dtype=torch.float64)
    log_p = torch.xlogy(k, mean.double()[..., None]) - mean.double()[..., None] - torch.lgamma(k + 1)
    return draw(log_p.exp(), generator)
