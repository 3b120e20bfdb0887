"""Monte Carlo estimates of a model's bound for several texts, with little variance and a known error.

A draw begins with a number v, uniform on [0, 1), which determines the time or the number of masks. The draws of N texts form r
independent sets. In a set every text has c draws, the i-th with v in [i/c, (i + 1)/c); the n texts of a group are spread over
the n equal parts of that interval in random order. The sum over a group at one i is a cell. Cells are independent of each
other, and each has r independent values, which give its variance (`Spread`).

If there are no more choices of masks than draws, all choices are evaluated instead, and the bound has no Monte Carlo error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unnoise import distributed
from unnoise.distributed import rows_at_once
from unnoise.families.any_order import MaskCounts
from unnoise.families.block_objective import BlockElbo
from unnoise.model.error_bars import FREEDOM, Spread, chi_square
from unnoise.objective import Elbo, Objective
from unnoise.objective.losses import noise_end, random_part
from unnoise.objective.objective_base import DenoisingObjective
from unnoise.prediction import MeanPrediction
from unnoise.rng import Generator, RowGenerator, seed_of

if TYPE_CHECKING:
    from unnoise.model.model import Model

ROWS = 32  # maximum number of sequences of a network call, and of a group
SETS = 4  # maximum number of independent sets of draws
MANY = 48  # degrees of freedom beyond which more draws are worth more than more sets
CELLS = 16  # degrees of freedom that groups are made small for
LONGEST = 16  # maximum number of tokens whose choices of masks are all evaluated
PILOT_ROWS, PILOT_SEED = 16, 0x9E37
CAUTION = 0.1  # probability of needing more draws than the pilot suggests


# ---- bounds --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawing:
    """A bound as the sum of a random part and a fixed part.

    draw: x [B, L], v [B] uniform on [0, 1), generator → one draw of the random part [B].
    fixed: x → the part without randomness [B].
    strata: whether `draw` uses v.
    choices: number of choices of masks, if their terms can be evaluated one by one.
    choice: x, number [B] from 1 to choices → terms whose sum is the bound [B].
    """

    draw: Callable[[Tensor, Tensor, Generator], Tensor]
    fixed: Callable[[Tensor], Tensor] | None = None
    strata: bool = True
    choices: int | None = None
    choice: Callable[[Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Estimate:
    """Estimated bounds of N texts.

    nats: bound of each text, the mean over its draws: [N] float64.
    spread: Monte Carlo variance of the sum of all bounds.
    draws: number of draws of each text.
    enumerated: whether all choices of masks were evaluated, so that there is no Monte Carlo error.
    """

    nats: Tensor
    spread: Spread
    draws: int
    enumerated: bool = False


def mask_counts(model: "Model") -> MaskCounts | None:
    """Return the bound by the number of masks, for masked noise with one schedule and a mean prediction; else None."""
    mean = issubclass(model.method.parameterization.prediction, MeanPrediction)
    return MaskCounts.of(model.bound, model.method.time_free) if mean else None


def decompose_bound(model: "Model", length: int, bound: Objective | None = None) -> Drawing:
    """Return a bound on texts of `length` tokens, by default the model's own, in the form with the least variance."""
    bound, denoiser = bound or model.bound, model.denoiser
    whole = isinstance(bound, BlockElbo) and length > bound.block
    if bound is model.bound and not whole:
        counts = MaskCounts.of(bound.one_block, True) if isinstance(bound, BlockElbo) else mask_counts(model)
        if counts is not None:
            few = not counts.takes_time and length <= LONGEST
            return Drawing(
                lambda x, v, generator: counts.draw(denoiser, x, _all(x), v, generator),
                (lambda x: counts.fixed(denoiser, x, _all(x))) if counts.takes_time else None,
                choices=2**length - 1 if few else None,
                choice=(lambda x, number: counts.choice(denoiser, x, number)) if few else None,
            )
    if isinstance(bound, BlockElbo) and whole and bound.block <= LONGEST:
        return Drawing(
            lambda x, v, generator: bound.drawn(denoiser, x, v, generator),
            choices=2**bound.block - 1,
            choice=lambda x, number: bound.choice(denoiser, x, number),
        )
    if isinstance(bound, Elbo) and type(bound).forward is DenoisingObjective.forward:
        return Drawing(
            lambda x, v, generator: random_part(bound, denoiser, x, _all(x), v=v, generator=generator),
            lambda x: noise_end(bound, denoiser, x, _all(x)),
        )
    return Drawing(lambda x, v, generator: bound.drawn(denoiser, x, v, generator), strata=bound.takes_strata)


def _all(x: Tensor) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool)


# ---- layout of the draws -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A layout of sets × copies draws of each of N texts. group: number of each text's group [N]."""

    sets: int
    copies: int
    group: Tensor

    @property
    def draws(self) -> int:
        return self.sets * self.copies

    def freedom(self, strata: bool = True) -> int:
        """Return the degrees of freedom of the error."""
        return (int(self.group[-1]) + 1) * (self.copies if strata else 1) * (self.sets - 1)


def layout(rows: int, draws: int, strata: bool = True) -> Layout:
    """Return the layout of at most `draws` draws of each text, with many degrees of freedom, then as many draws as possible.

    With few degrees of freedom an interval covers too little if the draws are skewed. Without strata a set is one cell, so
    there are more sets and fewer copies.
    """
    found = []
    for sets in range(1, min(SETS if strata else FREEDOM + 1, draws) + 1):
        copies = draws // sets
        size = min(max(rows * (copies if strata else 1) * (sets - 1) // CELLS, 1), ROWS)
        found.append(Layout(sets, copies, torch.arange(rows) // size))
    return max(found, key=lambda of: (of.sets > 1, min(of.freedom(strata), MANY if strata else FREEDOM), of.draws, of.sets))


def fewest_draws(rows: Sequence[int], strata: bool = True) -> int:
    """Return the draws of each text that an error bar needs, for the sum over groups with these numbers of texts."""
    draws = 2
    while sum(layout(number, draws, strata).freedom(strata) for number in rows) < FREEDOM:
        draws += 1
    return draws


def draws_for_error(model: "Model", rows: int, length: int) -> int:
    """Return the draws of each of `rows` texts of `length` tokens that an error bar of a model's bound needs."""
    return fewest_draws([rows], decompose_bound(model, length).strata)


def places(of: Layout, seed: int) -> Tensor:
    """Return v of each draw: [sets, copies, N] float64 on [0, 1)."""
    shape = (of.sets, of.copies, len(of.group))
    generator = torch.Generator().manual_seed(seed)
    key, jitter = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    size = torch.bincount(of.group)
    first = (size.cumsum(0) - size)[of.group]
    rank = (key + of.group).argsort(-1).argsort(-1) - first  # within the group
    copy = torch.arange(of.copies)[:, None]
    return ((copy + (rank + jitter) / size[of.group]) / of.copies).clamp_max(1 - 2.0**-53)


# ---- drawing -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def estimate(model: "Model", x: Tensor, draws: int, seed: int = 0, bound: Objective | None = None) -> Estimate:
    """Return the bounds of texts x [N, L] from at most `draws` draws of each; an exact likelihood takes one.

    The noise of a text depends on the seed, on its position among the texts and on their number. The number of processes has no
    effect.

    bound: bound to use instead of the model's own.
    """
    model.network.eval()
    x = x.to(model.device)
    if model.method.exact:
        return Estimate(_evaluated(model, x, len(x), lambda rows: model.bound(model.denoiser, x[rows])), Spread(), 1, True)
    drawing = decompose_bound(model, x.shape[1], bound)
    if drawing.choices is not None and drawing.choices <= draws:
        return Estimate(_enumerated(model, drawing, x), Spread(), drawing.choices, True)
    of = layout(len(x), draws, drawing.strata)
    values = _drawn(model, drawing, x, of, seed)  # [sets, copies, N]
    nats = values.mean((0, 1))
    if drawing.fixed is not None:
        fixed = drawing.fixed
        nats = nats + _evaluated(model, x, len(x), lambda rows: fixed(x[rows]))
    return Estimate(nats, _spread(values, of, drawing.strata), of.draws)


def _spread(values: Tensor, of: Layout, strata: bool) -> Spread:
    """Return the spread of Σ_n mean(values[:, :, n]): [sets, copies, N]."""
    if of.sets == 1:
        return Spread((math.inf,), (0,))
    cells = values.new_zeros(of.sets, of.copies, int(of.group[-1]) + 1).index_add(2, of.group, values) / of.copies
    if not strata:
        cells = cells.sum(1, keepdim=True)
    variances = (cells.var(0) / of.sets).flatten().tolist()
    return Spread(tuple(variances), (of.sets - 1,) * len(variances))


def _enumerated(model: "Model", drawing: Drawing, x: Tensor) -> Tensor:
    """Return the sum over all choices of masks: [N] float64."""
    assert drawing.choice is not None and drawing.choices is not None
    choice, number = drawing.choice, drawing.choices

    def some(units: Tensor) -> Tensor:
        return choice(x[units // number], units % number + 1)

    return _evaluated(model, x, len(x) * number, some).view(len(x), number).sum(1)


def _drawn(model: "Model", drawing: Drawing, x: Tensor, of: Layout, seed: int) -> Tensor:
    """Return all draws of the random part: [sets, copies, N] float64."""
    v = places(of, seed_of(seed, 0))
    if drawing.strata:  # the noise of a draw does not depend on the other draws of the call
        at = v.flatten().to(x.device)

        def some(units: Tensor) -> Tensor:
            return drawing.draw(x[units % len(x)], at[units], RowGenerator(seed_of(seed, 1), units))

        return _evaluated(model, x, v.numel(), some).view(v.shape)
    number = torch.arange(v.numel()).view(v.shape)
    groups = [number[s, :, of.group == g].flatten() for s in range(of.sets) for g in range(int(of.group[-1]) + 1)]
    parts = [(i, part) for i, group in enumerate(groups) for part in torch.arange(len(group)).split(_at_once(model, x))]

    def whole(j: int) -> Tensor:
        i, part = parts[j]
        generator = RowGenerator(seed_of(seed, 1, i), part.to(x.device), len(groups[i]))
        units = groups[i][part]
        return drawing.draw(x[units.to(x.device) % len(x)], v.flatten()[units].to(x.device), generator)

    found = _together(len(parts), whole)
    return v.new_zeros(v.numel()).index_copy(0, torch.cat(groups), found).view(v.shape)


def _evaluated(model: "Model", x: Tensor, number: int, act: Callable[[Tensor], Tensor]) -> Tensor:
    """Return act(units) for 0…number − 1, evaluated in parts and split over the processes: [number] float64."""
    parts = torch.arange(number, device=x.device).split(_at_once(model, x))
    return _together(len(parts), lambda i: act(parts[i]))


def _together(number: int, act: Callable[[int], Tensor]) -> Tensor:
    return torch.cat(distributed.map_ranks(number, lambda i: act(i).double().cpu()))


def _at_once(model: "Model", x: Tensor) -> int:
    return rows_at_once(x.shape[1], ROWS, x.device, model.process.vocab)


# ---- number of draws -----------------------------------------------------------------------------------------------------


def planned_draws(
    model: "Model", groups: Sequence[Tensor], most: int, *, error: float, seed: int, bound: Objective | None = None
) -> int:
    """Return the draws of each text, at most `most`, for a standard error of `error` nats of the sum over all texts.

    The number is planned from a pilot: a few texts, with draws that are not used again. A rule that looked at the draws it
    averages would stop early more often if these were small by chance, and its mean would be too low.
    """
    if model.method.exact or error == 0:
        return most
    drawings = [decompose_bound(model, x.shape[1], bound) for x in groups]
    fewest = fewest_draws([len(x) for x in groups], drawings[0].strata)
    few = [one.choices for one in drawings if one.choices is not None and one.choices <= 2 * fewest]
    needed = max(fewest, *few) if few else fewest  # evaluating all choices costs little more
    drawn = [x for x, one in zip(groups, drawings, strict=True) if (one.choices or needed + 1) > needed]
    if 2 * fewest >= most or not drawn:
        return min(needed, most) if not drawn else most
    rows = [x[torch.linspace(0, len(x) - 1, min(len(x), PILOT_ROWS), dtype=torch.float64).round().long()] for x in drawn]
    draws = fewest_draws([len(x) for x in rows], drawings[0].strata)
    pilot = [estimate(model, x, draws, seed_of(seed, PILOT_SEED), bound) for x in rows]
    variance = sum(  # of one draw of each text
        one.spread.stderr**2 * one.draws * len(x) / len(part) for one, x, part in zip(pilot, drawn, rows, strict=True)
    )
    freedom = sum(sum(one.spread.freedom) for one in pilot)
    wanted = variance * freedom / chi_square(CAUTION, freedom) / error**2
    whole = math.ceil(wanted) if wanted <= SETS else SETS * math.ceil(wanted / SETS)  # a multiple of SETS leaves no draw out
    return max(needed, whole) if whole < most else most
