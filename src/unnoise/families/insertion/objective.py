"""The bound of Flex-MDM (arXiv:2509.01025).

With μ the distribution of each masked token and g ≥ 0 the expected gap between neighbours,

    −log p(x_0) ≤ ∫ E[ b′/(1−b) Σ_masks −log μ(x_0) + a′/(1−a) Σ_gaps φ(gap, g) ] du,  φ(n, g) = g − n − n log g.

With exact μ and g the bound equals −log p(x_0), since a path of insertions fixes the alignment.
"""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.families.insertion.denoiser import predict_insertion
from unnoise.families.insertion.process import Insertion, Partial
from unnoise.objective.base import Objective, sum_rows
from unnoise.objective.times import stratified, times_at
from unnoise.process.base import gather
from unnoise.process.state import PAD
from unnoise.rng import Generator


def gap_cost(count: Tensor, expected: Tensor) -> Tensor:
    """φ(n, g) = g − n − n log g, with 0·log g = 0; it may be negative. Elementwise."""
    some = count > 0
    log_g = torch.where(some, expected, torch.ones_like(expected)).clamp_min(1e-30).log()
    return expected - count - torch.where(some, count * log_g, torch.zeros_like(expected))


class InsertionElbo(Objective):
    """The bound, one draw: texts [B, L] padded with −1 → nats [B].

    t = v², v uniform, weighted by its Jacobian: with uniform t the weight 1/t of a mask has no finite variance.
    """

    def __init__(self, process: Insertion):
        super().__init__()
        if not isinstance(process, Insertion):
            raise ValueError(f"InsertionElbo needs an Insertion process, found {type(process).__name__}")
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        return self.drawn(denoiser, x, stratified(len(x), x.device, generator), generator)

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        t, weight = times_at(v, power=2.0)
        nats = self.at(denoiser, self.process.corrupt(x, t, generator), t)
        return weight.to(nats.dtype) * nats

    def at(self, denoiser: Denoiser, partial: Partial, t: Tensor) -> Tensor:
        """Compute the integrand at one partial sequence: [B]."""
        prediction = predict_insertion(denoiser, self.process, partial.x, t)
        masked = partial.x == self.process.mask
        tokens = sum_rows(-gather(prediction.log_probs, partial.target[masked]), masked)
        length = (partial.x != PAD).sum(1)
        real = torch.arange(partial.gaps.shape[1], device=t.device) <= length[:, None]
        cost = gap_cost(partial.gaps.to(prediction.gaps.dtype), prediction.gaps)
        gaps = torch.where(real, cost, torch.zeros_like(cost)).sum(-1)
        unmask, insert = self.process.unmasking.hazard(t), self.process.insertion.hazard(t)
        return unmask.to(tokens.dtype) * tokens + insert.to(gaps.dtype) * gaps
