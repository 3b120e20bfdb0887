"""The continuous-time bound of Campbell et al. (arXiv:2205.14987), with one sampled jump instead of the sum over jumps.

With R̂(x → y) = R_t(y → x)·s_y(x) the predicted reverse rates and Z(x) the rate at which noise leaves x,

    ∫ E_{x_t} [ Σ_{y≠x_t} R̂(x_t → y) − Z(x_t)·log s_{x_t}(x̃) ] dt + C,   x̃ ~ R_t(x_t → x̃)/Z(x_t),

where x̃ is x_t after one more jump of the noise and s_{x_t}(x̃) the predicted ratio that leads back. C does not depend on the
network: E Σ_y R_t(y → x_t)·(r_y log r_y − r_y). The mean is the same as for `Elbo`. It needs one more network call, and for
masked noise the sampled jump adds variance.
"""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.base import sum_rows
from unnoise.objective.elbo import Elbo
from unnoise.process.base import Process, gather, without_own
from unnoise.rng import Generator, draw


class CampbellElbo(Elbo):
    """`Elbo` in continuous time with one sampled jump per sequence: [B]. The boundary terms are the same."""

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
