"""Objectives: `objective(denoiser, x, generator=None)` is one unbiased draw of a loss or bound, in nats per sequence, [B].

Those of token processes are E_t E_{q(x_t|x_0)} Σ_positions of some term; they differ in the term and in how t is drawn. The
network is called once, and only at the positions where the term is not zero.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser, predict
from unnoise.prediction import TokenPrediction
from unnoise.process.base import Process
from unnoise.process.state import LATEST


class Objective(nn.Module, ABC):
    """Nats per sequence: (denoiser, x: [B, L] long) → [B]. Its parameters, if any, are those of a learned process."""

    @abstractmethod
    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor: ...

    def set_progress(self, progress: float) -> None:
        """How much of the training is done, 0 to 1; a curriculum uses it, a bound does not."""
        return


def stratified(batch: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers (u + b/B) mod 1, one in each of B strata, in random order so that no row is always early: [B]."""
    order = torch.randperm(batch, generator=generator, device=device)
    u = torch.rand((), dtype=torch.float64, device=device, generator=generator)
    return (u + order.double() / batch) % 1


def sample_times(
    batch: int, device: torch.device, generator: torch.Generator | None, start: float = 0.0, power: float = 1.0
) -> tuple[Tensor, Tensor]:
    """t = start + (1 − start)·v^power with v stratified, and its weight: [B] float64 each."""
    v = stratified(batch, device, generator)
    t = start + (1 - start) * v**power
    return t.clamp(1e-9, LATEST), (1 - start) * power * v ** (power - 1)


class Denoising(Objective):
    """E_t E_{q(x_t|x_0)} Σ_positions term(prediction, x_0, x_t, t), with t stratified over the batch.

    t_b = start + (1 − start)·v_b^power, v_b = (u + b/B) mod 1 in random order, weighted by its Jacobian. power = 1 draws t
    uniformly; power = 2 tames the weight 1/t of masked bounds (finite variance), at the cost of more variance elsewhere. With
    `steps` = T it is t = i/T, i uniform in 1…T, weighted by T.
    """

    def __init__(self, process: Process, start: float = 0.0, power: float = 1.0, steps: int | None = None):
        super().__init__()
        if not 0 <= start < 1:
            raise ValueError(f"start must lie in [0, 1), found {start}")
        if not power > 0:
            raise ValueError(f"power must be > 0, found {power}")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ValueError(f"a bound needs a whole number of steps ≥ 1, or None for continuous time, found {steps}")
        if steps is not None and (start != 0 or power != 1):
            raise ValueError("start and power are for continuous time; a bound with steps visits i = 1…T uniformly")
        self.process, self.start, self.power, self.steps = process, start, power, steps

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.process.check_tokens(x)
        t, weight = self.times(len(x), x.device, generator)
        x_t = self.process.noised(x, None, t[:, None].expand(x.shape), generator)
        nats = self.at(denoiser, x, x_t, t)
        return weight.to(nats.dtype) * nats + self.boundary(denoiser, x, generator).to(nats.dtype)

    def boundary(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """What is added once, outside the integral over t: [B]; nothing, unless it is a bound."""
        return x.new_zeros(len(x), dtype=torch.float32)

    def times(self, batch: int, device: torch.device, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """t: [B] float64 and the weight that makes the mean over t an integral over [start, 1], or a sum over steps: [B]."""
        if self.steps is not None:
            step = (stratified(batch, device, generator) * self.steps).floor() + 1
            return step / self.steps, torch.full_like(step, self.steps)
        return sample_times(batch, device, generator, self.start, self.power)

    def at(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Σ_positions term at one noised text: x, x_t [B, L], t [B] → [B]."""
        where = self.process.active(x_t)
        prediction = predict(denoiser, self.process, x_t, t, where)
        return sum_rows(self.term(prediction, x[where], x_t[where], t[:, None].expand(x.shape)[where].double()), where)

    @abstractmethod
    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Nats of each position: [*P]."""


def sum_rows(values: Tensor, where: Tensor) -> Tensor:
    """The sum of the values [n] that belong to the positions `where` [B, L], for each row: [B]."""
    rows = where.nonzero()[:, 0]
    return values.new_zeros(len(where)).index_add(0, rows, values)
