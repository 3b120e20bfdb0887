"""Sequences of variable length: tokens are inserted as masks, then unmasked (Flex-MDM, arXiv:2509.01025).

The clock u = 1 − t runs from an empty sequence to the full one. Each token of x_0 is inserted as a mask at a time T₁ with
distribution function a(u), and unmasked at T₂ > T₁ with density b′(u)/(1 − b(T₁)). Two schedules give a = α_a(t), b = α_b(t).
x_u keeps the inserted tokens in order; a *gap* is the number of missing tokens between two neighbours. Sequences of unequal
length are padded with −1.

With μ the distribution of each masked token and g ≥ 0 the expected gap between neighbours,

    −log p(x_0) ≤ ∫ E[ b′/(1−b) Σ_masks −log μ(x_0) + a′/(1−a) Σ_gaps φ(gap, g) ] du,  φ(n, g) = g − n − n log g.

With exact μ and g the bound equals −log p(x_0), since a path of insertions determines the alignment.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser
from unnoise.network.parameterization import Parameterization
from unnoise.objective.objective_base import Objective, sum_rows
from unnoise.objective.times import stratified, times_at
from unnoise.prediction import Prediction
from unnoise.process.process_base import gather
from unnoise.process.state import LATEST, OPEN_GAP, PAD, TO_FILL, ProcessBase
from unnoise.rng import Generator, uniform
from unnoise.schedule import Linear, PerToken, Schedule


@dataclass(frozen=True)
class Partial:
    """A partial sequence aligned with the complete one: present tokens, their targets, and the number missing in each gap.

    x: [B, M] tokens, the mask K, or −1.
    target: [B, M] token of x_0 at each of these positions, or −1.
    gaps: [B, M+1] number of missing tokens of x_0 before each position and after the last (0 beyond a row's end).
    """

    x: Tensor
    target: Tensor
    gaps: Tensor


class Insertion(ProcessBase):
    """Insertion and unmasking over K tokens and a mask (index K), with a schedule for each.

    A network has K + 3 input symbols: tokens, the mask, a start symbol before the sequence (K+1), and padding (K+2).
    """

    insertion: Schedule
    unmasking: Schedule
    variable_length = True
    extra_positions = 1  # the start symbol
    marks: ClassVar[dict[int, str]] = {TO_FILL: "for one free token", OPEN_GAP: "for any number of them"}

    def __init__(self, vocab: int, insertion: Schedule | None = None, unmasking: Schedule | None = None):
        super().__init__(vocab)
        self.insertion, self.unmasking = insertion or Linear(), unmasking or Linear()
        for schedule in (self.insertion, self.unmasking):
            if isinstance(schedule, PerToken):
                raise ValueError("Insertion needs one schedule for all tokens; PerToken is for Masked")
            schedule.check()
            ends = schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
            if abs(float(ends[0]) - 1) > 1e-9 or abs(float(ends[1])) > 1e-9:
                raise ValueError(
                    f"Insertion needs schedules with α(0) = 1 and α(1) = 0, found {float(ends[0]):.4g} and {float(ends[1]):.4g}"
                )
        self.mask = vocab

    @property
    def inputs(self) -> int:
        return self.vocab + 3

    def curves(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {"a, the tokens inserted": self.insertion.alpha, "b, the unmasking": self.unmasking.alpha}

    def blank(self, batch: int, length: int) -> Tensor:
        return torch.full((batch, 1), OPEN_GAP)

    def begin(self, given: Tensor, generator: Generator = None) -> Tensor:
        """Return the state at t = 1: a mask for each free token; marks for any number of tokens stay."""
        return given.to(self.device).masked_fill(given.to(self.device) == TO_FILL, self.mask)

    def check_tokens(self, x: Tensor) -> None:
        """Raise ValueError unless x is [B, L] long with tokens 0…K−1, then −1 to the end of each row."""
        if isinstance(x, Tensor) and x.dim() == 2 and x.dtype == torch.long:
            absent = x == PAD
            if bool((absent[:, :-1] & ~absent[:, 1:]).any()):
                raise ValueError("texts are padded with -1 at their end only, found a token after padding")
            super().check_tokens(x.masked_fill(absent, 0))
        else:
            super().check_tokens(x)

    def corrupt(self, x: Tensor, t: Tensor, generator: Generator = None) -> Partial:
        """Sample x_u for u = 1 − t: x [B, L] padded with −1, t [B] → Partial."""
        self.check_tokens(x)
        at = self.check_times(t, x)[:, None]
        first = uniform(x.shape, x.device, generator)
        second = uniform(x.shape, x.device, generator)
        inserted = (x != PAD) & (first < self.insertion.alpha(at))
        then = self.unmasking.alpha(self.insertion.inverse(first))  # b(T₁), with a(T₁) = first
        visible = inserted & (second * (1 - then) < self.unmasking.alpha(at) - then)
        return self.align(x, inserted, visible)

    def align(self, x: Tensor, inserted: Tensor, visible: Tensor) -> Partial:
        """Keep the inserted tokens in order, masked unless visible, and count the missing ones: [B, L] each → Partial."""
        batch, length = x.shape
        place = inserted.long().cumsum(1)  # number of tokens up to this one
        index = torch.where(inserted, place - 1, length)  # other tokens go to a column that is cut off
        target = torch.full((batch, length + 1), PAD, device=x.device).scatter(1, index, x)[:, :length]
        shown = torch.where(visible, x, self.mask)
        canvas = torch.full((batch, length + 1), PAD, device=x.device).scatter(1, index, shown)[:, :length]
        missing = ((x != PAD) & ~inserted).long()
        gaps = torch.zeros(batch, length + 1, dtype=torch.long, device=x.device).scatter_add(1, place, missing)
        longest = int(place[:, -1].max()) if length else 0
        return Partial(canvas[:, :longest], target[:, :longest], gaps[:, : longest + 1])


@dataclass(frozen=True)
class InsertionPrediction(Prediction):
    """The predicted tokens and gaps.

    log_probs: [B, M, K], or [n, K] at the masks.
    gaps: [B, M+1], expected number g ≥ 0 of missing tokens before each position and after the last.
    """

    log_probs: Tensor
    gaps: Tensor


def predict_insertion(denoiser: Denoiser, process: Insertion, x: Tensor, t: Tensor) -> InsertionPrediction:
    """Return the prediction at the n masks and of the gaps after checking it: log_probs [n, K], gaps [B, M+1]."""
    masked = x == process.mask
    prediction = denoiser(x, t.clamp_max(LATEST).to(torch.get_default_dtype()), masked)
    if not isinstance(prediction, InsertionPrediction):
        raise ValueError(f"an insertion denoiser must return an InsertionPrediction, found {type(prediction).__name__}")
    log_probs, gaps = prediction.log_probs, prediction.gaps
    if log_probs.shape == (*x.shape, process.vocab):
        log_probs = log_probs[masked]
    wanted = (int(masked.sum()), process.vocab), (x.shape[0], x.shape[1] + 1)
    found = tuple(log_probs.shape), tuple(gaps.shape)
    if found != wanted:
        raise ValueError(
            f"an insertion denoiser must return shapes {wanted[0]} and {wanted[1]}, found {found[0]} and {found[1]}"
        )
    return InsertionPrediction(log_probs, gaps)


class InsertionParameterization(Parameterization):
    """Two outputs: μ at `where`, and g = (1 − a)·G before each position and after the last; log G is one number per position.

    The gaps of a sequence of the maximum length are zero.
    """

    prediction: ClassVar[type[Prediction]] = InsertionPrediction
    process: Insertion

    def __init__(self, network: nn.Module, process: ProcessBase, length: int, labels: int = 0):
        if not isinstance(process, Insertion):
            raise ValueError(f"gaps need an Insertion process, found {type(process).__name__}")
        super().__init__(network, process, length, labels)

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        return super().network_config(process, length, time_free) | {"gaps": True}

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        there = x_t != PAD
        start = x_t.new_full((len(x_t), 1), self.process.vocab + 1)
        read = torch.cat([start, torch.where(there, x_t, self.process.vocab + 2)], 1)
        present = torch.cat([torch.ones_like(start, dtype=torch.bool), there], 1)
        chosen = torch.nn.functional.pad(torch.ones_like(there) if where is None else where, (1, 0))
        output, log_rate = self.call(read, t, chosen, present=present, gaps=True)
        log_probs = torch.log_softmax(output if output.dim() == 2 else output[chosen], -1)
        rate = log_rate.clamp_max(math.log(10 * self.length)).exp()
        missing = self.process.insertion.noise(t.double()).to(rate.dtype) * (there.sum(1) < self.length)
        shape = (*x_t.shape, self.process.vocab)
        return InsertionPrediction(log_probs.view(shape) if where is None else log_probs, missing[:, None] * rate)


class EndedInsertionParameterization(InsertionParameterization):
    """The two outputs in the form of the paper's code (arXiv:2509.01025): padding after the sequence and no start symbol.

    g = L·softplus(·), with L the maximum length, before each position and, at the first padding, after the last. μ is a softmax
    over the K tokens, padding (K) and mask (K + 1), without its last two entries.
    """

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        symbols = process.vocab + 2
        more = {"inputs": symbols, "outputs": symbols, "pointer": False}  # a pointer would also copy padding and masks
        return super().network_config(process, length, time_free) | more

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        vocab = self.process.vocab
        there = x_t != PAD
        symbols = torch.where(x_t == self.process.mask, vocab + 1, torch.where(there, x_t, vocab))
        read = torch.nn.functional.pad(symbols, (0, 1), value=vocab)
        place = torch.arange(read.shape[1], device=read.device)
        present = place <= there.sum(1, keepdim=True)  # and at the first padding, for the gap after the last token
        chosen = torch.nn.functional.pad(torch.ones_like(there) if where is None else where, (0, 1))
        output, number = self.call(read, t, chosen, present=present, gaps=True)
        log_probs = torch.log_softmax(output if output.dim() == 2 else output[chosen], -1)[..., :vocab]
        shape = (*x_t.shape, vocab)
        gaps = self.length * torch.nn.functional.softplus(number)
        return InsertionPrediction(log_probs.view(shape) if where is None else log_probs, gaps)


def gap_cost(count: Tensor, expected: Tensor) -> Tensor:
    """Compute φ(n, g) = g − n − n log g elementwise, with 0·log g = 0; it may be negative."""
    some = count > 0
    log_g = torch.where(some, expected, torch.ones_like(expected)).clamp_min(1e-30).log()
    return expected - count - torch.where(some, count * log_g, torch.zeros_like(expected))


class InsertionElbo(Objective):
    """One sample of the bound: sequences [B, L] padded with −1 → nats [B].

    t = v² for uniform v, weighted by the Jacobian, because with uniform t the weight 1/t of a mask has infinite variance.
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
