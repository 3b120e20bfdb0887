"""Gradients through q(x_t|x_0) for learned schedules (GenMD4, arXiv:2406.04329).

∇E f = E[∇f] + E ½(f₁ − f₂)(∇log q₁ − ∇log q₂) with two noised sequences, each the baseline of the other (REINFORCE).
"""

from collections.abc import Callable

from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.objective.base import Denoising, Objective
from unnoise.objective.elbo import Elbo
from unnoise.process.base import Process
from unnoise.process.state import position_times
from unnoise.rng import Generator


def leave_one_out(process: Process, value: Callable[[Tensor], Tensor], x: Tensor, t: Tensor, generator: Generator) -> Tensor:
    """Estimate E_{q(x_t|x_0)} value(x_t) from two samples, with a gradient through q: x [B, L], t [B] → [B]."""
    at = position_times(t, x)
    first, second = process.noised(x, None, at, generator), process.noised(x, None, at, generator)
    f_1, f_2 = value(first), value(second)
    log_q = (process.log_prob(first, x, at) - process.log_prob(second, x, at)).sum(-1).to(f_1.dtype)
    surrogate = 0.5 * (f_1 - f_2).detach() * log_q
    return 0.5 * (f_1 + f_2) + surrogate - surrogate.detach()


class LeaveOneOut(Objective):
    """An objective such as Elbo(process) with gradients through q(x_t|x_0), averaged over two samples of x_t."""

    def __init__(self, objective: Denoising):
        super().__init__()
        if not isinstance(objective, Denoising):
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
        boundary = objective.noise_boundary(denoiser, x, generator)
        if objective.leaves_noise:
            start = objective.start_times(x)
            if objective.network_free:  # already an expectation
                boundary = boundary + objective.data_boundary(denoiser, x, x, start)
            else:
                boundary = boundary + leave_one_out(
                    process, lambda x_t: objective.data_boundary(denoiser, x, x_t, start), x, start, generator
                )
        return nats + boundary.to(nats.dtype)
