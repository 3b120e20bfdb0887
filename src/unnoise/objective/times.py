"""At which times a loss is looked at: t is drawn from a density, and weighted by its inverse, so that the mean stays the same.

A density is a map of the unit interval, v ↦ w with slope dw/dv; t = start + (1 − start)·w, or i = ⌊wT⌋ + 1 of T steps.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from unnoise import distributed
from unnoise.process.state import LATEST
from unnoise.rng import Generator, RowGenerator, uniform


class TimeSampler(nn.Module, ABC):
    """v uniform on [0, 1] → w and its weight dw/dv: [B] float64 each."""

    @abstractmethod
    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        """w and dw/dv for an integral over t that starts at `start`: [B] → [B], [B]."""

    def observe(self, w: Tensor, nats: Tensor) -> None:
        """What the loss was at w, before its weight: [B], [B]. For densities that learn from it."""
        return

    def learn(self) -> None:
        """Take what was observed into account; called after a training step, by all processes."""
        return


class PowerTimes(TimeSampler):
    """w = v^power: 1 is uniform; 2 tames the weight 1/t of masked bounds (finite variance)."""

    def __init__(self, power: float = 1.0):
        super().__init__()
        if not power > 0:
            raise ValueError(f"power must be > 0, found {power}")
        self.power = power

    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        return v**self.power, self.power * v ** (self.power - 1)


class LogUniformTimes(TimeSampler):
    """t = start^{1−v}, so that log t is uniform: the masked bound's weight 1/t is taken away (importance sampling in MDLM,
    arXiv:2406.07524). Needs start > 0; what lies before it is the bound's boundary term."""

    def warp(self, v: Tensor, start: float) -> tuple[Tensor, Tensor]:
        if not start > 0:
            raise ValueError("log-uniform times need a start > 0: the density 1/t has no mean at 0")
        t = start ** (1 - v)
        return (t - start) / (1 - start), t * math.log(1 / start) / (1 - start)


class SineTimes(TimeSampler):
    """w = sin(πv/2)^power, for rates that are singular at both ends as hybrid noise's are (GIDD, arXiv:2503.04482).

    With 2 the mean of the loss is smooth in v; with 4 its variance is finite too: a token that is not x_0, of probability √t,
    costs 1/t.
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
    """p(t) ∝ √E[L_t²], from a running mean of the squared losses in each of `bins` equal parts of time (Multinomial Diffusion,
    arXiv:2102.05379; Nichol and Dhariwal, arXiv:2102.09672). Uniform until every part was seen ten times.

    The running means are buffers, saved with a run. A hundredth of the density is uniform, so that no weight exceeds 100.
    """

    squares: Tensor
    seen: Tensor

    def __init__(self, bins: int = 100, memory: float = 0.9):
        super().__init__()
        if bins < 1 or not 0 <= memory < 1:
            raise ValueError(f"loss-aware times need bins ≥ 1 and a memory in [0, 1), found {bins} and {memory}")
        self.bins, self.memory = bins, memory
        self.observed: list[Tensor] = []  # since it last learned: [n, 2] each
        self.register_buffer("squares", torch.ones(bins, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(bins, dtype=torch.float64))

    def density(self) -> Tensor:
        """The probability of each part: [bins]."""
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
        self.observed.append(torch.stack([w.detach().double(), nats.detach().double()], 1))

    @torch.no_grad()
    def learn(self) -> None:
        w, nats = distributed.gathered(torch.cat([self.seen.new_zeros(0, 2), *self.observed])).T
        self.observed.clear()
        part = (w * self.bins).long().clamp(0, self.bins - 1)
        for i, value in zip(part.tolist(), nats.double().square().tolist(), strict=True):
            kept = self.memory if self.seen[i] > 0 else 0.0
            self.squares[i] = kept * self.squares[i] + (1 - kept) * value
            self.seen[i] += 1


def stratified(batch: int, device: torch.device, generator: Generator) -> Tensor:
    """Uniform numbers (u + b/B) mod 1, one in each of B strata, in random order so that no row is always early: [B].

    With a RowGenerator B is the whole batch, of which these rows may be a part.
    """
    return own_rows(stratified_whole(batch, device, generator), generator)


def stratified_whole(batch: int, device: torch.device, generator: Generator) -> Tensor:
    """The same for the whole batch, where these rows are a part of it."""
    if isinstance(generator, RowGenerator):
        batch, order = generator.total, generator.shared(generator.total).argsort()
    else:
        order = torch.randperm(batch, generator=generator, device=device)
    return (uniform((), device, generator) + order.double() / batch) % 1


def own_rows(values: Tensor, generator: Generator) -> Tensor:
    """Of values for the whole batch, those of the rows that are computed here."""
    return values[generator.rows] if isinstance(generator, RowGenerator) else values


def times_at(v: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """Return t = v^power for v uniform on [0, 1), and its weight: [B] float64 each."""
    t, weight = PowerTimes(power).warp(v, 0.0)
    return t.clamp(1e-9, LATEST), weight
