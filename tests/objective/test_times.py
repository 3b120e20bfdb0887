"""Densities of t: every one gives the same mean, and the learned one goes where the loss is large."""

import math

import pytest
import torch

from toy import Perturbed, Toy
from unnoise import Elbo, Linear, Masked, Uniform
from unnoise.objective.times import MOST_OBSERVED, LogUniformTimes, LossAwareTimes, PowerTimes, SineTimes, TimeSampler

TOY = Toy(3, 2, seed=0)
pytestmark = pytest.mark.usefixtures("double")


def learned(bins: int = 20) -> LossAwareTimes:
    times = LossAwareTimes(bins)
    with torch.no_grad():
        times.seen.fill_(20)
        times.squares.copy_(torch.rand(bins, generator=torch.Generator().manual_seed(0)) ** 4 * 9 + 0.01)
    return times


@pytest.mark.parametrize(
    "times", [PowerTimes(1.0), PowerTimes(2.0), LogUniformTimes(), LossAwareTimes(7), learned(), SineTimes(2), SineTimes()]
)
@pytest.mark.parametrize("start", [0.05, 0.3])
def test_the_weights_make_an_integral_over_t(times: TimeSampler, start: float) -> None:
    v = (torch.arange(200_000) + 0.5) / 200_000
    w, slope = times.warp(v, start)
    t = start + (1 - start) * w
    assert float(t.min()) >= start and float(t.max()) <= 1
    for f in (torch.ones_like, torch.square, lambda t: torch.cos(5 * t)):
        wanted = float(f(torch.linspace(start, 1, 200_001)).mean()) * (1 - start)
        assert float((f(t) * (1 - start) * slope).mean()) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(
    ("elbo", "plain"),
    [
        (lambda p: Elbo(p, start=0.02, times=LogUniformTimes()), lambda p: Elbo(p, start=0.02)),
        (lambda p: Elbo(p, times=learned()), Elbo),
        (lambda p: Elbo(p, steps=10, times=learned(10)), lambda p: Elbo(p, steps=10)),
    ],
)
@pytest.mark.parametrize("process", [Masked(3, Linear()), Uniform(3, Linear())])
@torch.no_grad()
def test_the_bound_stays_the_same(elbo, plain, process) -> None:
    denoiser = Perturbed(TOY, process, "mean")
    x = TOY.x.repeat(300, 1)
    one, other = (
        torch.stack([made(process)(denoiser, x, torch.Generator().manual_seed(i)).mean() for i in range(20)])
        for made in (elbo, plain)
    )
    error = math.sqrt(float(one.var() + other.var()) / 20)
    assert abs(float(one.mean() - other.mean())) < 4.5 * error


def test_the_learned_density_goes_where_the_loss_is_large() -> None:
    times = LossAwareTimes(4)
    assert torch.allclose(times.density(), torch.full((4,), 0.25))
    for _ in range(12):
        times.observe(torch.tensor([0.1, 0.3, 0.6, 0.9]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
        times.learn()
    wanted = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert torch.allclose(times.density(), 0.99 * wanted / 10 + 0.0025)
    process = Masked(3, Linear())
    elbo = Elbo(process, times=LossAwareTimes(5))
    for i in range(40):
        elbo(Perturbed(TOY, process, "mean"), TOY.x, torch.Generator().manual_seed(i))
        elbo.after_step()
    assert (elbo.time_sampler.seen >= 10).all() and float(elbo.time_sampler.density().std()) > 0.01


def test_observed_losses_do_not_grow_without_bound_and_their_order_decides() -> None:
    """Vectorised updates equal, to the last bit, a running mean over the losses in order."""
    times, generator = LossAwareTimes(7, memory=0.9), torch.Generator().manual_seed(0)
    squares, seen = [1.0] * 7, [0] * 7
    for _ in range(30):
        for size in (1, 16, 50):
            w, nats = torch.rand(2, size, generator=generator)
            times.observe(w, nats)
            for part, value in zip((w.double() * 7).long().tolist(), nats.double().square().tolist(), strict=True):
                kept = 0.9 if seen[part] else 0.0
                squares[part], seen[part] = kept * squares[part] + (1 - kept) * value, seen[part] + 1
        times.learn()
        assert times.squares.tolist() == squares and times.seen.tolist() == seen and not len(times.observed)
    for _ in range(5):  # a loop that never calls `learn`
        times.observe(torch.rand(MOST_OBSERVED // 2, generator=generator), torch.ones(MOST_OBSERVED // 2))
    assert len(times.observed) == MOST_OBSERVED


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="log-uniform times need a start > 0"):
        Elbo(Masked(3, Linear()), times=LogUniformTimes())(Perturbed(TOY, Masked(3, Linear()), "mean"), TOY.x)
    with pytest.raises(ValueError, match="power must be > 0"):
        PowerTimes(0)
    with pytest.raises(ValueError, match="bins ≥ 1"):
        LossAwareTimes(0)
