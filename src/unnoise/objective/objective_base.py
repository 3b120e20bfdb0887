"""Base classes of objectives: `objective(denoiser, x, generator=None)` is an unbiased estimate of a loss or bound, [B] nats.

For token processes the loss is E_t E_{q(x_t|x_0)} Σ_positions term. Objectives differ in the term and in the density of t. The
network is called once, and only at the positions where the term is not zero.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.times import PowerTimes, TimeSampler, own_rows, stratified_whole
from unnoise.prediction import TokenPrediction
from unnoise.process.process_base import Process
from unnoise.process.state import LATEST
from unnoise.rng import Generator

NUMBERS = 2**23  # maximum number of predicted values that a bound processes at once


class Objective(nn.Module, ABC):
    """A loss in nats per sequence: (denoiser, x: [B, L] long) → [B]. Its parameters belong to a learned process."""

    @abstractmethod
    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor: ...

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        """Return an estimate that uses v [B], uniform on [0, 1), instead of the stratified numbers of `forward`: [B].

        With v the caller can stratify over several estimates for one sequence. An objective may ignore v.
        """
        return self(denoiser, x, generator)

    @property
    def takes_strata(self) -> bool:
        """True if `drawn` uses v; a subclass that overrides `forward` has to override `drawn` as well."""
        first = next(cls for cls in type(self).__mro__ if "drawn" in vars(cls) or "forward" in vars(cls))
        return "drawn" in vars(first) and first is not Objective

    def set_progress(self, progress: float) -> None:
        """Set the progress of the training run, 0 to 1, for losses with a curriculum."""
        return

    def after_step(self) -> None:
        """Update adaptive parts, such as the density of t; called after each training step."""
        return


class DenoisingObjective(Objective):
    """E_t E_{q(x_t|x_0)} Σ_positions term(prediction, x_0, x_t, t), with t stratified over the batch.

    start, steps: t from [start, 1], or with `steps` = T t = i/T, i = 1…T, weighted by T.
    power, times: the density of t (objective/times.py), uniform by default; power is short for PowerTimes(power).
    """

    def __init__(
        self,
        process: Process,
        start: float = 0.0,
        power: float = 1.0,
        steps: int | None = None,
        times: TimeSampler | None = None,
    ):
        super().__init__()
        if not 0 <= start < 1:
            raise ValueError(f"start must lie in [0, 1), found {start}")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ValueError(f"a bound needs a whole number of steps ≥ 1, or None for continuous time, found {steps}")
        if steps is not None and (start != 0 or power != 1):
            raise ValueError("start and power are for continuous time; a bound with steps visits i = 1…T uniformly")
        self.process, self.start, self.steps = process, start, steps
        self.time_sampler = times or PowerTimes(power)

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        return self._at_times(denoiser, x, *self.times(len(x), x.device, generator), generator)

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        return self._at_times(denoiser, x, *self.times_at(v), generator)

    def _at_times(self, denoiser: Denoiser, x: Tensor, t: Tensor, weight: Tensor, generator: Generator) -> Tensor:
        x_t = self.process.noised(x, None, t[:, None].expand(x.shape), generator)
        nats = self.at(denoiser, x, x_t, t)
        if torch.is_grad_enabled():
            middle = 0.5 / self.steps if self.steps else 0.0  # middle of a step
            self.time_sampler.observe((t - self.start) / (1 - self.start) - middle, nats.detach())
        return weight.to(nats.dtype) * nats + self.boundary(denoiser, x, generator).to(nats.dtype)

    def after_step(self) -> None:
        self.time_sampler.learn()

    def boundary(self, denoiser: Denoiser, x: Tensor, generator: Generator) -> Tensor:
        """Return the terms outside the integral over t, which only bounds have: [B]."""
        return x.new_zeros(len(x), dtype=torch.float32)

    def times(self, batch: int, device: torch.device, generator: Generator = None) -> tuple[Tensor, Tensor]:
        """Sample t and the weights that make the mean over t an integral over [start, 1] or a sum over steps: [B] float64."""
        t, weight = self.times_at(stratified_whole(batch, device, generator))
        return own_rows(t, generator), own_rows(weight, generator)

    def times_at(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return t and its weight from uniform numbers: [B] → [B], [B]."""
        w, slope = self.time_sampler.warp(v, self.start)
        if self.steps is not None:
            step = (w * self.steps).floor().clamp_max(self.steps - 1) + 1
            return step / self.steps, self.steps * slope
        return (self.start + (1 - self.start) * w).clamp(1e-9, LATEST), (1 - self.start) * slope

    def at(self, denoiser: Denoiser, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute Σ_positions term for a noised sequence: x, x_t [B, L], t [B] → [B]."""
        where = self.positions(x_t)
        return sum_rows(terms_at(self.term, denoiser, self.process, x=x, x_t=x_t, t=t, where=where), where)

    def positions(self, x_t: Tensor) -> Tensor:
        """Return the positions where the term is not zero: [B, L] bool."""
        return self.process.active(x_t)

    @abstractmethod
    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute the nats of each position: [*P]."""


def terms_at(
    term: Callable[[TokenPrediction, Tensor, Tensor, Tensor], Tensor],
    denoiser: Denoiser,
    process: Process,
    *,
    x: Tensor,
    x_t: Tensor,
    t: Tensor,
    where: Tensor,
) -> Tensor:
    """Compute term(prediction, x, x_t, t) at the n positions `where`: x, x_t, where [B, L], t [B] → [n].

    Without gradients it is computed for a few positions at a time, with the same result, because with a vocabulary of 50,000
    every intermediate tensor is as large as a small network.
    """
    prediction = predict(denoiser, process, x_t, t, where)
    inputs = x[where], x_t[where], t[:, None].expand(x.shape)[where].double()
    values = prediction.values
    at_once = max(1, NUMBERS // values.shape[-1])
    if torch.is_grad_enabled() or len(values) <= at_once:
        return term(prediction, *inputs)
    parts = zip(*(one.split(at_once) for one in (values, *inputs)), strict=True)
    return torch.cat([term(prediction.replace(part), *rest) for part, *rest in parts])


def sum_rows(values: Tensor, where: Tensor) -> Tensor:
    """Sum the values [n] of the positions `where` [B, L] in each row: [B]."""
    rows = where.nonzero()[:, 0]
    return values.new_zeros(len(where)).index_add(0, rows, values)
