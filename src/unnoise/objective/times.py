"""Densities of the times t at which a loss is evaluated. The loss is divided by the density, so its mean does not change.

A density is a map of the unit interval, v ↦ w with slope dw/dv; then t = start + (1 − start)·w, or i = ⌊wT⌋ + 1 of T steps.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from unnoise import distributed
from unnoise.process.state import LATEST
from unnoise.rng import Generator, RowGenerator, uniform

MOST_OBSERVED = 2**16  # losses that are kept until `learn`; older ones would hardly change a running mean


class TimeSampler(nn.Module, ABC):
    """A map from v, uniform on [0, 1], to w and its weight dw/dv: [B] float64 each."""

    @abstractmethod
    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        """Return w and dw/dv for an integral over t from `start` to 1: [B] → [B], [B]."""

    def observe(self, w: Tensor, nats: Tensor) -> None:
        """Record the unweighted losses at w, for densities that adapt: [B], [B]."""
        return

    def learn(self) -> None:
        """Update the density from the recorded losses. All processes call this after a training step."""
        return


class PowerTimes(TimeSampler):
    """w = v^power: 1 is uniform; 2 gives masked bounds, whose weight is 1/t, a finite variance."""

    def __init__(self, power: float = 1.0):
        super().__init__()
        if not power > 0:
            raise ValueError(f"power must be > 0, found {power}")
        self.power = power

    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        return v**self.power, self.power * v ** (self.power - 1)


class LogUniformTimes(TimeSampler):
    """t = start^{1−v}, so that log t is uniform, which cancels the weight 1/t of the masked bound (importance sampling in MDLM,
    arXiv:2406.07524). Needs start > 0; the bound's boundary term covers the times before it."""

    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        if not start > 0:
            raise ValueError("log-uniform times need a start > 0: the density 1/t has no mean at 0")
        t = start ** (1 - v)
        return (t - start) / (1 - start), t * math.log(1 / start) / (1 - start)


class SineTimes(TimeSampler):
    """w = sin(πv/2)^power, for rates that are singular at both ends, as in hybrid noise (GIDD, arXiv:2503.04482).

    With power 2 the mean of the loss is smooth in v. With power 4 its variance is finite as well: a token other than x_0 has
    probability √t and costs 1/t.
    """

    def __init__(self, power: float = 4.0):
        super().__init__()
        if not power >= 2:
            raise ValueError(f"power must be ≥ 2, found {power}")
        self.power = power

    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        sine, cosine = torch.sin(math.pi / 2 * v), torch.cos(math.pi / 2 * v)
        return sine**self.power, self.power * math.pi / 2 * sine ** (self.power - 1) * cosine


class LossAwareTimes(TimeSampler):
    """p(t) ∝ √E[L_t²], from a running mean of the squared losses in each of `bins` equal bins of time (Multinomial Diffusion,
    arXiv:2102.05379; Nichol and Dhariwal, arXiv:2102.09672). Uniform until every bin has ten losses.

    The running means are buffers, so checkpoints contain them. One percent of the density is uniform, so no weight exceeds 100.
    A custom training loop must call `objective.after_step()`; without it the density stays uniform.
    """

    squares: Tensor
    seen: Tensor

    def __init__(self, bins: int = 100, memory: float = 0.9):
        super().__init__()
        if bins < 1 or not 0 <= memory < 1:
            raise ValueError(f"loss-aware times need bins ≥ 1 and a memory in [0, 1), found {bins} and {memory}")
        self.bins, self.memory = bins, memory
        self.observed = torch.zeros(0, 2, dtype=torch.float64)  # w and losses since the last call of `learn`
        self.register_buffer("squares", torch.ones(bins, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(bins, dtype=torch.float64))

    def density(self) -> Tensor:
        """Return the probability of each bin: [bins]."""
        if bool((self.seen < 10).any()):
            return torch.full_like(self.squares, 1 / self.bins)
        p = self.squares.sqrt()
        return 0.99 * p / p.sum() + 0.01 / self.bins

    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        p = self.density().to(v.device)
        ends = p.cumsum(0)
        part = torch.searchsorted(ends, v, right=True).clamp_max(self.bins - 1)
        inside = ((v - (ends - p)[part]) / p[part]).clamp(0, 1)
        return (part + inside) / self.bins, 1 / (self.bins * p[part])

    def observe(self, w: Tensor, nats: Tensor) -> None:
        found = torch.stack([w.detach().double(), nats.detach().double()], 1).to(self.seen.device)
        self.observed = torch.cat([self.observed.to(found.device), found])[-MOST_OBSERVED:]

    @torch.no_grad()
    def learn(self) -> None:
        w, nats = distributed.gathered(self.observed).to(self.seen.device).T
        self.observed = self.observed[:0]
        part = (w * self.bins).long().clamp(0, self.bins - 1)
        order = part.argsort(stable=True)
        part, squares = part[order], nats[order].square()
        turn = torch.arange(len(part), device=part.device) - torch.searchsorted(part, part)  # number within its bin
        for i in range(int(turn.max()) + 1 if len(part) else 0):
            here = part[turn == i]  # each bin at most once
            kept = self.memory * (self.seen[here] > 0).double()
            self.squares[here] = kept * self.squares[here] + (1 - kept) * squares[turn == i]
            self.seen[here] += 1


def stratified(batch: int, device: torch.device, generator: Generator) -> Tensor:
    """Return uniform numbers (u + b/B) mod 1, one in each of B strata, in random order: [B].

    With a RowGenerator B is the size of the whole batch, of which these rows may be a part.
    """
    return own_rows(stratified_whole(batch, device, generator), generator)


def stratified_whole(batch: int, device: torch.device, generator: Generator) -> Tensor:
    """Return the numbers of `stratified` for the whole batch, of which these rows may be a part."""
    if isinstance(generator, RowGenerator):
        batch, order = generator.total, generator.common(generator.total).argsort()
    else:
        order = torch.randperm(batch, generator=generator, device=device)
    return (uniform((), device, generator) + order.double() / batch) % 1


def own_rows(values: Tensor, generator: Generator) -> Tensor:
    """Return the values of the generator's rows from values of the whole batch."""
    return values[generator.rows] if isinstance(generator, RowGenerator) else values


def times_at(v: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """Return t = v^power for v uniform on [0, 1), and its weight: [B] float64 each."""
    t, weight = PowerTimes(power).warp(v, 0.0)
    return t.clamp(1e-9, LATEST), weight
