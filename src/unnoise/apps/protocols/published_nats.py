"""Published losses as the papers' code computes them, and their differences from a bound.

Most published losses are P = E_{t ~ U[ε, 1]} E_q Σ_positions of the bound's integrand, with ε = 10⁻³ and one t for each window.
The bound is ∫_0^1 of the integrand plus boundary terms, so

    bound − P = −ε·P + ∫_0^ε + the cost of the signal α(1) that is left at t = 1.

The first term makes P too large, by the factor 1/(1 − ε). The other terms are left out and make it too small. Each term is
measured separately, which gives the difference far more precisely than two noisy estimates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unnoise import distributed
from unnoise.denoiser import Denoiser, predict
from unnoise.distributed import rows_at_once
from unnoise.evaluation.conditional import counts_masks, next_token_log_probs
from unnoise.families.autoregressive import Autoregressive
from unnoise.families.block_objective import BlockElbo
from unnoise.model.model import Model
from unnoise.objective import Elbo
from unnoise.objective.losses import data_end, noise_end, noised_nats, noised_terms
from unnoise.process import Masked
from unnoise.process.process_base import gather
from unnoise.rng import RowGenerator, seed_of, uniform
from unnoise.schedule import LogLinear, Schedule

BATCH = 16  # windows over which times are stratified, as in the papers' evaluations


@dataclass(frozen=True)
class PublishedLoss:
    """Loss that a paper's code averages.

    start: t is uniform on [start, 1].
    schedule: schedule of masked noise, for a network that ignores t. Otherwise the model's own schedule is used.
    reconstruction: whether to add L·(1 − α(0))·log K, the network-free term at t = 0 (MD4).
    """

    start: float = 1e-3
    schedule: Callable[[], Schedule] = LogLinear
    reconstruction: bool = False

    @property
    def description(self) -> str:
        """Description for the user."""
        ends = "; the network-free reconstruction at t = 0" if self.reconstruction else ""
        return f"one t from [{self.start:g}, 1] for each window, or each block of a block model{ends}"

    def obstacle(self, model: Model) -> str:
        """Return why a model has no integrand to average, or an empty string if it has one."""
        if counts_masks(model) and model.method.time_free and isinstance(model.process, Masked):
            return ""
        if not isinstance(model.bound, Elbo):
            return f"it averages a loss of noised tokens, and {model.method.name} has none"
        return "" if model.bound.steps is None else f"the published result of {model.method.name} is its bound in T steps"

    def objective(self, model: Model) -> Elbo:
        """Return the bound whose integrand is averaged, or raise ValueError if the model has none in continuous time."""
        process = model.process
        if counts_masks(model) and model.method.time_free and isinstance(process, Masked):
            return Elbo(process if self.reconstruction else Masked(process.vocab, self.schedule()).to(model.device))
        if not isinstance(model.bound, Elbo) or self.obstacle(model):
            raise ValueError(f"{self.obstacle(model)}: use --protocol bound")
        return model.bound


@dataclass(frozen=True)
class Difference:
    """One part of bound − published, in nats of all windows."""

    name: str
    nats: float
    stderr: float
    description: str


class PublishedNats(NamedTuple):
    """Nats of each window [N] float64, of all noised tokens and of the counted ones."""

    all: Tensor
    counted: Tensor


@torch.no_grad()
def published_nats(
    model: Model, loss: PublishedLoss, x: Tensor, free: Tensor, *, seed: int = 1, counted: Tensor | None = None
) -> PublishedNats:
    """Compute a published loss in one pass, with one t for each window, stratified over batches of 16.

    x: tokens [N, L] long.
    free: positions that are noised [N, L] bool.
    counted: positions that count, by default all noised ones.
    """
    model.network.eval()
    x, free = x.to(model.device), free.to(model.device)
    counted = free if counted is None else counted.to(model.device) & free
    draw = _one_draw(model, loss)
    at_once = rows_at_once(x.shape[1], BATCH, x.device)
    groups = torch.arange(len(x), device=x.device).split(BATCH)
    parts = [(i, part) for i, group in enumerate(groups) for part in group.split(at_once)]

    def some(number: int) -> Tensor:
        i, part = parts[number]
        generator = RowGenerator(seed_of(seed, i), part)
        v = (generator.uniform((len(part),)) + (part - groups[i][0])) / len(groups[i])
        nats = draw(x[part], free[part], v % 1, generator).double()
        return torch.stack([nats.sum(1), (nats * counted[part]).sum(1)]).cpu()

    return PublishedNats(*torch.cat(distributed.map_ranks(len(parts), some), 1))


def _one_draw(model: Model, loss: PublishedLoss) -> Callable[[Tensor, Tensor, Tensor, RowGenerator], Tensor]:
    """Return a function of x, free [B, L], v [B] uniform on [0, 1) and a generator to nats of each position [B, L]."""
    bound, denoiser = model.bound, model.denoiser
    if isinstance(bound, Autoregressive):
        return lambda x, free, v, generator: -gather(next_token_log_probs(model, x), x) * free
    if isinstance(bound, BlockElbo):
        return lambda x, free, v, generator: _block_draw(bound, denoiser, x, free, start=loss.start, generator=generator)
    objective = loss.objective(model)

    def one(x: Tensor, free: Tensor, v: Tensor, generator: RowGenerator) -> Tensor:
        t = loss.start + (1 - loss.start) * v
        nats = _placed(*noised_terms(objective, denoiser, x, free, t=t.clamp_min(1e-9), generator=generator))
        return nats + _free_reconstruction(objective, x, free) if loss.reconstruction else nats

    return one


def _free_reconstruction(objective: Elbo, x: Tensor, free: Tensor) -> Tensor:
    """Return (1 − α(0))·log K at each free position: [B, L]."""
    zero = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    noise = objective.process.schedule.noise(zero)
    return noise * free * math.log(objective.process.vocab)


def _placed(values: Tensor, where: Tensor) -> Tensor:
    """Return values [n] at the positions `where` [B, L], and 0 at others: [B, L]."""
    return values.new_zeros(where.shape).masked_scatter(where, values)


def _block_draw(
    bound: BlockElbo, denoiser: Denoiser, x: Tensor, free: Tensor, *, start: float, generator: RowGenerator
) -> Tensor:
    """Draw the loss of block diffusion: one t per block, each position masked with probability t, weight 1/t: [B, L].

    Blocks of one token are always masked.
    """
    t = _block_times(bound, start, 1.0, x, generator)
    hidden = (uniform(x.shape, x.device, generator) < t) & free
    return _placed(bound.terms(denoiser, x, hidden, t, 1 / t), hidden)


def _block_times(bound: BlockElbo, low: float, high: float, x: Tensor, generator: RowGenerator) -> Tensor:
    """Draw t uniform on [low, high] for each block, 1 for blocks of one token: [B, L] float64."""
    if bound.block == 1:
        return torch.ones(x.shape, dtype=torch.float64, device=x.device)
    block = torch.arange(x.shape[1], device=x.device) // bound.block
    return low + (high - low) * uniform(x.shape, x.device, generator)[:, block]


@torch.no_grad()
def differences(
    model: Model, loss: PublishedLoss, published: float, x: Tensor, free: Tensor, *, draws: int = 4, seed: int = 0
) -> list[Difference]:
    """Return the parts of bound − published.

    published: nats of all windows, the mean over passes.
    x, free: tokens and noised positions [N, L].
    """
    bound = model.bound
    if isinstance(bound, Autoregressive) or (isinstance(bound, BlockElbo) and bound.block == 1):
        return []
    x, free = x.to(model.device), free.to(model.device)
    found = []
    if loss.start > 0:
        words = f"t is drawn from [{loss.start:g}, 1], and the mean is not multiplied by the length of this interval"
        found.append(Difference("the factor", -loss.start * published, 0.0, words))
        found.append(
            _measured(
                lambda v, rows, generator: _first_part(model, loss, x[rows], free[rows], v=v, generator=generator),
                x,
                name="near the text",
                description=f"the integral from 0 to {loss.start:g} is left out",
                draws=draws,
                seed=seed,
            )
        )
    if isinstance(bound, BlockElbo):
        return found
    objective = loss.objective(model)
    late = _sum(lambda rows: noise_end(objective, model.denoiser, x[rows], free[rows]), x)
    if late:
        found.append(Difference("at pure noise", late, 0.0, "the cost of the signal that is left at t = 1 is left out"))
    if loss.reconstruction and objective.starts_noisy:
        paid = _sum(lambda rows: _free_reconstruction(objective, x[rows], free[rows]).sum(1), x)
        exact = _measured(
            lambda v, rows, generator: data_end(objective, model.denoiser, x[rows], free[rows], generator),
            x,
            name="reconstruction",
            description="tokens that are masked at t = 0 cost log K, although the network predicts them better",
            draws=draws,
            seed=seed,
        )
        found.append(Difference(exact.name, exact.nats - paid, exact.stderr, exact.description))
    return found


def _first_part(model: Model, loss: PublishedLoss, x: Tensor, free: Tensor, *, v: Tensor, generator: RowGenerator) -> Tensor:
    """Draw ∫_0^start of the integrand: [B].

    For masked noise, one of m free positions is always masked, and its term is weighted by m times the probability of a mask.
    For other noise, t is drawn from [0, start].
    """
    if isinstance(model.bound, BlockElbo):
        t = _block_times(model.bound, 0.0, loss.start, x, generator)
        chosen = _one_of(free, generator)
        hidden = ((uniform(x.shape, x.device, generator) < t) & free) | chosen
        weight = chosen * loss.start * free.sum(1, keepdim=True)
        return model.bound.at(model.denoiser, x, hidden, t, weight.double())
    objective = loss.objective(model)
    t = (loss.start * v).clamp_min(1e-9)
    process = objective.process
    if not isinstance(process, Masked) or process.per_token:
        return loss.start * noised_nats(objective, model.denoiser, x, free, t=t, generator=generator)
    chosen = _one_of(free, generator)
    x_t = torch.where(free, process.noised(x, None, t[:, None].expand(x.shape), generator), x)
    x_t = x_t.masked_fill(chosen, process.mask)
    nats = objective.term(predict(model.denoiser, process, x_t, t, chosen), x[chosen], x_t[chosen], t)
    return loss.start * free.sum(1) * process.schedule.noise(t) * nats


def _one_of(free: Tensor, generator: RowGenerator) -> Tensor:
    """Draw one free position of each row: [B, L] bool."""
    place = torch.where(free, uniform(free.shape, free.device, generator), 2.0).argmin(1)
    return torch.zeros_like(free).scatter(1, place[:, None], True)


def _measured(
    draw: Callable[[Tensor, Tensor, RowGenerator], Tensor], x: Tensor, *, name: str, description: str, draws: int, seed: int
) -> Difference:
    """Return the sum over all windows of the mean over draws, with its standard error."""
    sums = []
    for i in range(max(2, draws)):
        generator_seed = seed_of(seed, 977, i)

        def some(rows: Tensor, key: int = generator_seed) -> Tensor:
            generator = RowGenerator(key, rows)
            return draw(generator.uniform((len(rows),)), rows, generator)

        sums.append(_sum(some, x))
    return Difference(name, *mean_and_error(sums), description)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values and its standard error."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))


def _sum(act: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return the sum of `act` over all rows."""
    parts = torch.arange(len(x), device=x.device).split(rows_at_once(x.shape[1], BATCH, x.device))
    return sum(distributed.map_ranks(len(parts), lambda i: float(act(parts[i]).double().sum())))
