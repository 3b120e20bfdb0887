"""α, α′, 1 − α, inverse of every schedule, in both precisions."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from cases import SCHEDULES, per_token
from unnoise import Cosine, CosineTable, Geometric, Linear, LogLinear, Markov, PerToken, Polynomial, Table
from unnoise.process.markov import mutual_information_schedule

ALL = {**SCHEDULES, "per-token": lambda: per_token(5)}
NAMES = sorted(ALL)


@pytest.mark.parametrize("name", NAMES)
def test_the_slope_is_the_derivative(name: str) -> None:
    schedule = ALL[name]()
    t = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    step = 1e-6
    slope = (schedule.alpha(t + step) - schedule.alpha(t - step)) / (2 * step)
    assert torch.allclose(schedule.alpha_prime(t), slope, atol=1e-6, rtol=1e-6)
    assert (schedule.alpha_prime(t) <= 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_derived_quantities(name: str, dtype: torch.dtype) -> None:
    schedule = ALL[name]()
    t = torch.linspace(0.05, 0.95, 19, dtype=dtype)
    alpha, noise, slope = schedule.alpha(t), schedule.noise(t), schedule.alpha_prime(t)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    for value, formula in (
        (noise, 1 - alpha),
        (schedule.sigma(t), -alpha.log()),
        (schedule.rate(t), -slope / alpha),
        (schedule.hazard(t), -slope / noise),
    ):
        assert value.dtype == dtype
        assert torch.allclose(value, formula, **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_float32_has_digits_at_the_ends(name: str) -> None:
    """1 − α at t = 1e-6 and α at 1 − 1e-6 to a few parts in 10⁶, and everything finite."""
    schedule = ALL[name]()
    for t in (1e-6, 1e-3, 1 - 1e-3, 1 - 1e-6):
        rough, exact = torch.tensor([t], dtype=torch.float32), torch.tensor([t], dtype=torch.float32).double()
        for quantity in (schedule.alpha, schedule.noise, schedule.rate, schedule.hazard, schedule.sigma):
            assert torch.isfinite(quantity(rough)).all()
            assert torch.allclose(quantity(rough).double(), quantity(exact), rtol=2e-5), (quantity.__name__, t)


@pytest.mark.parametrize("name", NAMES)
@given(a=st.floats(0, 1), b=st.floats(0, 1))
def test_alpha_decreases_between_one_and_zero(name: str, a: float, b: float) -> None:
    early, late = sorted((a, b))
    alpha = ALL[name]().alpha(torch.tensor([early, late], dtype=torch.float64))
    assert ((alpha >= 0) & (alpha <= 1)).all()
    assert (alpha[0] >= alpha[1] - 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
@given(t=st.floats(1e-4, 1 - 1e-4))
def test_the_inverse_undoes_alpha(name: str, t: float) -> None:
    schedule = ALL[name]()
    at = torch.tensor([t], dtype=torch.float64)
    back = schedule.inverse(schedule.alpha(at))
    assert torch.allclose(schedule.alpha(back.reshape(-1)[:1]).reshape(-1)[:1], schedule.alpha(at).reshape(-1)[:1], atol=1e-9)
    if name != "geometric" or t < 0.85:  # later α is so small that t is beyond its digits
        assert torch.allclose(back, at.expand_as(back), atol=1e-6)


def test_the_ends() -> None:
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for name in NAMES:
        if name == "unfinished":
            continue
        alpha = ALL[name]().alpha(ends).reshape(2, -1)
        start = {"geometric": torch.exp(torch.tensor(-1e-4)).item(), "offset": 0.999}.get(name, 1.0)
        stop = {"geometric": torch.exp(torch.tensor(-15.0)).item(), "log-linear": 1e-3, "offset": 1e-3}.get(name, 0.0)
        assert torch.allclose(alpha[0], torch.tensor(start, dtype=torch.float64), atol=1e-8)
        assert torch.allclose(alpha[1], torch.tensor(stop, dtype=torch.float64), atol=1e-8)


def test_the_cosine_table_has_the_papers_values() -> None:
    import math

    table = CosineTable(10).table
    assert len(table) == 11
    for i, value in enumerate(table.tolist()):
        formula = math.cos(math.pi / 2 * (i / 10 + 0.008) / 1.008) / math.cos(math.pi / 2 * 0.008 / 1.008)
        assert abs(value - formula) < 1e-12


def test_the_per_token_schedule_learns() -> None:
    schedule = PerToken(3, w=2.0)
    assert torch.allclose(schedule.exponents(), torch.full((3,), 2.0))
    alpha = schedule.alpha(torch.tensor([0.3, 0.6]))
    assert alpha.shape == (2, 3)
    alpha.sum().backward()
    assert schedule.theta.grad is not None and (schedule.theta.grad != 0).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Polynomial(0.0), "exponent w > 0"),
        (lambda: Polynomial(float("nan")), "exponent w > 0"),
        (lambda: LogLinear(1.0), "0 ≤ eps < 1"),
        (lambda: Geometric(2.0, 1.0), "0 < lo < hi"),
        (lambda: CosineTable(0), "at least one step"),
        (lambda: PerToken(0), "at least one token"),
        (lambda: PerToken(3, w=-1.0), "exponent w > 0"),
    ],
)
def test_bad_schedules(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_table_is_what_it_was_made_of() -> None:
    sigmas = torch.tensor([0.0, 0.1, 0.5, 3.0])
    schedule = Table(sigmas)
    t = torch.linspace(0, 1, 4, dtype=torch.float64)
    assert torch.allclose(schedule.sigma(t), sigmas.double(), atol=1e-12)
    between = torch.linspace(0.01, 0.99, 37, dtype=torch.float64)
    assert float(schedule.sigma(torch.tensor([0.5], dtype=torch.float64))) == pytest.approx(0.3)
    step = 1e-7
    slope = (schedule.alpha(between + step) - schedule.alpha(between - step)) / (2 * step)
    assert torch.allclose(slope, schedule.alpha_prime(between), atol=1e-5)
    assert torch.allclose(schedule.inverse(schedule.alpha(between)), between, atol=1e-9)
    assert torch.allclose(schedule.noise(between), 1 - schedule.alpha(between), atol=1e-12)
    for bad in ([0.0], [0.0, 0.0], [0.1, 0.2], [0.0, 2.0, 1.0]):
        with pytest.raises(ValueError, match="rising from 0"):
            Table(torch.tensor(bad))


@pytest.mark.parametrize(
    "chain", [Markov.banded(5, Linear(), width=0.8), Markov(torch.full((4, 4), 0.25) - torch.eye(4), Linear())]
)
def test_the_mutual_information_falls_in_a_straight_line(chain: Markov) -> None:
    """D3PM's schedule, checked against the joint distribution of x_0 and x_t computed from the process itself."""
    p = torch.softmax(torch.randn(chain.vocab, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 0)
    schedule = mutual_information_schedule(chain, p, steps=64)
    process = Markov(chain.generator, schedule)
    entropy = float(-(p * p.log()).sum())
    for t in (0.0, 0.125, 0.5, 0.75, 0.984375):
        joint = p[:, None] * process.transition(None, torch.tensor(t, dtype=torch.float64))
        independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
        information = float((torch.xlogy(joint, joint) - torch.xlogy(joint, independent)).sum())
        assert information == pytest.approx((1 - t) * entropy, abs=1e-6 * entropy + 1e-9)


def test_the_total_rate_has_its_digits_at_both_ends() -> None:
    """σ̄ = −log α in float32: −log1p(−noise) where the noise is small, −log α where the signal is."""
    for schedule, times in (
        (Linear(), (1e-6, 0.3, 0.9999)),
        (LogLinear(1e-6), (1e-6, 0.999, 1.0)),
        (LogLinear(1e-3), (1e-5, 1.0)),
        (Cosine(), (1e-5, 0.999)),
    ):
        for time in times:
            t = torch.tensor(time, dtype=torch.float32)
            exact = schedule.sigma(t.double())
            assert float((schedule.sigma(t).double() - exact).abs() / exact) < 2e-6
            assert float(exact) == pytest.approx(-math.log(float(schedule.alpha(t.double()))), rel=1e-9)
