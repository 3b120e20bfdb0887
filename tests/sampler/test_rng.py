"""Random numbers by row: good ones, and row i's depend on (seed, i) alone."""

import itertools
import math

import pytest
import torch

import unnoise
from toy import chi_square
from unnoise.rng import RowGenerator, bits, draw, integers, inverse_cdf, normal, poisson, seed_of, shuffled
from unnoise.sampler_table import named_sampler

CPU = torch.device("cpu")


def rows(*numbers: int, seed: int = 0) -> RowGenerator:
    return RowGenerator(seed, torch.tensor(numbers))


def test_a_row_does_not_depend_on_the_others_nor_on_the_width() -> None:
    alone, among = rows(7), rows(3, 7, 5)
    for width in (4, 9):
        assert torch.equal(alone.uniform((1, width))[0], among.uniform((3, width + 2))[1, :width])
    where = torch.tensor([[True, False], [False, False], [True, True]])
    first = rows(0, 1, 2)
    first.uniform((3, 2), where)  # row 1 was not called
    assert torch.equal(first.uniform((3, 2))[1], rows(1).uniform((1, 2))[0])
    assert not torch.equal(first.uniform((3, 2))[0], rows(0).uniform((1, 2))[0])


def test_another_seed_row_or_call_is_another_stream() -> None:
    values = torch.cat([rows(row, seed=seed).uniform((1, 50)) for seed in (0, 1, 2**62) for row in (0, 1, 2**40)])
    assert values.unique().numel() == values.numel()
    generator = rows(0)
    assert not torch.equal(generator.uniform((1, 5)), generator.uniform((1, 5)))
    assert generator.uniform(()) != generator.uniform(()) and rows(0).uniform(()) == rows(5, 6).uniform(())
    with pytest.raises(ValueError, match="a generator for 2 rows cannot fill"):
        rows(0, 1).uniform((3, 2))


def test_the_numbers_are_uniform_and_independent() -> None:
    generator = RowGenerator(3, torch.arange(2000))
    u = torch.stack([generator.uniform((2000, 50)) for _ in range(4)])  # call, row, place
    assert u.min() >= 0 and u.max() < 1
    counts = torch.histc(u, 100, 0, 1)
    chi2 = float(((counts - u.numel() / 100) ** 2 / (u.numel() / 100)).sum())
    assert chi2 < 99 + 5 * math.sqrt(2 * 99)
    centred = u - 0.5
    for a, b in (
        (centred[:-1], centred[1:]),
        (centred[:, :-1], centred[:, 1:]),
        (centred[..., :-1], centred[..., 1:]),
        (centred[:, ::2], centred[:, 1::2]),
    ):
        assert abs(float((a * b).mean() * 12)) < 5 / math.sqrt(a.numel())
    low = (u * 2**32 % 1).flatten()  # the lower bits are as good
    assert abs(float(low.mean()) - 0.5) < 5 * math.sqrt(1 / 12 / len(low))


def test_what_is_made_of_them() -> None:
    generator = RowGenerator(0, torch.arange(4000))
    z = normal((4000, 20), CPU, generator, torch.float64)
    assert abs(float(z.mean())) < 0.02 and abs(float(z.std()) - 1) < 0.02 and torch.isfinite(z).all()
    assert torch.equal(integers(5, (4000, 3), CPU, generator).unique(), torch.arange(5))
    for mean in (0.0, 0.3, 4.0, 60.0):
        k = poisson(torch.full((4000, 5), mean), generator).double()
        assert float(k.mean()) == pytest.approx(mean, abs=5 * math.sqrt(mean / k.numel()) + 1e-9)
        assert float(k.var()) == pytest.approx(mean, rel=0.1)
    where = torch.rand(4000, 3) < 0.5
    p = torch.tensor([0.2, 0.5, 0.3]).expand(int(where.sum()), 3)
    shares = torch.bincount(draw(p, generator, where)).double() / len(p)
    assert torch.allclose(shares, p[0].double(), atol=0.03)


CASES = [(name, None) for name in unnoise.methods()] + [
    ("mdlm", sampler)
    for sampler in (
        "first-hitting",
        "confidence",
        "entropy-bounded",
        "remasking",
        "predictor-corrector",
        "tweedie",
        "metropolis",
    )
]


@pytest.mark.parametrize(("method", "sampler"), CASES)
def test_a_text_is_the_same_alone_and_among_others(method: str, sampler: str | None) -> None:
    model = unnoise.Model.build(method, width=16, depth=1, heads=2, length=12)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    many = model.generate(5, steps=6, seed=4, sampler=sampler)
    assert model.generate(1, steps=6, seed=4, sampler=sampler) == many[:1]
    assert model.generate(3, steps=6, seed=4, sampler=sampler) == many[:3]
    assert [*model.chain(row=3, steps=6, seed=4, sampler=sampler)][-1].text.strip("¶") == many[3]
    assert len(set(many)) > 1 and model.generate(1, steps=6, seed=5, sampler=sampler) != many[:1]


def test_many_are_drawn_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from unnoise.model import generate

    model = unnoise.Model.build("mdlm", width=16, depth=1, heads=2, length=8)
    whole = model.generate(10, steps=4)
    monkeypatch.setattr(generate, "ROWS", 3)
    assert model.generate(10, steps=4) == whole


def test_rows_given_differently_do_not_disturb_each_other() -> None:
    """Left to right, a row that is given where another is free stays in its own stream."""
    model = unnoise.Model.build("ar", width=16, depth=1, heads=2, length=6)
    given = torch.tensor([[-1] * 6, [3, 3, -1, -1, 3, -1]])
    both = unnoise.sample(model.process, model.denoiser, batch=2, length=6, sampler=named_sampler("left-to-right"), given=given)
    alone = unnoise.sample(
        model.process,
        model.denoiser,
        batch=1,
        length=6,
        sampler=named_sampler("left-to-right"),
        given=given[1:],
        first_row=1,
    )
    assert torch.equal(both[1:], alone)


def test_numbers_at_some_places_are_those_of_the_whole() -> None:
    """u(seed, row, call, place): which other places are needed makes no difference."""
    where = torch.tensor([[False, True, False, True], [True, True, False, False], [False, False, False, True]])
    whole = rows(0, 1, 2).uniform((3, 4))
    assert torch.equal(rows(0, 1, 2).uniform((3, 4), where), whole[where])


def test_branches_share_no_numbers_with_the_calls() -> None:
    parent = rows(5)
    calls = [bits(parent.next_keys(), 40) for _ in range(40)]
    branches = [rows(5).fork(number) for number in range(40)]
    keys = [branch.next_keys() for branch in branches for _ in range(40)]
    every = torch.cat([*(call.flatten() for call in calls), *keys])
    assert len(every.unique()) == len(every)


def test_a_seed_of_several_numbers_depends_on_their_order() -> None:
    seeds = {seed_of(*some) for some in itertools.product(range(6), repeat=3)}
    assert len(seeds) == 6**3


def test_a_weight_of_zero_is_never_drawn() -> None:
    """min{ y : Σ_{k≤y} p_k > u·Σ p }, also at u = 0 and where u·Σ p rounds up to Σ p."""
    assert int(inverse_cdf(torch.tensor([0.0, 0.0, 1.0, 0.0]), torch.tensor(0.0, dtype=torch.float64))) == 2
    smallest = torch.tensor([0.0, 5e-324, 0.0], dtype=torch.float64)
    assert int(inverse_cdf(smallest, torch.tensor(0.9, dtype=torch.float64))) == 1


def test_a_weight_of_a_billionth_is_drawn_as_often_as_it_says() -> None:
    """Between two large ones: in float32 it would vanish."""
    probs = torch.tensor([1.0, 1e-9, 1.0], dtype=torch.float64)
    u = (1 + torch.tensor([-0.5, 0.1, 0.5, 0.9, 1.5], dtype=torch.float64) * 1e-9) / float(probs.sum())
    assert inverse_cdf(probs.expand(5, 3), u).tolist() == [0, 1, 1, 1, 2]


@pytest.mark.parametrize("mean", [0.0, 0.05, 0.5, 3.0, 40.0])
def test_counts_have_their_tail(mean: float) -> None:
    """e^{−λ} λ^k/k! for every k, the large ones included: as often as 200,000 draws should have them."""
    size = 200_000
    found = poisson(torch.full((size, 1), mean, dtype=torch.float64), RowGenerator(1, torch.arange(size)))[:, 0]
    k = torch.arange(int(found.max()) + 30, dtype=torch.float64)
    p = (torch.xlogy(k, torch.tensor(mean, dtype=torch.float64)) - mean - torch.lgamma(k + 1)).exp()
    awaited, counted = p * size, torch.bincount(found, minlength=len(k)).double()
    beyond = int((awaited.flip(0).cumsum(0).flip(0) > 20).sum()) - 1  # the last k with twenty beyond it
    assert abs(float(counted[beyond:].sum() - awaited[beyond:].sum())) < 6 * math.sqrt(float(awaited[beyond:].sum()) + 1)
    assert ((counted - awaited).abs() < 6 * awaited.sqrt() + 6).all()


@pytest.mark.parametrize("count", [3, 4, 5])
def test_every_order_of_a_few_texts_is_as_likely(count: int) -> None:
    """Over many epochs each of the n! permutations occurs as often as another."""
    epochs = 300 * math.factorial(count)
    epoch, place = shuffled(torch.arange(epochs * count), count, 3)
    assert torch.equal(epoch, torch.arange(epochs).repeat_interleave(count))
    orders = place.view(epochs, count)
    assert torch.equal(orders.sort(1).values, torch.arange(count).expand(epochs, count))
    number = (orders * count ** torch.arange(count)).sum(1)
    found = number.unique(return_counts=True)[1]
    assert len(found) == math.factorial(count)
    assert chi_square(found, torch.full((len(found),), 1 / len(found), dtype=torch.float64)) > 1e-4
