"""Forward processes against sums over all states: divergence at the end, rates, pure noise, weights of any sign."""

import math

import pytest
import torch
from torch import Tensor

from cases import PROCESSES, birth_death, build
from unnoise import HybridNoise, Linear, LogLinear, Markov, Masked, MeanPrediction, PerToken, Process, ScorePrediction, Uniform
from unnoise.process.markov import mutual_information_schedule

pytestmark = pytest.mark.usefixtures("double")

VOCAB = 4


def made_by(name: str) -> Process:
    return HybridNoise(VOCAB) if name == "hybrid" else build(name, "linear", VOCAB)


@pytest.mark.parametrize("name", ["uniform", "banded", "birth-death", "lopsided"])
def test_the_end_of_an_unfinished_process_costs_its_divergence_from_the_noise(name: str) -> None:
    """KL(q(x_1 | x_0) ‖ π) = Σ_y q_y log(q_y/π_y), with q the row of exp(σ̄(1)·Q)."""
    process = PROCESSES[name][0](VOCAB, LogLinear(0.1))
    x = torch.arange(VOCAB)
    q = process.transition(None, torch.ones(()))[x]
    pi = process.stationary()
    found = process.noise_kl(x)
    assert float(found.max()) > 1e-5
    assert torch.allclose(found, (q * (q / pi).log()).sum(-1), atol=1e-12)


def test_a_finished_process_ends_at_its_noise() -> None:
    for process in (Uniform(VOCAB, Linear()), birth_death(VOCAB, Linear()), HybridNoise(VOCAB)):
        assert torch.allclose(process.noise_kl(torch.arange(VOCAB)), torch.zeros(VOCAB), atol=1e-12)


@pytest.mark.parametrize("name", [*PROCESSES, "hybrid"])
@pytest.mark.parametrize("t", [0.2, 0.8])
def test_rates_into_a_state_are_the_column_of_the_rate_matrix(name: str, t: float) -> None:
    """R_t(y → x_t) for y ≠ x_t, 0 at x_t itself: also where x_t is the mask."""
    process = made_by(name)
    x_t = torch.arange(process.states)
    at = torch.full((process.states,), t)
    rate = process.rate(at[0])
    wanted = rate.T - torch.diag(rate.diag())
    assert torch.allclose(process.rates_into(x_t, at), wanted, atol=1e-12)
    assert torch.allclose(rate.sum(-1), torch.zeros(process.states), atol=1e-12)
    slope = (process.transition(None, at[0] + 1e-6) - process.transition(None, at[0] - 1e-6)) / 2e-6
    assert torch.allclose(slope, process.transition(None, at[0]) @ rate, atol=1e-6)


@pytest.mark.parametrize("name", ["masked", "uniform"])
def test_a_score_has_a_reverse_step_from_pure_noise(name: str) -> None:
    """At t = 1, where α = 0, the step of the last time before it: that of the mean whose ratios the score has."""
    process = made_by(name)
    x_t = torch.full((VOCAB,), VOCAB) if name == "masked" else torch.arange(VOCAB)
    mean = MeanPrediction.from_logits(torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0)))
    late, s, one = (torch.full((VOCAB,), time) for time in (1 - 1e-6, 0.7, 1.0))
    score = ScorePrediction(mean.ratios(process, x_t, late))
    found = score.reverse(process, x_t, s, one).exp()
    assert torch.allclose(found, mean.reverse(process, x_t, s, one).exp(), atol=1e-4)
    assert torch.allclose(score.clean(process, x_t, one).exp(), mean.clean(process, x_t, one).exp(), atol=1e-4)


def test_the_schedule_of_mutual_information_stops_at_the_share_that_it_says() -> None:
    """Two tokens that are equally likely: I = log 2 − H(½(1 + e^{−σ̄})) nats, found from the end of the schedule."""
    chain = Markov.banded(2, Linear())
    for least in (1e-5, 1e-2):
        schedule = mutual_information_schedule(chain, torch.tensor([0.5, 0.5]), steps=8, least=least)
        same = 0.5 * (1 + math.exp(-float(schedule.sigma(torch.ones(())))))
        information = math.log(2) + same * math.log(same) + (1 - same) * math.log(1 - same)
        assert information == pytest.approx(least * math.log(2), rel=1e-3)


def test_mutual_information_by_hand() -> None:
    """Σ_xy p(x, y) log[p(x, y)/(p(x) p(y))], of a lopsided chain and a lopsided prior."""
    chain = build("birth-death", "linear", 3)
    assert isinstance(chain, Markov)
    prior = torch.tensor([0.7, 0.2, 0.1])
    step = torch.linalg.matrix_exp(0.4 * chain.generator)
    wanted = 0.0
    for x in range(3):
        for y in range(3):
            joint = float(prior[x] * step[x, y])
            wanted += joint * math.log(joint / float(prior[x]) / float(prior @ step[:, y]))
    assert float(chain.mutual_information(prior, torch.tensor([0.4]))[0]) == pytest.approx(wanted, abs=1e-12)


def test_banded_rates_fall_as_a_normal_density() -> None:
    """Rates from a level to its neighbours at distance 1, 2 and 3 are as e^{−d²/(2 w²)}; none beyond four widths."""
    width = 1.3
    generator = Markov.banded(12, Linear(), width).generator
    rates = generator[0, 1:]
    distance = torch.arange(1.0, 12.0)
    wanted = torch.exp(-(distance**2) / (2 * width**2)) * (distance <= 4 * width)
    assert torch.allclose(rates / rates[0], wanted / wanted[0], atol=1e-12)
    gap = -torch.linalg.eigvalsh(generator)[-2]
    assert float(gap) == pytest.approx(1.0, abs=1e-9)


def test_neighbours_exchange_if_either_is_near_the_other() -> None:
    """Points 0, 1, 3 on a line, each with one neighbour: 3 is nearest to nobody, and still exchanges with 1."""
    generator = Markov.nearest(torch.tensor([[0.0], [1.0], [3.0]]), Linear(), neighbours=1).generator
    assert generator[1, 2] > 0 and generator[2, 1] == generator[1, 2] and generator[0, 2] == 0
    assert float(generator[0, 1] / generator[1, 2]) == pytest.approx(2.0)  # each is the other's nearest
    assert float(-torch.linalg.eigvalsh(generator)[-2]) == pytest.approx(1.0, abs=1e-9)


def test_the_active_share_of_learned_schedules_is_a_mean_over_tokens() -> None:
    schedule = PerToken(3, 1.0)
    with torch.no_grad():
        schedule.theta.copy_(torch.tensor([0.0, 1.0, 2.0]))
    w = torch.nn.functional.softplus(torch.tensor([0.0, 1.0, 2.0]))
    t = torch.tensor([0.3, 0.6])
    assert torch.allclose(Masked(3, schedule).active_share(t), (t[:, None] ** w).mean(1))


def test_what_cannot_have_become_this_token_is_infinitely_surprising() -> None:
    """SUBS: an unmasked token is carried over, so x_0 is that token or the text was impossible."""
    process = Masked(3, Linear())
    mean = MeanPrediction.from_logits(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))
    x, x_t = torch.tensor([0, 1, 2]), torch.tensor([0, 2, 3])
    found = process.cross_entropy(mean, x, x_t, torch.full((3,), 0.5))
    assert torch.equal(found[:2], torch.tensor([0.0, torch.inf])) and float(found[2]) == -float(mean.log_probs[2, 2])


def test_reveals_of_a_text_that_is_masked_in_part_begin_where_it_is() -> None:
    """From t_0 = 0.4 of the linear schedule a mask is left at t_i with probability t_i/t_0."""
    process = Masked(3, Linear())
    x = torch.full((200, 200), process.mask)
    times = [0.4, 0.3, 0.1]
    steps = process.jump_steps(x, torch.ones_like(x, dtype=torch.bool), times, torch.Generator().manual_seed(0))
    assert steps is not None
    share = torch.bincount(steps.flatten(), minlength=4) / steps.numel()
    assert torch.allclose(share, torch.tensor([0.25, 0.5, 0.25, 0.0]), atol=0.01)


def test_masks_fall_at_the_rate_of_each_token() -> None:
    """q(mask at t | token k at s) = 1 − α_k(t)/α_k(s), with a schedule for each token and without."""
    schedule = PerToken(2, 1.0)
    with torch.no_grad():
        schedule.theta.copy_(torch.tensor([0.0, 2.0]))
    w = torch.nn.functional.softplus(torch.tensor([0.0, 2.0]))
    x = torch.tensor([0, 1]).repeat(40_000, 1)
    s, t = 0.3, 0.6

    def hidden(process: Process, start: float | None) -> Tensor:
        since = None if start is None else torch.full(x.shape, start)
        found = process.noised(x, since, torch.full(x.shape, t), torch.Generator().manual_seed(0))
        return (found == 2).double().mean(0)

    learned, linear = Masked(2, schedule), Masked(2, Linear())
    assert torch.allclose(hidden(learned, None), t**w, atol=0.01)
    assert torch.allclose(hidden(learned, s), 1 - (1 - t**w) / (1 - s**w), atol=0.01)
    assert torch.allclose(hidden(linear, s), torch.full((2,), 1 - 0.4 / 0.7), atol=0.01)


@pytest.mark.parametrize("name", [*PROCESSES, "hybrid"])
def test_noise_is_linear_in_any_weights(name: str) -> None:
    """Σ_{x_0} w(x_0) q(x_t | x_0) by the matrix, also of weights that are negative or do not sum to one."""
    process = made_by(name)
    weights = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))
    t = torch.linspace(0.1, 0.9, 5)
    wanted = torch.einsum("pk,pks->ps", weights, process.transition(None, t)[:, :VOCAB])
    assert torch.allclose(process.push(weights, t), wanted, atol=1e-9)


@pytest.mark.parametrize("name", [*PROCESSES, "hybrid"])
def test_noise_that_is_not_forgotten_can_be_undone(name: str) -> None:
    """v with v·T = ratios, of a step after which the slowest mode has decayed to 10⁻³ and others to less."""
    process = made_by(name)
    s, t = torch.full((5,), 0.2), torch.full((5,), 0.9)
    if isinstance(process, Markov):  # with modes of 10⁻⁸: still above what is forgotten
        t = torch.full((5,), 0.985)
    v = torch.rand(5, process.states, generator=torch.Generator().manual_seed(0)) + 0.1
    pushed = (v[:, None] @ process.transition(s, t))[:, 0]
    undone = process.unpush(pushed, s, t)
    again = (undone[:, None] @ process.transition(s, t))[:, 0]
    assert torch.allclose(again, pushed, atol=1e-9)
    if isinstance(process, Markov):
        modes = torch.linalg.eigvals(process.transition(s, t)[0]).abs()
        assert float(modes.min()) < 1e-4
        if float(modes.min()) > 1e-8:
            assert torch.allclose(undone, v, atol=1e-3)
    else:
        assert torch.allclose(undone, v, atol=1e-7)


def test_a_state_that_cannot_become_this_one_has_no_probability() -> None:
    """Masked noise never leads from one token to another: the reverse step of any score keeps the token, to the digit."""
    process = Masked(3, Linear())
    score = ScorePrediction(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    x_t = torch.arange(3)
    found = score.reverse(process, x_t, torch.full((3,), 0.2), torch.full((3,), 0.6)).exp()
    assert torch.allclose(found, torch.eye(4)[:3], atol=1e-25)
    assert torch.allclose(score.clean(process, x_t, torch.full((3,), 0.6)).exp(), torch.eye(3), atol=1e-25)


@pytest.mark.parametrize("name", [*PROCESSES, "hybrid"])
def test_linear_ratios_of_any_real_weights(name: str) -> None:
    """s_y = 1 + Σ_{x_0} w(x_0)·[q(y|x_0)/q(x_t|x_0) − 1], of the x_0 that can have become x_t; w may be negative.

    The entry at x_t means nothing.
    """
    process = made_by(name)
    n = process.states
    weights = 2 * torch.randn(n, VOCAB, generator=torch.Generator().manual_seed(0))
    x_t, t = torch.arange(n), torch.full((n,), 0.6)
    q = process.transition(None, t[0])[:VOCAB]  # [x_0, y]
    wanted = torch.ones(n, n)
    for place in range(n):
        for x in range(VOCAB):
            if q[x, place] > 0:
                wanted[place] += weights[place, x] * (q[x] / q[x, place] - 1)
    found = process.linear_ratios(weights, x_t, t)
    assert float(wanted.min()) < -0.5
    assert torch.allclose(found.scatter(-1, x_t[:, None], 1.0), wanted, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", ["uniform plug-in", "masked banded plug-in", "lopsided plug-in", "hybrid"])
def test_a_plugged_in_mean_sees_its_own_token_by_bayes_rule(name: str) -> None:
    """p(x_0 | x_t) ∝ q(x_t | x_0)·μ(x_0), where μ is made of the other tokens alone."""
    process = made_by(name)
    n = process.states
    mean = MeanPrediction.from_logits(torch.randn(n, VOCAB, generator=torch.Generator().manual_seed(0)))
    x_t, t = torch.arange(n), torch.full((n,), 0.4)
    joint = process.transition(None, t[0])[:VOCAB].T * mean.log_probs.exp()  # [x_t, x_0]
    found = mean.clean(process, x_t, t).exp()
    assert torch.allclose(found, joint / joint.sum(-1, keepdim=True), atol=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "per-token"])
def test_the_ratio_of_the_mask_at_a_token(schedule: str) -> None:
    """p_t(mask)/p_t(k) = (1 − α_k)/α_k where token k is seen, and no other token has a ratio."""
    process = build("masked", schedule, VOCAB)
    x_t, t = torch.arange(VOCAB), torch.full((VOCAB,), 0.3)
    mean = MeanPrediction.from_logits(torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0)))
    q = process.transition(None, t[0]).detach()
    found = mean.ratios(process, x_t, t).detach().exp()
    other = torch.ones_like(found, dtype=torch.bool).scatter(1, x_t[:, None], False)
    wanted = torch.cat([torch.zeros(VOCAB, VOCAB), (q[:VOCAB, VOCAB] / q.diag()[:VOCAB])[:, None]], 1)
    assert torch.allclose(found[other], wanted[other], atol=1e-12)
