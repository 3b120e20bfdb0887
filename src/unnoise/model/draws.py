"""Draws of a model's bound for several texts, laid out so that their mean has little variance and a known error.

A draw begins with a number v, uniform on [0, 1): it decides the time, or the number of masks. The draws of N texts are r
independent sets. In a set every text has c draws, the i-th with v in [i/c, (i + 1)/c); the n texts of a group are spread over
the n equal parts of that interval in random order. The sum over a group at one i is a cell: cells are independent of each
other, and each has r independent values, which give its variance (`Spread`).

Where all choices of masks are as few as the draws would be, they are all evaluated: the bound has no error by drawing then.

Error bars of a mean of random draws: its standard error, and a confidence interval that allows for few draws.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unnoise import distributed
from unnoise.distributed import rows_at_once
from unnoise.families.any_order import MaskCounts
from unnoise.families.block_objective import BlockElbo
from unnoise.objective import Elbo, Objective
from unnoise.objective.losses import noise_end, random_part
from unnoise.objective.objective_base import DenoisingObjective
from unnoise.prediction import MeanPrediction
from unnoise.rng import Generator, RowGenerator, seed_of

if TYPE_CHECKING:
    from unnoise.model.model import Model

FREEDOM = 12  # degrees of freedom that an error bar needs
COVERAGE = 0.95
KURTOSIS = 2.0  # excess kurtosis of the draws that an interval allows for


@dataclass(frozen=True)
class Spread:
    """Estimated variances of independent parts of a sum, each with its degrees of freedom.

    variances, freedom: of each part; parts without variance may be left out.
    """

    variances: tuple[float, ...] = ()
    freedom: tuple[int, ...] = ()

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(self.variances + other.variances, self.freedom + other.freedom)

    @property
    def known(self) -> bool:
        """True where there are enough draws for an error bar."""
        return not self.variances or sum(self.freedom) >= FREEDOM

    @property
    def stderr(self) -> float:
        """The standard error of the sum, √Σ_i V_i; infinite where a part was drawn only once."""
        return math.sqrt(sum(self.variances))

    def half_width(self, coverage: float = COVERAGE) -> float:
        """Return half the width of a confidence interval, t·stderr, t a quantile of Student's distribution.

        Its degrees of freedom are (Σ V_i)²/Σ(V_i²/f_i) (Welch and Satterthwaite) over 1 + κ/2, with κ = 2: the draws have
        tails, and an excess kurtosis of κ makes the variance of a sample variance 1 + κ/2 times as large. They are at least 3:
        where few parts have most of the variance, the interval is wide.
        """
        total = sum(self.variances)
        if total == 0:
            return 0.0
        squares = sum(v * v / f for v, f in zip(self.variances, self.freedom, strict=True))
        freedom = total * total / squares / (1 + KURTOSIS / 2)
        return student((1 + coverage) / 2, max(freedom, 3.0)) * self.stderr


def with_error(value: float, stderr: float | None, digits: int = 3) -> str:
    """Return a number with its standard error, "3.142 ± 0.010", or alone where it has none."""
    return f"{value:.{digits}f} ± {stderr:.{digits}f}" if stderr else f"{value:.{digits}f}"


def student(p: float, freedom: float) -> float:
    """Return the p-quantile of Student's t distribution by the expansion in 1/f (Cornish and Fisher), to 0.2 % if f ≥ 3."""
    z = NormalDist().inv_cdf(p)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**i for i, term in enumerate(terms))


def chi_square(p: float, freedom: float) -> float:
    """Return the p-quantile of the χ² distribution by the cube-root approximation (Wilson and Hilferty 1931)."""
    z = NormalDist().inv_cdf(p)
    return freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3


ROWS = 32  # sequences of one network call, and of one group, at most
SETS = 4  # independent sets of draws, at most
MANY = 48  # degrees of freedom beyond which more draws are worth more than more sets
CELLS = 16  # degrees of freedom that groups are made small for
LONGEST = 16  # tokens of which all choices of masks may be evaluated
PILOT_ROWS, PILOT_SEED = 16, 0x9E37
CAUTION = 0.1  # how likely more draws are needed than the pilot says


@dataclass(frozen=True)
class Drawing:
    """A bound as something to draw from.

    draw: x [B, L], v [B] uniform on [0, 1), generator → one draw without the fixed part [B].
    fixed: x → the part for which nothing is drawn [B].
    strata: whether v is used.
    choices: of masks, if their terms can be evaluated one by one.
    choice: x, number [B] from 1 to choices → terms that add up to the bound [B].
    """

    draw: Callable[[Tensor, Tensor, Generator], Tensor]
    fixed: Callable[[Tensor], Tensor] | None = None
    strata: bool = True
    choices: int | None = None
    choice: Callable[[Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Estimate:
    """Nats of each of N texts, the mean of so many draws: [N] float64; and the spread of their sum by drawing.

    enumerated: whether all choices of masks were evaluated, so that nothing was drawn.
    """

    nats: Tensor
    spread: Spread
    draws: int
    enumerated: bool = False

    @property
    def error(self) -> float:
        """The standard error of the sum."""
        return self.spread.stderr


def mask_counts(model: "Model") -> MaskCounts | None:
    """Return the bound of a model by the number of masks, or None where it has none: for masked noise, a mean, one schedule."""
    mean = issubclass(model.method.parameterization.prediction, MeanPrediction)
    return MaskCounts.of(model.bound, model.method.time_free) if mean else None


def decompose_bound(model: "Model", length: int, bound: Objective | None = None) -> Drawing:
    """Return the bound of texts with `length` tokens, the model's own by default, in the form that has least variance."""
    bound, denoiser = bound or model.bound, model.denoiser
    whole = isinstance(bound, BlockElbo) and length > bound.block
    if bound is model.bound and not whole:
        counts = MaskCounts.of(bound.one_block, True) if isinstance(bound, BlockElbo) else mask_counts(model)
        if counts is not None:
            return _by_counts(counts, model, length)
    if isinstance(bound, BlockElbo) and whole and bound.block <= LONGEST:
        number = 2**bound.block - 1
        return Drawing(
            lambda x, v, generator: bound.drawn(denoiser, x, v, generator),
            choices=number,
            choice=lambda x, number: bound.choice(denoiser, x, number),
        )
    if isinstance(bound, Elbo) and type(bound).forward is DenoisingObjective.forward:
        return Drawing(
            lambda x, v, generator: random_part(bound, denoiser, x, _all(x), v, generator),
            lambda x: noise_end(bound, denoiser, x, _all(x)),
        )
    return Drawing(lambda x, v, generator: bound.drawn(denoiser, x, v, generator), strata=bound.takes_strata)


def _by_counts(counts: MaskCounts, model: "Model", length: int) -> Drawing:
    denoiser = model.denoiser
    few = not counts.takes_time and length <= LONGEST
    return Drawing(
        lambda x, v, generator: counts.draw(denoiser, x, _all(x), v, generator),
        (lambda x: counts.fixed(denoiser, x, _all(x))) if counts.takes_time else None,
        choices=2**length - 1 if few else None,
        choice=(lambda x, number: counts.choice(denoiser, x, number)) if few else None,
    )


def _all(x: Tensor) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool)


# ---- the layout ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """sets × copies draws of each of N texts; group: the number of each text's group [N]."""

    sets: int
    copies: int
    group: Tensor

    @property
    def draws(self) -> int:
        """Draws of each text."""
        return self.sets * self.copies

    def freedom(self, strata: bool = True) -> int:
        """Return the degrees of freedom of the error."""
        return (int(self.group[-1]) + 1) * (self.copies if strata else 1) * (self.sets - 1)


def layout(rows: int, draws: int, strata: bool = True) -> Layout:
    """Return the layout of at most so many draws of each text: with many degrees of freedom, then as many draws as possible.

    Few degrees of freedom make an interval that covers too little where the draws are skewed. Without strata a set is one cell,
    so there are more sets and fewer copies.
    """
    found = [_layout(rows, sets, draws // sets, strata) for sets in range(1, min(SETS if strata else FREEDOM + 1, draws) + 1)]
    return max(found, key=lambda of: (of.sets > 1, min(of.freedom(strata), MANY if strata else FREEDOM), of.draws, of.sets))


def _layout(rows: int, sets: int, copies: int, strata: bool) -> Layout:
    size = min(max(rows * (copies if strata else 1) * (sets - 1) // CELLS, 1), ROWS)
    return Layout(sets, copies, torch.arange(rows) // size)


def fewest_draws(rows: Sequence[int], strata: bool = True) -> int:
    """Return how many draws of each text an error bar takes, for the sum over groups with these numbers of texts."""
    draws = 2
    while sum(layout(number, draws, strata).freedom(strata) for number in rows) < FREEDOM:
        draws += 1
    return draws


def draws_for_error(model: "Model", rows: int, length: int) -> int:
    """Return how many draws of each text, of `length` tokens, the error bar of a model's bound takes."""
    return fewest_draws([rows], decompose_bound(model, length).strata)


def places(of: Layout, seed: int) -> Tensor:
    """Return v of each draw: [sets, copies, N] float64 on [0, 1)."""
    shape = (of.sets, of.copies, len(of.group))
    generator = torch.Generator().manual_seed(seed)
    key, jitter = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    size = torch.bincount(of.group)
    first = (size.cumsum(0) - size)[of.group]
    rank = (key + of.group).argsort(-1).argsort(-1) - first  # in its group
    copy = torch.arange(of.copies)[:, None]
    return ((copy + (rank + jitter) / size[of.group]) / of.copies).clamp_max(1 - 2.0**-53)


# ---- drawing -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def estimate(model: "Model", x: Tensor, draws: int, seed: int = 0, bound: Objective | None = None) -> Estimate:
    """Return the bound of texts x [N, L] by at most so many draws of each; an exact model is evaluated once.

    bound: another than the model's own. A text's noise depends on the seed, its place among the texts and their number, but not
    on how many processes share the work.
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
    """Return the bound itself, the sum over all choices of masks: [N] float64."""
    assert drawing.choice is not None and drawing.choices is not None
    choice, number = drawing.choice, drawing.choices

    def some(units: Tensor) -> Tensor:
        return choice(x[units // number], units % number + 1)

    return _evaluated(model, x, len(x) * number, some).view(len(x), number).sum(1)


def _drawn(model: "Model", drawing: Drawing, x: Tensor, of: Layout, seed: int) -> Tensor:
    """Return every draw, without the fixed part: [sets, copies, N] float64."""
    v = places(of, seed_of(seed, 0))
    if drawing.strata:  # the noise of a draw does not depend on which others are evaluated with it
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
    """Return act(units) for 0…number − 1, some of them at a time, shared out over the processes: [number] float64."""
    parts = torch.arange(number, device=x.device).split(_at_once(model, x))
    return _together(len(parts), lambda i: act(parts[i]))


def _together(number: int, act: Callable[[int], Tensor]) -> Tensor:
    return torch.cat(distributed.map_ranks(number, lambda i: act(i).double().cpu()))


def _at_once(model: "Model", x: Tensor) -> int:
    return rows_at_once(x.shape[1], ROWS, x.device, model.process.vocab)


# ---- how many draws ------------------------------------------------------------------------------------------------------


def planned_draws(
    model: "Model", groups: Sequence[Tensor], most: int, error: float, seed: int, bound: Objective | None = None
) -> int:
    """Return the draws of each text, at most `most`, after which the standard error of the sum over all texts is `error` nats.

    They are planned from a pilot: a few texts, with draws that are not used again. A rule that looks at the draws it averages
    would stop early more often where these are small by chance, and its mean would be too low.
    """
    if model.method.exact or error == 0:
        return most
    drawings = [decompose_bound(model, x.shape[1], bound) for x in groups]
    fewest = fewest_draws([len(x) for x in groups], drawings[0].strata)
    few = [one.choices for one in drawings if one.choices is not None and one.choices <= 2 * fewest]
    needed = max(fewest, *few) if few else fewest  # evaluating all choices is not much dearer than drawing, and has no error
    drawn = [x for x, one in zip(groups, drawings, strict=True) if (one.choices or needed + 1) > needed]
    if 2 * fewest >= most or not drawn:
        return min(needed, most) if not drawn else most
    rows = [x[torch.linspace(0, len(x) - 1, min(len(x), PILOT_ROWS), dtype=torch.float64).round().long()] for x in drawn]
    draws = fewest_draws([len(x) for x in rows], drawings[0].strata)
    pilot = [estimate(model, x, draws, seed_of(seed, PILOT_SEED), bound) for x in rows]
    variance = sum(  # of one draw of each text
        one.error**2 * one.draws * len(x) / len(part) for one, x, part in zip(pilot, drawn, rows, strict=True)
    )
    freedom = sum(sum(one.spread.freedom) for one in pilot)
    wanted = variance * freedom / chi_square(CAUTION, freedom) / error**2
    whole = math.ceil(wanted) if wanted <= SETS else SETS * math.ceil(wanted / SETS)  # a layout of all sets leaves none out
    return max(needed, whole) if whole < most else most
