"""Intervals that cover: on models whose bound is known exactly, by 200 repetitions."""

import math

import pytest
import torch
from torch import Tensor

import unnoise
from bounds import counts_of
from exact_models import text_of, toy_model
from toy import Toy
from unnoise.denoiser import Denoiser
from unnoise.families.block import Blocks
from unnoise.families.block_objective import BlockElbo
from unnoise.model.draws import Layout, decompose_bound, estimate, fewest_draws, layout, places, planned_draws
from unnoise.model.error_bars import FREEDOM, Spread, chi_square, student, with_error
from unnoise.objective import Objective
from unnoise.objective.objective_base import DenoisingObjective
from unnoise.rng import Generator, RowGenerator

REPEATS = 200


def least(coverage: float = 0.95) -> float:
    """Return the smallest number of covering intervals to expect, except 1 in 160 times."""
    return REPEATS * coverage - 2.5 * math.sqrt(REPEATS * coverage * (1 - coverage))


LEAST = least()


# ---- quantiles and variances ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "t", "chi"), [(3, 3.18245, 1.00517), (4, 2.77645, 1.64878), (6, 2.44691, 3.07009), (30, 2.04227, 23.3641)]
)
def test_quantiles(freedom: int, t: float, chi: float) -> None:
    assert student(0.975, freedom) == pytest.approx(t, rel=2e-3) and student(0.025, freedom) == pytest.approx(-t, rel=2e-3)
    assert chi_square(0.2, freedom) == pytest.approx(chi, rel=2e-2)


def test_the_interval_of_one_part_and_of_several() -> None:
    one = Spread((4.0,), (10,))
    assert one.stderr == 2 and one.half_width() == pytest.approx(2 * student(0.975, 5))
    equal = Spread((1.0,) * 8, (3,) * 8)
    assert equal.half_width() == pytest.approx(math.sqrt(8) * student(0.975, 12))
    uneven = Spread((9.0, 1.0, 0.0), (6, 6, 6))
    assert uneven.half_width() == pytest.approx(math.sqrt(10) * student(0.975, 50 / (82 / 6)))
    few = Spread((9.0, 1e-9), (1, 11))
    assert few.half_width() == pytest.approx(3 * student(0.975, 3))
    assert (one + equal).stderr == pytest.approx(math.sqrt(12)) and Spread().half_width() == 0 and Spread().known
    assert not Spread((1.0,), (FREEDOM - 1,)).known and Spread((1.0,), (FREEDOM,)).known
    assert with_error(1.2345, 0.01) == "1.234 ± 0.010" and with_error(1.5, 0.0) == "1.500"


@pytest.mark.parametrize(("sets", "cells"), [(2, 16), (4, 4), (4, 8)])
def test_intervals_of_normal_cells_cover(sets: int, cells: int) -> None:
    """Cells of unequal variance, as strata are: a normal quantile would cover 90 % of the second."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.linspace(0.2, 2, cells)
    values = scale * torch.randn(4000, sets, cells, generator=generator)
    variances = values.var(1) / sets
    covered = 0
    for mean, one in zip(values.mean(1).sum(1).tolist(), variances.tolist(), strict=True):
        covered += abs(mean) <= Spread(tuple(one), (sets - 1,) * cells).half_width()
    assert 0.945 < covered / 4000 < 0.99


# ---- the layout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 32, 33, 100, 1000])
def test_the_fewest_draws_have_an_error_bar(rows: int) -> None:
    for strata in (True, False):
        draws = fewest_draws([rows], strata)
        of = layout(rows, draws, strata)
        assert of.draws == draws and of.freedom(strata) >= FREEDOM
        assert draws == 2 or layout(rows, draws - 1, strata).freedom(strata) < FREEDOM
    assert fewest_draws([100, 1]) == 2, "a last, shorter window takes no more draws of all others"
    assert layout(rows, 1).draws == 1 and layout(rows, 1).freedom() == 0
    for draws in range(1, 40):
        assert 2 * draws <= 3 * layout(rows, draws).draws <= 3 * draws
        if draws >= fewest_draws([rows]):
            assert layout(rows, draws).freedom() >= FREEDOM, "more draws than needed are enough too"


def test_every_draw_is_uniform_and_every_part_has_one() -> None:
    of = Layout(2, 3, torch.tensor([0, 0, 0, 0, 1, 1]))
    v = places(of, 0)
    for group in range(2):
        for s in range(2):
            here = v[s][:, of.group == group]  # [copies, n]
            n = here.shape[1]
            assert (here * 3).long().tolist() == [[i] * n for i in range(3)]
            assert sorted((here * 3 * n).long().flatten().tolist()) == list(range(3 * n))
    many = torch.stack([places(of, seed) for seed in range(2000)])  # a text's part is random, and not the same in both sets
    assert torch.allclose(many.mean((0, 1, 2)), torch.full((6,), 0.5, dtype=many.dtype), atol=0.012)
    first, second = many[:, 0, 0, 0], many[:, 1, 0, 0]
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.08


# ---- coverage ------------------------------------------------------------------------------------------------------------


def exact_bits(model: unnoise.Model, x: Tensor) -> float:
    """Compute the bound in bits per token over all choices of masks."""
    found = estimate(model, x, 2 ** x.shape[1])
    assert found.enumerated and found.spread.stderr == 0
    return float(found.nats.sum()) / x.numel() / math.log(2)


def perturbed(method: str, length: int) -> unnoise.Model:
    """Return a small model with random weights, whose bound differs from draw to draw."""
    model = unnoise.Model.build(method, length=length, width=8, depth=1, heads=1)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


@pytest.mark.parametrize(("samples", "coverage"), [(16, 0.93), (32, 0.95)])
def test_the_interval_of_a_short_text_covers_the_exact_bound(samples: int, coverage: float) -> None:
    """Draws for a text of two letters take few values and are skewed, so that the fewest draws cover a little less."""
    toy = Toy(2, 6, seed=2)
    model = toy_model(toy, "mdlm", blur=0.2)
    x = toy.x[int(toy.p.argsort()[len(toy.p) // 2])][None]
    exact = exact_bits(model, x)
    found = [model.score(text_of(x[0]), samples, seed, error=0.0) for seed in range(REPEATS)]
    intervals = [one.interval for one in found if one.interval is not None]
    assert sum(low <= exact <= high for low, high in intervals) >= least(coverage)
    reported = math.sqrt(sum((one.stderr or 0) ** 2 for one in found) / REPEATS)
    mean, spread = (float(part) for part in torch.std_mean(torch.tensor([one.bits_per_char for one in found]))[::-1])
    assert 0.8 < spread / reported < 1.25
    assert mean == pytest.approx(exact, abs=4 * spread / math.sqrt(REPEATS))


def test_the_interval_of_several_texts_of_two_lengths_covers() -> None:
    toy = Toy(2, 6, seed=2)
    model = toy_model(toy, "mdlm", blur=0.2)
    texts = [text_of(toy.x[3]), text_of(toy.x[60]), text_of(toy.x[17]), "abaab"]
    exact = (6 * 3 * exact_bits(model, toy.x[[3, 60, 17]]) + 5 * exact_bits(model, torch.tensor([[0, 1, 0, 0, 1]]))) / 23
    found = [model.score(texts, 8, seed, error=0.0) for seed in range(REPEATS)]
    assert sum(one.interval is not None and one.interval[0] <= exact <= one.interval[1] for one in found) >= LEAST


def test_stopping_early_does_not_lower_the_bound() -> None:
    """Choose the number of draws without the draws that are averaged."""
    toy = Toy(2, 6, seed=2)
    model = toy_model(toy, "mdlm", blur=0.2)
    x = toy.x[int(toy.p.argsort()[len(toy.p) // 2])][None]
    found = [model.score(text_of(x[0]), 60, seed, error=0.08) for seed in range(2 * REPEATS)]
    bits = torch.tensor([one.bits_per_char for one in found], dtype=torch.float64)
    assert len({one.draws for one in found}) > 3, "the rule is at work"
    assert float(bits.mean()) == pytest.approx(exact_bits(model, x), abs=3.5 * float(bits.std()) / math.sqrt(len(bits)))
    covered = sum(one.interval is not None and one.interval[0] <= exact_bits(model, x) <= one.interval[1] for one in found)
    assert covered >= 2 * REPEATS * 0.94 - 2.5 * math.sqrt(2 * REPEATS * 0.94 * 0.06)


@torch.no_grad()
@pytest.mark.parametrize("method", ["udlm", "sedd-absorb", "md4", "multinomial", "flexmdm"])
def test_the_interval_of_other_methods_covers(method: str) -> None:
    """Replace the unknown exact bound by the mean over all repetitions, whose error is 1/√200 as large."""
    model = perturbed(method, 6)
    x = torch.tensor([[3, 1, 4, 1, 5, 9]])
    found = [estimate(model, x, 16, seed) for seed in range(REPEATS)]
    nats = torch.cat([one.nats for one in found])
    covered = sum(abs(float(one.nats) - float(nats.mean())) <= one.spread.half_width() for one in found)
    assert covered >= LEAST - 4, f"{covered} of {REPEATS}"  # heavy tails of an untrained network
    assert all(one.draws == 16 and one.spread.known for one in found)


# ---- what is evaluated ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_short_texts_and_small_blocks_are_not_drawn() -> None:
    toy = Toy(3, 5, seed=4)
    model = toy_model(toy, "mdlm", blur=0.2)
    first, second = (model.score("abcab", seed=seed) for seed in (0, 1))
    assert first == second and first.enumerated and first.draws == 31 and first.stderr == 0 and not first.exact
    drawn = model.score("abcab", samples=30, error=0.0)
    assert not drawn.enumerated and drawn.interval is not None
    blocks = perturbed("bd3lm:block=3", 7)
    x = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    whole = estimate(blocks, x, 7)
    assert whole.enumerated and whole.draws == 7
    some = [estimate(blocks, x.expand(300, -1), 6, seed) for seed in range(4)]
    nats = torch.cat([one.nats for one in some])
    assert float(nats.mean()) == pytest.approx(float(whole.nats), abs=4 * float(nats.std()) / math.sqrt(len(nats)))


@torch.no_grad()
def test_texts_of_blocks_that_end_are_padded() -> None:
    """Each text costs what it costs alone, whatever stands next to it."""
    model = perturbed("bd3lm:block=3", 9)
    model.process.end = 0
    long, short = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 0]), torch.tensor([2, 7, 1, 0, -1, -1, -1, -1, -1])
    both = estimate(model, torch.stack([long, short]), 7)
    assert both.enumerated
    alone = [float(estimate(model, one[one >= 0][None], 7).nats) for one in (long, short)]
    assert both.nats.tolist() == pytest.approx(alone, abs=1e-4)
    drawn = [estimate(model, torch.stack([long, short]), 6, seed) for seed in range(REPEATS)]
    exact = float(both.nats.sum())
    assert sum(abs(float(one.nats.sum()) - exact) <= one.spread.half_width() for one in drawn) >= LEAST


class Counted(Objective):
    """An objective of a user's own: a known mean of 1, and nothing that is stratified."""

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        assert isinstance(generator, RowGenerator)
        return 2 * generator.uniform((len(x),))


def test_an_objective_without_strata_has_an_interval_too() -> None:
    model = unnoise.Model.build("mdlm", length=40, width=8, depth=1, heads=1)
    x = torch.zeros(3, 40, dtype=torch.long)
    assert not decompose_bound(model, 40, Counted()).strata
    assert isinstance(model.bound, DenoisingObjective) and model.bound.takes_strata
    found = [estimate(model, x, 16, seed, Counted()) for seed in range(REPEATS)]
    assert sum(abs(float(one.nats.sum()) - 3) <= one.spread.half_width() for one in found) >= LEAST
    assert len(set(found[0].nats.tolist())) == 3


@torch.no_grad()
def test_the_network_is_called_as_often_as_there_are_draws() -> None:
    """Remaining signal of log-linear noise costs no second call per draw."""
    for method, fixed in (("mdlm", 0), ("sedd-absorb", 1)):
        model = unnoise.Model.build(method, length=40, width=8, depth=1, heads=1)
        rows: list[int] = []
        model.network.register_forward_hook(lambda _, given, out, rows=rows: rows.append(len(given[0])))
        estimate(model, torch.zeros(2, 40, dtype=torch.long), 16)
        assert sum(rows) == 2 * (16 + fixed)


def test_the_pilot_of_many_texts_is_of_a_few() -> None:
    model = unnoise.Model.build("mdlm", length=16, width=8, depth=1, heads=1)
    rows: list[int] = []
    model.network.register_forward_hook(lambda _, given, out: rows.append(len(given[0])))
    x = torch.randint(27, (300, 16), generator=torch.Generator().manual_seed(0))
    assert planned_draws(model, [x], 16, error=1e9, seed=0) == 2 and sum(rows) == 32
    assert planned_draws(model, [x], 16, error=1e-9, seed=0) == 16
    assert planned_draws(model, [x], 16, error=0.0, seed=0) == 16


def test_blocks_of_one_text_use_the_mask_counts_of_mdlm() -> None:
    """Treat a text of at most one block as mdlm does, including the ε of its schedule."""
    bound = BlockElbo(Blocks(3, 4))
    assert counts_of(bound.one_block).signal == 1e-3
