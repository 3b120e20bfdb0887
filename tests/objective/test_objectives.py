"""The other objectives, and the gradient through a learned schedule."""

import pytest
import torch

from cases import build
from toy import Exact, Perturbed, Random, Toy, expected, quadrature
from unnoise import (
    ConcreteScore,
    CrossEntropy,
    Elbo,
    Hybrid,
    LeaveOneOut,
    Linear,
    Masked,
    Model,
    Process,
    ScoreEntropy,
    Uniform,
)
from unnoise.objective import DenoisingObjective
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

TOY = Toy(3, 2, seed=0)


pytestmark = pytest.mark.usefixtures("double")


def at(objective: DenoisingObjective, process: Process, denoiser, t: float) -> float:
    return float(expected(TOY, process, t, lambda x, x_t, at: objective.at(denoiser, x, x_t, at)).detach())


def test_the_hybrid_is_a_step_plus_the_cross_entropy_of_the_raw_mean_everywhere() -> None:
    """T·KL + λT·CE on the scale of the bound, as D3PM's own code has it; at unmasked positions too."""
    for process in (Masked(3, Linear()), Uniform(3, Linear()), Uniform(3, Linear(), reverse="plug-in")):
        denoiser = Random(TOY, process)
        x = TOY.x
        for x_t in (process.corrupt(x, torch.full((len(x),), 0.4), torch.Generator().manual_seed(1)), x):
            t = torch.full((len(x),), 0.4)
            raw = denoiser(x_t, t).log_probs.gather(-1, x[..., None])[..., 0]
            for steps in (None, 10):
                both = Hybrid(process, steps, weight=0.1).at(denoiser, x, x_t, t)
                assert torch.allclose(both, Elbo(process, steps).at(denoiser, x, x_t, t) - 0.1 * raw.sum(1), atol=1e-12)
        times, weight = Hybrid(process, 10).times(50, x.device)
        assert (weight == 10).all() and set((times * 10).round().tolist()) == set(range(1, 11))
    with pytest.raises(ValueError, match="the hybrid loss needs a MeanPrediction"):
        process = Uniform(3, Linear())
        Hybrid(process, 10)(Random(TOY, process, "score"), TOY.x)


def test_the_masked_bound_is_weighted_cross_entropy() -> None:
    process = Masked(3, Linear())
    denoiser = Random(TOY, process)
    for t in (0.1, 0.7):
        cross = at(CrossEntropy(process), process, denoiser, t)
        assert abs(at(Elbo(process), process, denoiser, t) - cross / t) < 1e-9


@pytest.mark.parametrize("name", ["masked", "uniform", "banded"])
@pytest.mark.parametrize("make", [ScoreEntropy, ConcreteScore])
def test_score_losses_are_least_at_the_exact_score(name: str, make) -> None:
    """In expectation over x_0 they differ from the distance to the exact score by a constant."""
    process = build(name, "linear", 3)
    loss = make(process)
    exact = at(loss, process, Exact(TOY, process, "score"), 0.4)
    for scale in (0.1, 0.5):
        assert at(loss, process, Perturbed(TOY, process, "score", scale=scale), 0.4) > exact
    mean = at(loss, process, Exact(TOY, process, "mean"), 0.4)
    assert abs(mean - exact) < 1e-9  # a mean gives the same ratios


def test_score_entropy_with_the_diffusion_weight_is_the_bound() -> None:
    process = Uniform(3, Linear())
    denoiser = Random(TOY, process, "score")
    weight = float(process.schedule.rate(torch.tensor(0.4))) / 3
    bound, entropy = (at(kind(process), process, denoiser, 0.4) for kind in (Elbo, ScoreEntropy))
    assert abs(bound - weight * entropy) < 1e-9


def test_concrete_score_matching_by_hand() -> None:
    """½ Σ_{y≠x_t} (s_y − r_y)² at one position."""
    process = Uniform(3, Linear())
    x, x_t, t = torch.tensor([[0]]), torch.tensor([[1]]), torch.tensor([0.4])
    from unnoise import ScorePrediction

    s = torch.tensor([2.0, 9.9, 0.5])
    own, other = 0.6 + 0.4 / 3, 0.4 / 3
    value = ConcreteScore(process).at(lambda *_: ScorePrediction(s.log()[None, None]), x, x_t, t)
    assert abs(float(value) - 0.5 * ((2.0 - own / other) ** 2 + (0.5 - 1) ** 2)) < 1e-9


def enumerated(process: Process, elbo: Elbo, denoiser) -> torch.Tensor:
    """Compute the whole bound as a differentiable number: sums over texts, quadrature over t, and gradients through q."""
    total = torch.zeros(())
    noisy = torch.cartesian_prod(*[torch.arange(process.states)] * TOY.length)
    for u, w in zip(*quadrature(40), strict=True):
        t = elbo.start + (1 - elbo.start) * u
        total = total + (1 - elbo.start) * w * weighted(process, elbo.at, denoiser, noisy, t)
    return total + weighted(process, elbo.reconstruction, denoiser, noisy, torch.tensor(elbo.start))


def weighted(process: Process, value, denoiser, noisy: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    x = TOY.x.repeat_interleave(len(noisy), 0)
    x_t = noisy.repeat(len(TOY.x), 1)
    possible = ((x == x_t) | (x_t == process.vocab)).all(1)
    x, x_t = x[possible], x_t[possible]
    q = process.log_prob(x_t, x, t.expand(x.shape)).sum(-1).exp() * TOY.p[TOY.index(x)]
    return (q * value(denoiser, x, x_t, t.expand(len(x)))).sum()


def test_the_leave_one_out_gradient_is_that_of_the_enumerated_bound() -> None:
    process = build("masked", "per-token", 3)
    denoiser = Perturbed(TOY, process, "mean")
    frozen = Exact(TOY, build("masked", "per-token", 3), "mean")  # the prediction must not move with the schedule
    denoiser.exact = frozen
    elbo = Elbo(process, start=0.05)
    theta = process.schedule.theta
    (truth,) = torch.autograd.grad(enumerated(process, elbo, denoiser), theta)
    loss = LeaveOneOut(elbo)
    generator = torch.Generator().manual_seed(0)
    gradients, values = [], []
    for _ in range(600):
        x = TOY.x[torch.multinomial(TOY.p, 200, replacement=True, generator=generator)]
        nats = loss(denoiser, x, generator).mean()
        gradients.append(torch.autograd.grad(nats, theta)[0])
        values.append(nats.detach())
    drawn = torch.stack(gradients)
    error = drawn.std(0) / len(drawn) ** 0.5
    assert ((drawn.mean(0) - truth).abs() < 4 * error).all(), (drawn.mean(0), truth, error)
    assert (error < 0.2 * truth.abs().max()).all()
    # the pathwise gradient alone is wrong: the part through q is needed
    (path,) = torch.autograd.grad(
        torch.stack([elbo(denoiser, TOY.x[torch.multinomial(TOY.p, 200, replacement=True)]).mean() for _ in range(200)]).mean(),
        theta,
    )
    assert ((path - truth).abs() > 6 * error).any()
    value = torch.stack(values)
    exact = float(enumerated(process, elbo, denoiser).detach())
    assert abs(float(value.mean()) - exact) < 4 * float(value.std() / len(value) ** 0.5)


def test_leave_one_out_of_the_network_free_bound_reaches_the_schedule_through_the_boundary() -> None:
    process = build("masked", "per-token", 3)
    elbo = Elbo(process, start=1e-3, network_free=True)
    boundary = LeaveOneOut(elbo)(Random(TOY, process), TOY.x)
    (gradient,) = torch.autograd.grad(boundary.sum(), process.schedule.theta)
    assert (gradient != 0).all()


def test_times_are_stratified_and_integrate_to_one() -> None:
    process = Masked(3, Linear())
    for start, power in ((0.0, 1.0), (0.1, 1.0), (0.0, 2.0), (0.2, 3.0)):
        objective = Elbo(process, start=start, power=power)
        t, weight = objective.times(64, torch.device("cpu"), torch.Generator().manual_seed(0))
        assert (t >= start).all() and (t <= 1).all()
        v = ((t - start) / (1 - start)) ** (1 / power)
        assert torch.equal((v * 64 - (v * 64).min()).round().sort().values, torch.arange(64.0))  # one in each stratum
        assert abs(float(weight.mean()) - (1 - start)) < 0.1
    # a row's own time is uniform: rows are not tied to strata
    first = torch.stack(
        [CrossEntropy(process).times(4, torch.device("cpu"), torch.Generator().manual_seed(s))[0][0] for s in range(800)]
    )
    assert abs(float(first.mean()) - 0.5) < 0.05 and float(first.std()) > 0.25


def test_the_curriculum_goes_from_little_noise_to_all() -> None:
    objective = CrossEntropy(Masked(3, Linear()), initial_max_t=0.3, ramp=0.5)
    for progress, stop in ((0.0, 0.3), (0.25, 0.65), (0.5, 1.0), (1.0, 1.0)):
        objective.set_progress(progress)
        t, _ = objective.times(64, torch.device("cpu"), torch.Generator().manual_seed(0))
        assert stop - 0.05 < float(t.max()) <= stop and float(t.min()) < 0.05
    model = Model.build("mdlm", length=8, width=8, depth=1, heads=2)
    for curriculum, most in ((True, 0.3), (False, 1.0)):  # as the fast loss has it, at the start of a run
        run = TrainingRun(
            model, torch.randint(27, (400,)), TrainingOptions(steps=1000, loss="fast", curriculum=curriculum, eval_windows=2)
        )
        run.step()
        t, _ = run.objective.times(64, torch.device("cpu"), torch.Generator().manual_seed(0))
        assert most - 0.05 < float(t.max()) <= most + 0.01
    with pytest.raises(ValueError, match="curriculum"):
        CrossEntropy(Masked(3, Linear()), initial_max_t=0.0)


def test_cross_entropy_is_nats_of_a_noised_position_whatever_the_noise() -> None:
    """Uniform predictions cost L·log K at any stage of the curriculum."""
    from unnoise import MeanPrediction

    def undecided(x_t, t, where=None):
        values = MeanPrediction.from_logits(torch.zeros(*x_t.shape, 3)).log_probs
        return MeanPrediction(values if where is None else values[where])

    x = torch.zeros(64, 200, dtype=torch.long)
    for process in (Masked(3, Linear()), build("masked", "cosine", 3), Uniform(3, Linear())):
        objective = CrossEntropy(process, initial_max_t=0.3)
        for progress in (0.0, 0.4, 1.0):
            objective.set_progress(progress)
            nats = objective(undecided, x, torch.Generator().manual_seed(0)).mean() / 200
            assert abs(float(nats) - 1.0986) < 0.03


def test_the_global_generator_serves_when_none_is_given() -> None:
    process = Masked(3, Linear())
    denoiser = Random(TOY, process)
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(Elbo(process)(denoiser, TOY.x))
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], Elbo(process)(denoiser, TOY.x))


def test_parameters_of_a_learned_schedule_belong_to_the_objective() -> None:
    process = build("masked", "per-token", 3)
    assert len(list(LeaveOneOut(Elbo(process)).parameters())) == 1


def test_times_are_float64_and_reach_both_ends_in_everyday_precision() -> None:
    torch.set_default_dtype(torch.float32)
    elbo = Elbo(Masked(3, Linear()))
    drawn = torch.cat([elbo.times(512, torch.device("cpu"), torch.Generator().manual_seed(s))[0] for s in range(40)])
    assert drawn.dtype == torch.float64
    assert float(drawn.min()) < 2e-3 and float(drawn.max()) > 0.998
    assert abs(float(drawn.mean()) - 0.5) < 2e-3
    assert len(torch.unique(drawn)) == len(drawn)  # float32 would collide
    t, weight = Elbo(Masked(3, Linear()), steps=7).times(700, torch.device("cpu"), torch.Generator().manual_seed(0))
    assert torch.equal(torch.bincount((t * 7).round().long())[1:], torch.full((7,), 100)) and (weight == 7).all()


def test_the_entry_at_x_t_of_a_score_is_ignored() -> None:
    from unnoise import ScorePrediction

    for name in ("masked", "uniform", "banded", "lopsided"):
        process = build(name, "linear", 3)
        x_t = torch.tensor([0, 1, 2, 0]) if name != "masked" else torch.full((4,), 3)
        x, t = torch.tensor([0, 2, 2, 1]), torch.full((4,), 0.4)
        values = []
        for own in (0.0, 5.0, torch.inf, -torch.inf, torch.nan):
            raw = torch.randn(4, process.states, generator=torch.Generator().manual_seed(0))
            raw = raw.scatter(-1, x_t[:, None], own).requires_grad_()
            prediction = ScorePrediction(raw)
            value = process.integrand(prediction, x, x_t, t) + process.kl(prediction, x, x_t, t / 2, t)
            (gradient,) = torch.autograd.grad(value.sum(), raw)
            values.append((value.detach(), gradient))
        for value, gradient in values[1:]:
            assert torch.allclose(value, values[0][0]), name
            assert torch.allclose(gradient, values[0][1]), name


def test_a_network_in_half_precision_still_gives_a_float32_bound() -> None:
    from unnoise import MeanPrediction

    process = Masked(3, Linear())

    def half(x_t, t, where=None):
        values = torch.log_softmax(torch.ones(*x_t.shape, 3, dtype=torch.bfloat16), -1)
        return MeanPrediction(values if where is None else values[where])

    nats = Elbo(process)(half, torch.zeros(64, 512, dtype=torch.long), torch.Generator().manual_seed(0))
    assert nats.dtype == torch.float32
    assert abs(float(nats.mean()) / 512 - 1.0986) < 0.05


def test_impossible_tokens_have_gradients_too() -> None:
    """Logits of −∞, as for a padded vocabulary."""
    from unnoise import MeanPrediction

    for reverse in ("marginal", "plug-in"):
        process = Uniform(3, Linear(), reverse=reverse)
        logits = torch.tensor([[0.1, 0.2, -torch.inf]]).requires_grad_()
        x, x_t, t = torch.tensor([0]), torch.tensor([1]), torch.tensor([0.1])
        for value in (
            process.kl(MeanPrediction.from_logits(logits), x, x_t, torch.zeros(1), t),
            process.kl(MeanPrediction.from_logits(logits), x, x_t, t / 2, t),
            process.integrand(MeanPrediction.from_logits(logits), x, x_t, t),
        ):
            (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
            assert torch.isfinite(value).all() and torch.isfinite(gradient).all()


def test_an_untrained_score_network_has_a_small_bound_under_uniform_noise() -> None:
    """Scaling keeps the ratios of an untrained network bounded as t → 0."""
    process = Uniform(27, Linear())
    x = torch.arange(27).expand(200, 27).contiguous()
    from unnoise import ScorePrediction

    def undecided(x_t, t, where=None):
        return ScorePrediction(process.scaled_score(torch.zeros(*x_t.shape, 27), x_t, t[:, None].expand(x_t.shape)))

    nats = Elbo(process)(undecided, x, torch.Generator().manual_seed(0)) / 27
    assert abs(float(nats.mean()) - 3.2958) < 0.15
