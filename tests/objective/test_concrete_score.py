"""Concrete score matching without a logarithm: predicted ratios may be zero or negative."""

import math

import pytest
import torch

from cases import build
from toy import Exact, Toy, expected, texts
from unnoise import (
    ConcreteScore,
    Elbo,
    EulerLeaping,
    Linear,
    LogLinear,
    Metropolis,
    Model,
    Process,
    RatioPrediction,
    ScorePrediction,
    TweedieLeaping,
    Uniform,
    codec,
    method,
    sample,
)

TOY = Toy(3, 2, seed=0)

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("name", ["masked", "uniform", "banded"])
def test_linear_ratios_of_the_posterior_are_the_exact_ratios(name: str) -> None:
    """1 + Σ p(x_0|x_t)·[q(y|x_0)/q(x_t|x_0) − 1] = p_t(y)/p_t(x_t), by enumeration."""
    process = build(name, "linear", 3)
    x_t = texts(process.states, 2)
    for t in (0.05, 0.5, 0.95):
        at = torch.full((len(x_t),), t)
        found = process.linear_ratios(TOY.posterior_mean(process, x_t, at), x_t, at[:, None].expand(x_t.shape))
        wanted = TOY.score(process, x_t, at)
        jumps = (process.rates_into(x_t, at[:, None].expand(x_t.shape)) > 0) & (x_t[..., None] != torch.arange(process.states))
        assert jumps.any() and torch.allclose(found[jumps], wanted[jumps], atol=1e-10)


def test_linear_ratios_in_closed_form_are_the_dense_ones() -> None:
    """Of any real weights, and their gradients too."""
    process = Uniform(5, LogLinear(1e-3))
    x_t = torch.arange(5).repeat(4)
    t = torch.tensor([1e-3, 0.1, 0.6, 0.999]).repeat_interleave(5)
    for one in (process, process.dense()):
        assert torch.allclose(one.linear_ratios(torch.zeros(20, 5), x_t, t), torch.ones(20, 5))
    weights = torch.randn(20, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    outs = [one.linear_ratios(weights, x_t, t) for one in (process, process.dense())]
    off = x_t[:, None] != torch.arange(5)
    assert torch.allclose(outs[0][off], outs[1][off], rtol=1e-9)
    grads = [torch.autograd.grad((out[off] * torch.arange(1.0, off.sum() + 1)).sum(), weights)[0] for out in outs]
    assert torch.allclose(*grads, rtol=1e-9)


def one(process: Process, ratio: list[float], x: int, x_t: int, t: float, objective=ConcreteScore, **options):
    s = torch.tensor(ratio, requires_grad=True)
    token = torch.tensor([[x]]), torch.tensor([[x_t]]), torch.tensor([t])
    return objective(process, **options).at(lambda *_: RatioPrediction(s[None, None]), *token)[0], s


def test_a_negative_ratio_has_a_loss_and_a_gradient_by_hand() -> None:
    """½ Σ_{y≠x_t} (s_y − r_y)² and its gradient s_y − r_y, also below zero; the entry at x_t is ignored."""
    process = Uniform(3, Linear())
    own, other = 0.6 + 0.4 / 3, 0.4 / 3
    value, s = one(process, [-2.0, 99.0, 0.0], x=0, x_t=1, t=0.4)
    assert float(value.detach()) == pytest.approx(0.5 * ((-2.0 - own / other) ** 2 + 1), rel=1e-12)
    (gradient,) = torch.autograd.grad(value, s)
    assert gradient.tolist() == pytest.approx([-2.0 - own / other, 0.0, -1.0])
    weighted, _ = one(process, [-2.0, 99.0, 0.0], x=0, x_t=1, t=0.4, weighted=True)
    assert float(weighted.detach()) == pytest.approx(0.4**2 * float(value.detach()), rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_squared_loss_is_least_at_the_exact_ratios(weighted: bool) -> None:
    """E[loss(s)] − E[loss(exact)] = ½ λ E‖s − exact‖², also where s is negative: consistency by enumeration."""
    process, t = Uniform(3, Linear()), 0.3
    loss = ConcreteScore(process, weighted=weighted)
    noise = 2 * torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(3))

    def exact(x_t, at, where=None):
        return RatioPrediction(TOY.score(process, x_t, at.double()))

    def moved(x_t, at, where=None):
        return RatioPrediction(exact(x_t, at).ratio + noise[TOY.index(x_t)])

    def mean(value) -> float:
        return float(expected(TOY, process, t, value))

    found = mean(lambda x, x_t, at: loss.at(moved, x, x_t, at)) - mean(lambda x, x_t, at: loss.at(exact, x, x_t, at))
    distance = noise.masked_fill(texts(3, 2)[..., None] == torch.arange(3), 0.0).square().sum((1, 2))
    assert (exact(texts(3, 2), torch.full((9,), t)).ratio + noise < 0).any()
    wanted = 0.5 * (t**2 if weighted else 1) * mean(lambda x, x_t, at: distance[TOY.index(x_t)])
    assert found == pytest.approx(wanted, rel=1e-9)


def test_without_the_weight_the_loss_starts_at_a_hundredth() -> None:
    """Average over t in [0.01, 1] with the factor 0.99: r grows as 1/t, and no smaller t is drawn."""
    process = Uniform(3, Linear())
    times, weight = ConcreteScore(process).times(1000, torch.device("cpu"), torch.Generator().manual_seed(0))
    assert 0.01 <= float(times.min()) < 0.0115 and torch.allclose(weight, torch.tensor(0.99))


def test_the_bound_is_of_the_ratios_clipped_at_the_floor() -> None:
    process = Uniform(3, Linear())
    raw = torch.tensor([-0.4, 7.0, 1e-9])
    bound, _ = one(process, raw.tolist(), x=0, x_t=1, t=0.4, objective=Elbo)
    r = torch.tensor([(0.6 + 0.4 / 3) / (0.4 / 3), 1.0])
    s = torch.full((2,), RatioPrediction.FLOOR)
    by_hand = float((s - r + r * (r / s).log()).sum()) / 0.6 / 3  # β/K
    assert float(bound.detach()) == pytest.approx(by_hand, rel=1e-9) and by_hand > 10
    exact = Exact(TOY, process, "score")
    x_t, t = texts(3, 2), torch.full((9,), 0.4)
    log_s = exact(x_t, t).values
    for elbo in (Elbo(process), Elbo(process, steps=5)):
        values = [
            elbo.at(lambda *_, p=prediction: p, TOY.x, x_t, t)
            for prediction in (ScorePrediction(log_s), RatioPrediction(log_s.exp()))
        ]
        assert torch.allclose(*values, atol=1e-12)


def test_samplers_serve_negative_ratios() -> None:
    """They draw what the clipped log ratios draw; a negative ratio is never accepted more often than the floor."""
    process = Uniform(3, Linear())
    table = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(4))

    def raw(x_t, t, where=None):
        s = table[TOY.index(x_t)]
        return RatioPrediction(s if where is None else s[where])

    def clipped(x_t, t, where=None):
        return ScorePrediction(raw(x_t, t, where).ratio.clamp_min(RatioPrediction.FLOOR).log())

    for sampler in (TweedieLeaping(4), EulerLeaping(4), Metropolis(8, level=0.1)):
        drawn = [sample(process, denoiser, batch=64, length=2, sampler=sampler, seed=5) for denoiser in (raw, clipped)]
        assert torch.equal(*drawn)
    token, y, t = torch.tensor([0]), torch.tensor([1]), torch.tensor([0.1])
    accept = Metropolis.log_ratio(process, RatioPrediction(torch.tensor([[5.0, -3.0, 1.0]])), token, y, t).exp()
    assert float(accept) == pytest.approx(RatioPrediction.FLOOR)


def test_the_method_predicts_ratios_that_may_be_negative() -> None:
    model = Model.build("csm", codec("text8"), length=8, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    x_t = torch.randint(27, (2, 8), generator=torch.Generator().manual_seed(2))
    prediction = model.denoiser(x_t, torch.full((2,), 0.3))
    assert isinstance(prediction, RatioPrediction) and (prediction.ratio < 0).any()
    assert math.isfinite(model.score("a cat is").nats)
    assert len(model.generate(1, length=8, steps=4, sampler="metropolis")[0]) == 8
    with pytest.raises(ValueError, match="with a RatioPrediction leave both at 1"):
        model.generate(1, length=8, steps=2, temperature=0.5)
    for name, weighted in (("csm", True), ("csm:weighted=false", False)):
        objective = method(name).objective(model.process)
        assert isinstance(objective, ConcreteScore) and objective.weighted == weighted
    with pytest.raises(ValueError, match="one schedule for all tokens, found PerToken"):
        ConcreteScore(build("masked", "per-token", 3), weighted=True)
