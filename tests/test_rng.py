"""Random numbers by row: good ones, and row i's depend on (seed, i) alone."""

import math

import pytest
import torch

import unnoise
from unnoise.rng import RowGenerator, draw, integers, normal, poisson
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
