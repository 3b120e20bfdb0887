"""Bounds on −log p(x_0) for token processes: the NELBO in continuous time or in T steps, and its variants.

| class | bound |
|---|---|
| `Elbo` | the bound of every token process |
| `Hybrid` | D3PM's hybrid loss on it (not a bound) |
| `LeaveOneOut` | with gradients through q(x_t|x_0), for learned schedules |
| `ImportanceWeighted` | several orders of unmasking, averaged as probabilities |
| `CampbellElbo` | one sampled jump instead of the sum over jumps |
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.objective_base import DenoisingObjective, Objective, sum_rows, terms_at
from unnoise.objective.times import TimeSampler
from unnoise.prediction import MeanPrediction, TokenPrediction
from unnoise.process.masked import Masked
from unnoise.process.process_base import Process, gather, without_own
from unnoise.process.state import LATEST, position_times
from unnoise.rng import Generator, draw, uniform

RESIDUAL_SHARE = 1 / 16  # share of training batches in which the cost of the residual signal is computed and weighted back
MOST_ORDERS = 1_000_000


class Elbo(DenoisingObjective):
    """The bound (NELBO): E[elbo] ≥ −log p(x_0), including all boundary terms.

    Continuous time: ∫_start^1 E Σ_positions KL rate dt. With `steps` = T: Σ_{i=1}^T E KL(q(x_s|x_t,x_0) ‖ p(x_s|x_t)),
    t = i/T, s = (i−1)/T, one random i times T (Multinomial Diffusion, D3PM).

    Boundary terms: KL(q(x_1|x_0) ‖ π) at t = 1, or the cost of a signal α(1) > 0 of a masked process; E −log p(x_0|x_start) at
    `start` if the sequence is noised there, with GenMD4's p, which needs no network, if `network_free`.
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
        self.starts_noisy = bool((at_start > 0).any())  # the sequence at `start` is noised, so a reconstruction term is needed

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        if self.steps is None:
            return self.process.integrand(prediction, x, x_t, t)
        earlier = ((t * self.steps).round() - 1) / self.steps
        return self.process.kl(prediction, x, x_t, earlier, t)

    # ---- boundary terms ---------------------------------------------------------------------------------------------

    def boundary(self, denoiser: Denoiser, x: Tensor, generator: Generator) -> Tensor:
        nats = self.prior_loss(denoiser, x, generator)
        if not self.starts_noisy:
            return nats
        start = self.start_times(x)
        x_start = x if self.network_free else self.process.noised(x, None, start[:, None].expand(x.shape), generator)
        return nats + self.reconstruction_loss(denoiser, x, x_start, start)

    def prior_loss(self, denoiser: Denoiser, x: Tensor, generator: Generator) -> Tensor:
        """Compute KL(q(x_1|x_0) ‖ π) and, if a masked process has α(1) > 0, α(1)·Σ_i −log p(x_0^i | all masks): [B].

        In training the second term is computed only in a random share of the batches and weighted back.
        """
        nats = self.process.noise_kl(x).sum(-1)
        residual = self.process.terminal_alpha
        if residual == 0:
            return nats
        share = max(RESIDUAL_SHARE, min(1.0, 4 * residual)) if torch.is_grad_enabled() else 1.0
        if float(uniform((), x.device, generator)) >= share:
            return nats
        return nats + residual * self.masked_reconstruction(denoiser, x) / share

    def start_times(self, x: Tensor) -> Tensor:
        """Return `start` for each sequence: [B] float64."""
        return torch.full((len(x),), self.start, dtype=torch.float64, device=x.device)

    def reconstruction_loss(self, denoiser: Denoiser, x: Tensor, x_start: Tensor, start: Tensor) -> Tensor:
        """Compute Σ_i −log p(x_0^i | x_start), or its expectation with the network-free p: [B]."""
        if self.network_free and isinstance(self.process, Masked):
            return self.process.reconstruction(x, start[:, None].expand(x.shape)).sum(-1)
        return self.reconstruction(denoiser, x, x_start, start)

    def masked_reconstruction(self, denoiser: Denoiser, x: Tensor) -> Tensor:
        """Compute Σ_i −log p(x_0^i | all masks): [B]."""
        late = torch.full((len(x),), LATEST, dtype=torch.float64, device=x.device)
        return self.reconstruction(denoiser, x, torch.full_like(x, self.process.states - 1), late)

    def reconstruction(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute Σ_i −log p(x_0^i | x_t): [B]."""
        where = self.process.active(x_t)
        return sum_rows(terms_at(self.process.cross_entropy, denoiser, self.process, x=x, x_t=x_t, t=t, where=where), where)


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


def leave_one_out(process: Process, value: Callable[[Tensor], Tensor], x: Tensor, t: Tensor, generator: Generator) -> Tensor:
    """Estimate E_{q(x_t|x_0)} value(x_t) from two samples, with a gradient through q: x [B, L], t [B] → [B]."""
    at = position_times(t, x)
    first, second = process.noised(x, None, at, generator), process.noised(x, None, at, generator)
    f_1, f_2 = value(first), value(second)
    log_q = (process.log_prob(first, x, at) - process.log_prob(second, x, at)).sum(-1).to(f_1.dtype)
    surrogate = 0.5 * (f_1 - f_2).detach() * log_q
    return 0.5 * (f_1 + f_2) + surrogate - surrogate.detach()


class LeaveOneOut(Objective):
    """An objective such as Elbo(process) with gradients through q(x_t|x_0), averaged over two samples of x_t.

    ∇E f = E[∇f] + E ½(f₁ − f₂)(∇log q₁ − ∇log q₂), where each sample is the baseline of the other (REINFORCE; GenMD4,
    arXiv:2406.04329).
    """

    def __init__(self, objective: DenoisingObjective):
        super().__init__()
        if not isinstance(objective, DenoisingObjective):
            raise ValueError(f"LeaveOneOut needs an objective such as Elbo(process), found {type(objective).__name__}")
        self.objective = objective

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        objective, process = self.objective, self.objective.process
        process.check_tokens(x)
        t, weight = objective.times(len(x), x.device, generator)
        nats = leave_one_out(process, lambda x_t: objective.at(denoiser, x, x_t, t), x, t, generator)
        nats = weight.to(nats.dtype) * nats
        if not isinstance(objective, Elbo):
            return nats
        boundary = objective.prior_loss(denoiser, x, generator)
        if objective.starts_noisy:
            start = objective.start_times(x)
            if objective.network_free:  # already an expectation
                boundary = boundary + objective.reconstruction_loss(denoiser, x, x, start)
            else:
                boundary = boundary + leave_one_out(
                    process, lambda x_t: objective.reconstruction_loss(denoiser, x, x_t, start), x, start, generator
                )
        return nats + boundary.to(nats.dtype)


class ImportanceWeighted(Objective):
    """The importance-weighted bound −log (1/M) Σ_m w_m with M random orders of unmasking (IWAE, arXiv:1509.00519): [B].

    A masked model that ignores t unmasks one token at a time in a uniformly random order o, so that

        p(x) = E_o w_o,   w_o = Π_k μ(x^{o_k} | x^{o_1}, …, x^{o_{k−1}}),   −log p(x) ≤ E −log (1/M) Σ_{m=1}^M w_{o_m}.

    M = 1 is the bound in continuous time (ARDM, arXiv:2110.02037). The bound decreases with M and converges to −log p(x). Each
    order needs one network call per token.

    process: Masked, with one schedule for all tokens.
    orders: M. For denoisers that return a mean and ignore t.
    """

    process: Masked

    def __init__(self, process: Process, orders: int = 8):
        super().__init__()
        if not isinstance(process, Masked) or process.per_token:
            raise ValueError("the importance-weighted bound needs a Masked process with one schedule for all tokens")
        if isinstance(orders, bool) or not isinstance(orders, int) or not 1 <= orders <= MOST_ORDERS:
            raise ValueError(f"orders must be a whole number ≥ 1 (and ≤ {MOST_ORDERS:,}), found {orders!r}")
        self.process, self.orders = process, orders

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        ranks = [uniform(x.shape, x.device, generator).argsort(1).argsort(1) for _ in range(self.orders)]
        return self.at(denoiser, x, torch.stack(ranks))

    def at(self, denoiser: Denoiser, x: Tensor, ranks: Tensor) -> Tensor:
        """Compute the bound for given orders: x [B, L], ranks [M, B, L] in which positions are revealed → [B]."""
        weights = torch.stack([self.log_weight(denoiser, x, rank) for rank in ranks])  # [M, B, parts]
        return (math.log(len(ranks)) - weights.logsumexp(0)).sum(-1)

    def log_weight(self, denoiser: Denoiser, x: Tensor, rank: Tensor) -> Tensor:
        """Compute log w of one order for each part of a sequence (here one): [B, L] → [B, parts] float64."""
        total = x.new_zeros(len(x), 1, dtype=torch.float64)
        for k in range(x.shape[1]):
            x_t = x.masked_fill(rank >= k, self.process.mask)
            where = rank == k
            t = torch.full((len(x),), 1 - k / x.shape[1], dtype=torch.float64, device=x.device)
            prediction = predict(denoiser, self.process, x_t, t, where)
            total[:, 0] -= self.process.cross_entropy(prediction, x[where], x_t[where], t).double()
        return total


class CampbellElbo(Elbo):
    """`Elbo` in continuous time with one sampled jump per sequence (Campbell et al., arXiv:2205.14987): [B].

    With R̂(x → y) = R_t(y → x)·s_y(x) the predicted reverse rates and Z(x) the rate at which the noise leaves x,

        ∫ E_{x_t} [ Σ_{y≠x_t} R̂(x_t → y) − Z(x_t)·log s_{x_t}(x̃) ] dt + C,   x̃ ~ R_t(x_t → x̃)/Z(x_t),

    where x̃ is x_t after one more jump of the noise and s_{x_t}(x̃) the predicted ratio that leads back. C does not depend on the
    network: E Σ_y R_t(y → x_t)·(r_y log r_y − r_y). The mean and the boundary terms are the same as for `Elbo`. It needs one
    more network call, and for masked noise the sampled jump adds variance.
    """

    def __init__(self, process: Process, start: float = 0.0, power: float = 1.0):
        super().__init__(process, None, start, power)

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        t, weight = self.times(len(x), x.device, generator)
        x_t = self.process.noised(x, None, t[:, None].expand(x.shape), generator)
        nats = self.at_jump(denoiser, x, x_t, self.jump(x_t, t, generator), t)
        return weight.to(nats.dtype) * nats + self.boundary(denoiser, x, generator).to(nats.dtype)

    def exit_rates(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Return R_t(x_t → y) for every position and y ≠ x_t, zero at x_t: x_t [B, L], t [B] → [B, L, S]."""
        rate = self.process.rate(t)  # [B, S, S]
        rows = rate.gather(1, x_t[..., None].expand(*x_t.shape, self.process.states))
        return rows.scatter(-1, x_t[..., None], 0.0)

    def jump(self, x_t: Tensor, t: Tensor, generator: Generator) -> Tensor:
        """Sample x̃, x_t after one jump of the noise, or x_t itself if no jump is possible: [B, L]."""
        rates = self.exit_rates(x_t, t).flatten(1)  # [B, L·S]
        possible = rates.sum(1) > 0
        chosen = draw(torch.where(possible[:, None], rates, torch.ones_like(rates)), generator)
        place, state = chosen // self.process.states, chosen % self.process.states
        jumped = x_t.scatter(1, place[:, None], state[:, None])
        return torch.where(possible[:, None], jumped, x_t)

    def at_jump(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, jumped: Tensor, t: Tensor) -> Tensor:
        """Compute the integrand at x_t with the jump to `jumped`: x, x_t, jumped [B, L], t [B] → [B]."""
        process = self.process
        where = process.active(x_t)
        x_at, at = x_t[where], t[:, None].expand(x.shape)[where].double()
        log_s = without_own(predict(denoiser, process, x_t, t, where).ratios(process, x_at, at), x_at)
        rates = process.rates_into(x_at, at).to(log_s.dtype)
        out = sum_rows(torch.where(rates > 0, rates * log_s.exp(), torch.zeros_like(rates)).sum(-1), where)
        moved = jumped != x_t
        back = predict(denoiser, process, jumped, t, moved).ratios(process, jumped[moved], t[moved.any(1)].double())
        total = self.exit_rates(x_t, t).sum((1, 2)).to(log_s.dtype)
        return out - total * sum_rows(gather(back, x_t[moved]).to(log_s.dtype), moved) + self.constant(x, t).to(log_s.dtype)

    def constant(self, x: Tensor, t: Tensor) -> Tensor:
        """Compute C(x_0, t) = Σ_positions Σ_{x≠y} q(y|x_0) R_t(y → x)·[ log q(y|x_0)/q(x|x_0) − 1 ]: [B]."""
        q = self.process.marginal(x, t[:, None].expand(x.shape))  # [B, L, S]
        rate = self.process.rate(t)
        rate = rate - torch.diag_embed(torch.diagonal(rate, dim1=-2, dim2=-1))
        log_q = torch.where(q > 0, q, torch.ones_like(q)).log()
        leaving = torch.xlogy(q, q) - q
        return (leaving @ rate).sum((1, 2)) - ((q @ rate) * log_q).sum((1, 2))
