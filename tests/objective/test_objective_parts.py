"""Single parts of objectives against plain numbers: times, boundaries, observations, weights."""

import math

import pytest
import torch
from torch import Tensor

from unnoise import ConcreteScore, CrossEntropy, Elbo, Linear, LogLinear, Masked, MeanPrediction, Process, Uniform
from unnoise.objective.times import LossAwareTimes
from unnoise.prediction import RatioPrediction

pytestmark = pytest.mark.usefixtures("double")

CPU = torch.device("cpu")


def undecided(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
    values = torch.full((*x_t.shape, 3), -math.log(3))
    return MeanPrediction(values if where is None else values[where])


@pytest.mark.parametrize("steps", [4, 7])
def test_the_loss_of_a_step_is_observed_in_its_part_of_time(steps: int) -> None:
    """As many parts as steps, and one row in each step: every part is seen once."""
    elbo = Elbo(Masked(3, Linear()), steps=steps, times=LossAwareTimes(steps))
    elbo(undecided, torch.zeros(steps, 5, dtype=torch.long), torch.Generator().manual_seed(0))
    elbo.after_step()
    assert elbo.time_sampler.seen.tolist() == [1.0] * steps


def test_a_part_of_time_begins_with_the_first_loss_that_is_seen() -> None:
    times = LossAwareTimes(2, memory=0.9)
    for value in (3.0, 5.0):
        times.observe(torch.tensor([0.2]), torch.tensor([value]))
        times.learn()
    assert times.squares.tolist() == pytest.approx([0.9 * 9 + 0.1 * 25, 1.0])


@pytest.mark.parametrize("start", [0.0, 0.1, 0.25])
def test_a_curriculum_reaches_the_time_that_it_says(start: float) -> None:
    """Times are spread evenly over [start, max_t]."""
    objective = CrossEntropy(Masked(3, Linear()), start=start, initial_max_t=0.5, ramp=0.8)
    for progress, most in ((0.0, 0.5), (0.4, 0.75), (0.8, 1.0), (1.0, 1.0)):
        objective.set_progress(progress)
        t, _ = objective.times(1000, CPU, torch.Generator().manual_seed(0))
        assert float(t.min()) == pytest.approx(start, abs=2e-3) and float(t.max()) == pytest.approx(most, abs=2e-3)
        assert float(t.mean()) == pytest.approx((start + most) / 2, abs=2e-3)


@pytest.mark.parametrize("steps", [3, 49, 1000, 4000])
def test_a_step_begins_where_the_one_before_ends(steps: int) -> None:
    """From i/T to (i − 1)/T for every i, also where i/T·T is not i in floating point."""

    class Recorder(Masked):
        def kl(self, prediction, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
            self.earlier = s
            return torch.zeros_like(s)

    process = Recorder(3, Linear())
    t = torch.arange(1, steps + 1, dtype=torch.float64) / steps
    x = torch.zeros(steps, dtype=torch.long)
    Elbo(process, steps=steps).term(MeanPrediction(torch.zeros(steps, 3)), x, x, t)
    assert torch.equal(process.earlier, torch.arange(steps, dtype=torch.float64) / steps)


def test_the_residual_signal_is_paid_at_the_last_time() -> None:
    """α(1)·L·log K nats of a network that is undecided, which is asked about all masks at t ≈ 1."""
    times = []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        assert (x_t == 3).all()
        times.append(float(t.min()))
        return undecided(x_t, t, where)

    elbo = Elbo(Masked(3, LogLinear(0.1)))
    with torch.no_grad():
        nats = elbo.prior_loss(denoiser, torch.zeros(2, 5, dtype=torch.long), torch.Generator().manual_seed(0))
    assert nats.tolist() == pytest.approx([0.1 * 5 * math.log(3)] * 2) and times[0] > 0.999


def test_the_network_free_reconstruction_needs_no_network() -> None:
    """(1 − α(start))·L·log K, by no call at all."""
    elbo = Elbo(Masked(3, Linear()), start=0.05, network_free=True)
    x = torch.zeros(2, 5, dtype=torch.long)
    found = elbo.boundary(None, x, torch.Generator().manual_seed(0))  # pyright: ignore[reportArgumentType]
    assert found.tolist() == pytest.approx([0.05 * 5 * math.log(3)] * 2)


def test_ratios_cost_half_the_square_of_their_error() -> None:
    """½ Σ_{y≠x_t} (s_y − r_y)², and with the weight (1 − α)² times that."""
    process, t = Uniform(3, Linear()), 0.4
    own, other = 0.6 + 0.4 / 3, 0.4 / 3
    s = torch.tensor([[2.0, 9.9, -0.5]])
    x, x_t = torch.tensor([0]), torch.tensor([1])
    wanted = 0.5 * ((2.0 - own / other) ** 2 + (-0.5 - 1) ** 2)
    for weighted, factor in ((False, 1.0), (True, t**2)):
        loss = ConcreteScore(process, weighted=weighted)
        assert float(loss.term(RatioPrediction(s), x, x_t, torch.tensor([t]))) == pytest.approx(factor * wanted)


def test_the_squared_loss_begins_where_ratios_are_finite() -> None:
    """By default times lie in [0.01, 1]: r_y grows as 1/t."""
    t, weight = ConcreteScore(Uniform(3, Linear())).times(2000, CPU, torch.Generator().manual_seed(0))
    assert 0.01 <= float(t.min()) < 0.0106 and float(weight.mean()) == pytest.approx(0.99)


def test_negative_ratios_are_raised_to_a_small_positive_number() -> None:
    process: Process = Uniform(3, Linear())
    prediction = RatioPrediction(torch.tensor([[-5.0, 1.0, 0.5]]))
    x_t, t = torch.tensor([1]), torch.tensor([0.4])
    assert prediction.ratios(process, x_t, t).exp().tolist()[0] == pytest.approx([RatioPrediction.FLOOR, 1.0, 0.5])
    assert prediction.plain_ratios(process, x_t, t).tolist() == [[-5.0, 1.0, 0.5]]
