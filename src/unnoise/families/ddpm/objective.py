"""The losses of DDPM: the bound in T steps and the simple loss.

−log p(x_0) ≤ L_T + Σ_{t=2}^T L_{t−1} + L_0 with L_T = KL(q(x_T | x_0) ‖ N(0, I)), L_{t−1} = E KL(q(x_{t−1} | x_t, x_0) ‖
p(x_{t−1} | x_t)) and L_0 = E −log p(x_0 | x_1).
"""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.families.ddpm.denoiser import predicted
from unnoise.families.ddpm.process import Ddpm
from unnoise.objective.base import Objective
from unnoise.objective.times import stratified
from unnoise.rng import Generator, uniform

EVEN = 0.1  # share of the density of steps that is even, so that no weight exceeds 10(T − 1)


class DdpmElbo(Objective):
    """The bound L_T + ΣL_{t−1} + L_0 in nats per sequence: [B]. L_T is exact; of the sum one step is drawn.

    clip: of the model whose x̂_0 is clipped to [−1, 1] for values of pixels, as the sampler does; without it every step has a
        gradient, as training needs.
    share: of the batches in which L_0 is computed, weighted back; 1 when the bound is measured.
    """

    def __init__(self, process: Ddpm, clip: bool = True, share: float = 1.0):
        super().__init__()
        if not isinstance(process, Ddpm):
            raise ValueError(f"DdpmElbo needs a Ddpm process, found {type(process).__name__}")
        self.process, self.clip, self.share = process, clip, share

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        process = self.process
        process.check_tokens(x)
        z_0 = process.table()[x]
        nats = process.noise_kl(x).sum(-1)
        if process.steps > 1:
            step, weight = self.steps_at(stratified(len(x), x.device, generator))
            z = process.diffuse(z_0, process.time_of(step), generator)
            nats = nats + weight * self.kl(denoiser, z_0, z, step)
        first = torch.ones(len(x), dtype=torch.long, device=x.device)
        if self.share == 1 or float(uniform((), x.device, generator)) < self.share:
            z = process.diffuse(z_0, process.time_of(first), generator)
            nats = nats + self.reconstruction(denoiser, x, z) / self.share
        return nats

    def density(self) -> Tensor:
        """Return the probability of each step t = 2…T: [T − 1].

        A tenth of it is even. The rest is in proportion to L_{t−1} of a best linear denoiser of data of unit variance,
        ½(SNR_{t−1} − SNR_t)(1 − ᾱ_t), which is large for small t.
        """
        noise = self.process.one_minus_alpha_bar
        snr = self.process.alpha_bar[1:] / noise[1:]
        cost = (snr[:-1] - snr[1:]) * noise[2:]
        return (1 - EVEN) * cost / cost.sum() + EVEN / len(cost)

    def steps_at(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the steps t ≥ 2 of uniform numbers v, by inverting their distribution, and 1/probability: [B] → [B], [B]."""
        p = self.density()
        place = torch.searchsorted(p.cumsum(0), v, right=True).clamp_max(len(p) - 1)
        return place + 2, 1 / p[place]

    def kl(self, denoiser: Denoiser, z_0: Tensor, z: Tensor, step: Tensor) -> Tensor:
        """Return L_{t−1} at x_t = z: z_0, z [B, L, D], step [B] → [B]."""
        clean = self.process.clean(predicted(denoiser, self.process, z, step), z, step, self.clip)
        return self.process.step_kl(z_0, clean, step)

    def reconstruction(self, denoiser: Denoiser, x: Tensor, z: Tensor) -> Tensor:
        """Return −log p(x_0 | x_1) at x_1 = z: x [B, L], z [B, L, D] → [B]."""
        first = torch.ones(len(x), dtype=torch.long, device=x.device)
        clean = self.process.clean(predicted(denoiser, self.process, z, first), z, first, self.clip)
        return -self.process.decoded_token(clean, x).sum(-1)


class DdpmSimple(Objective):
    """‖target − prediction‖² at a step t uniform on 1…T, summed over the sequence: [B]. Not a bound (L_simple, Algorithm 1)."""

    def __init__(self, process: Ddpm):
        super().__init__()
        if not isinstance(process, Ddpm):
            raise ValueError(f"DdpmSimple needs a Ddpm process, found {type(process).__name__}")
        if process.embed == "learned":
            raise ValueError(
                "the simple loss is least when all embeddings are the same: learn them with loss=elbo, or use embed=fixed"
            )
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        process = self.process
        process.check_tokens(x)
        z_0, v = process.table()[x], stratified(len(x), x.device, generator)
        step = (v * process.steps).long().clamp_max(process.steps - 1) + 1
        z = process.diffuse(z_0, process.time_of(step), generator)
        return (process.wanted(z_0, z, step) - predicted(denoiser, process, z, step)).square().sum((-1, -2))
