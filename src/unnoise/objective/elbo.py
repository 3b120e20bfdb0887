"""The bound on −log p(x_0) of every token process, in continuous time or in T steps, and D3PM's hybrid loss on it."""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.base import Denoising, by_positions, sum_rows
from unnoise.objective.times import TimeSampler
from unnoise.prediction import MeanPrediction, TokenPrediction
from unnoise.process.base import Process, gather
from unnoise.process.masked import Masked
from unnoise.process.state import LATEST
from unnoise.rng import Generator, uniform

RESIDUAL_SHARE = 1 / 16  # in training the cost of the residual signal is computed in so many batches, and weighted back


class Elbo(Denoising):
    """The bound (NELBO): E[elbo] ≥ −log p(x_0), every boundary term included.

    Continuous time: ∫_start^1 E Σ_positions KL rate dt. With `steps` = T: Σ_{i=1}^T E KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)),
    t = i/T, s = (i−1)/T, one random i times T (Multinomial Diffusion, D3PM).

    Boundary: KL(q(x_1|x_0) ‖ π) at noise, or the cost of the signal α(1) > 0 that a masked process leaves;
    E −log p(x_0|x_start) at data where noise is left at `start`. `network_free` replaces the latter's p by GenMD4's, which
    needs no network.
    """

    def __init__(
        self,
        process: Process,
        steps: int | None = None,
        start: float = 0.0,
        power: float = 1.0,
        network_free: bool = False,
        times: TimeSampler | None = None,
    ):
        super().__init__(process, start, power, steps, times)
        if network_free and not isinstance(process, Masked):
            raise ValueError(f"network_free needs a Masked process, found {type(process).__name__}")
        self.network_free = network_free
        with torch.no_grad():
            at_start = process.schedule.noise(torch.full((1,), start, dtype=torch.float64, device=process.device))
        self.leaves_noise = bool((at_start > 0).any())  # at `start`, so that the text must still be reconstructed from it

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        if self.steps is None:
            return self.process.integrand(prediction, x, x_t, t)
        earlier = ((t * self.steps).round() - 1) / self.steps
        return self.process.kl(prediction, x, x_t, earlier, t)

    # ---- boundary terms ---------------------------------------------------------------------------------------------

    def boundary(self, denoiser: Denoiser, x: Tensor, generator: Generator) -> Tensor:
        nats = self.noise_boundary(denoiser, x, generator)
        if not self.leaves_noise:
            return nats
        start = self.start_times(x)
        x_start = x if self.network_free else self.process.noised(x, None, start[:, None].expand(x.shape), generator)
        return nats + self.data_boundary(denoiser, x, x_start, start)

    def noise_boundary(self, denoiser: Denoiser, x: Tensor, generator: Generator) -> Tensor:
        """KL(q(x_1|x_0) ‖ π) and, where a masked process leaves a signal α(1), α(1)·Σ_i −log p(x_0^i | all masks): [B].

        In training the latter is computed in a share of the batches only, chosen at random, and weighted back.
        """
        nats = self.process.noise_kl(x).sum(-1)
        residual = self.process.residual_signal
        if residual == 0:
            return nats
        share = max(RESIDUAL_SHARE, min(1.0, 4 * residual)) if torch.is_grad_enabled() else 1.0
        if float(uniform((), x.device, generator)) >= share:
            return nats
        return nats + residual * self.masked_reconstruction(denoiser, x) / share

    def start_times(self, x: Tensor) -> Tensor:
        """`start` for each sequence: [B] float64."""
        return torch.full((len(x),), self.start, dtype=torch.float64, device=x.device)

    def data_boundary(self, denoiser: Denoiser, x: Tensor, x_start: Tensor, start: Tensor) -> Tensor:
        """Σ_i −log p(x_0^i | x_start), or its expectation by the network-free choice of p: [B]."""
        if self.network_free and isinstance(self.process, Masked):
            return self.process.reconstruction(x, start[:, None].expand(x.shape)).sum(-1)
        return self.reconstruction(denoiser, x, x_start, start)

    def masked_reconstruction(self, denoiser: Denoiser, x: Tensor) -> Tensor:
        """Σ_i −log p(x_0^i | all masks): [B]."""
        late = torch.full((len(x),), LATEST, dtype=torch.float64, device=x.device)
        return self.reconstruction(denoiser, x, torch.full_like(x, self.process.states - 1), late)

    def reconstruction(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Σ_i −log p(x_0^i | x_t): [B]."""
        where = self.process.active(x_t)
        prediction = predict(denoiser, self.process, x_t, t, where)
        times = t[:, None].expand(x.shape)[where].double()
        return sum_rows(by_positions(self.process.surprise, prediction, x[where], x_t[where], times), where)


class Hybrid(Elbo):
    """D3PM's hybrid loss (arXiv:2107.03006): KL of one step + λ·Σ_positions −log μ(x_0), on the scale of the bound, times T.

    The cross-entropy is of the raw μ, at every position, masked or not, as in the paper's own code. Not a bound; trains better.
    """

    def __init__(self, process: Process, steps: int | None = None, weight: float = 0.01, times: TimeSampler | None = None):
        super().__init__(process, steps, times=times)
        if weight < 0:
            raise ValueError(f"the weight of the cross-entropy must be ≥ 0, found {weight}")
        self.weight = weight

    def positions(self, x_t: Tensor) -> Tensor:
        return torch.ones_like(x_t, dtype=torch.bool)

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        if not isinstance(prediction, MeanPrediction):
            raise ValueError(f"the hybrid loss needs a MeanPrediction, found {type(prediction).__name__}")
        return super().term(prediction, x, x_t, t) - self.weight * gather(prediction.log_probs, x)
