"""The masked bound by mask counts equals the bound over time, boundary terms included: by enumeration and quadrature."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from bounds import counts_of, integral
from toy import ExactBlocks, Random, Toy
from unnoise import AnyOrder, Elbo, Linear, LogLinear, Masked, PerToken, Uniform
from unnoise.denoiser import Denoiser
from unnoise.families.any_order import MaskCounts, binomial
from unnoise.families.block import Blocks
from unnoise.families.block_objective import BlockElbo
from unnoise.objective import CampbellElbo, Hybrid
from unnoise.objective.losses import noise_end, random_part
from unnoise.schedule import Cosine, Geometric, Offset, Polynomial

TOY = Toy(3, 3, seed=1)
SCHEDULES = {
    "linear": Linear(),
    "log-linear": LogLinear(1e-3),
    "log-linear, much signal": LogLinear(0.2),
    "cosine": Cosine(),
    "polynomial": Polynomial(2.0),
    "offset": Offset(Linear(), 0.05),
    "geometric": Geometric(0.05, 3.0),
}


pytestmark = pytest.mark.usefixtures("double")


@torch.no_grad()
def enumerated(counts: MaskCounts, denoiser: Denoiser) -> Tensor:
    """Σ_k w_k times the mean over all sets of k masked positions, for every text: [N]."""
    total = torch.zeros(len(TOY.x))
    for k in range(1, TOY.length + 1):
        sets = list(itertools.combinations(range(TOY.length), k))
        for places in sets:
            hidden = torch.zeros_like(TOY.x, dtype=torch.bool)
            hidden[:, list(places)] = True
            nats = counts.cross_entropy(denoiser, TOY.x, hidden, torch.full((len(TOY.x),), 0.5))
            total += float(counts.weights(TOY.length)[k]) / len(sets) * nats
    return total


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("start", [0.0, 0.2])
def test_the_sum_over_counts_is_the_bound_over_time(name: str, start: float) -> None:
    """For every schedule: α(0) < 1, α(1) > 0 and a late start included."""
    process = Masked(3, SCHEDULES[name])
    bound, denoiser = Elbo(process, start=start), Random(TOY, process, time=0.0)
    by_counts = float((TOY.p * enumerated(counts_of(bound), denoiser)).sum())
    assert by_counts == pytest.approx(integral(TOY, process, bound, denoiser, 80), abs=1e-9 if start else 1e-6)


def test_weights_of_the_any_order_model() -> None:
    counts = counts_of(AnyOrder(Masked(3, LogLinear(0.2))))
    assert counts.weights(5).tolist() == pytest.approx([0, 1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert counts_of(Elbo(Masked(3, Linear()))).weights(5).tolist() == pytest.approx(counts.weights(5).tolist())
    many = counts_of(Elbo(Masked(3, LogLinear(1e-3)))).weights(1024)
    assert float((many * torch.arange(1025)).sum()) == pytest.approx(1024, rel=1e-9)  # a constant cost of 1 a token


def test_binomial_probabilities() -> None:
    expected = [math.comb(6, k) * 0.3**k * 0.7 ** (6 - k) for k in range(7)]
    assert binomial(6, 0.3, 0.7).tolist() == pytest.approx(expected, rel=1e-12)
    assert binomial(6, 1.0, 0.0).tolist() == [0, 0, 0, 0, 0, 0, 1] and binomial(6, 0.0, 1.0).tolist() == [1, 0, 0, 0, 0, 0, 0]


@torch.no_grad()
@pytest.mark.parametrize("name", ["log-linear, much signal", "offset"])
def test_all_choices_add_up_to_the_bound(name: str) -> None:
    process = Masked(3, SCHEDULES[name])
    counts, denoiser = counts_of(Elbo(process)), Random(TOY, process, time=0.0)
    total = sum(counts.choice(denoiser, TOY.x, torch.full((len(TOY.x),), number)) for number in range(1, 2**TOY.length))
    assert isinstance(total, Tensor) and torch.allclose(total, enumerated(counts, denoiser), atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("time_free", [True, False])
@pytest.mark.parametrize("name", ["log-linear, much signal", "offset", "linear"])
def test_the_mean_of_a_draw_is_the_bound(name: str, time_free: bool) -> None:
    """Also where the denoiser depends on t, which is then that of the last mask."""
    process = Masked(3, SCHEDULES[name])
    bound = Elbo(process)
    counts, denoiser = counts_of(bound, time_free), Random(TOY, process, time=0.0 if time_free else 2.0)
    x = TOY.x[5:6].expand(40_000, -1)
    free = torch.ones_like(x, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    v = (torch.arange(len(x), dtype=torch.float64) + 0.5) / len(x)
    draws = counts.draw(denoiser, x, free, v, generator) + counts.fixed(denoiser, x, free)
    times = random_part(bound, denoiser, x, free, v, generator) + noise_end(bound, denoiser, x, free)
    error = math.hypot(float(draws.std()), float(times.std())) / 200
    assert float(draws.mean()) == pytest.approx(float(times.mean()), abs=4 * error)
    if time_free:
        assert float(draws.mean()) == pytest.approx(float(enumerated(counts, denoiser)[5]), abs=4 * float(draws.std()) / 200)


@torch.no_grad()
def test_given_positions_stay_and_are_not_paid_for() -> None:
    """One free token costs −log μ of it, whatever the schedule: its only mask is certain."""
    for schedule in (LogLinear(0.2), Offset(Linear(), 0.05), Linear()):
        process = Masked(3, schedule)
        denoiser = Random(TOY, process, time=0.0)
        free = torch.tensor([False, True, False]).expand(TOY.x.shape)
        v = torch.full((len(TOY.x),), 0.7)
        found = counts_of(Elbo(process)).draw(denoiser, TOY.x, free, v, torch.Generator().manual_seed(0))
        log_p = denoiser(TOY.x.masked_fill(free, 3), torch.ones(len(TOY.x))).values[:, 1]
        assert torch.allclose(found, -log_p.gather(1, TOY.x[:, 1:2])[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("block", [1, 2])
def test_all_choices_of_masks_in_blocks_add_up_to_the_bound(block: int) -> None:
    """Three tokens in blocks of two: the last block has one."""
    process = Blocks(3, block)
    bound, denoiser = BlockElbo(process), ExactBlocks(TOY, 0.7)
    total = torch.zeros(len(TOY.x))
    for number in range(1, 2**block):
        total += bound.choice(denoiser, TOY.x, torch.full((len(TOY.x),), number))
    expected = torch.zeros(len(TOY.x))
    for first in range(0, TOY.length, block):
        places = range(first, min(first + block, TOY.length))
        for k in range(1, len(places) + 1):
            for chosen in itertools.combinations(places, k):
                hidden = torch.zeros_like(TOY.x, dtype=torch.bool)
                hidden[:, list(chosen)] = True
                share = torch.full(TOY.x.shape, k / len(places))
                nats = bound.at(denoiser, TOY.x, hidden, share, torch.ones(TOY.x.shape))
                expected += nats / k / math.comb(len(places), k)
    assert torch.allclose(total, expected, atol=1e-12)


def test_other_objectives_have_none() -> None:
    masked = Masked(3, Linear())
    none = [
        Elbo(Uniform(3, Linear())),
        Elbo(Masked(3, PerToken(3)), start=1e-3),
        Elbo(masked, steps=10),
        Elbo(Masked(3, Offset(Linear(), 0.05)), network_free=True),
        Hybrid(masked, steps=10),
        CampbellElbo(masked),
    ]
    assert [MaskCounts.of(bound, True) for bound in none] == [None] * len(none)
    with pytest.raises(ValueError, match="need a Masked process with one schedule"):
        MaskCounts(Elbo(Uniform(3, Linear())), True)
