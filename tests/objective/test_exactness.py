"""With the exact prediction, the bound is the entropy: by quadrature over t and enumeration over texts, no sampling."""

import itertools

import pytest
import torch

from bounds import integral
from cases import COMBINATIONS, build
from toy import Exact, Perturbed, Random, Toy, expected
from unnoise import Elbo, Linear, Masked, Process, ScorePrediction, Uniform
from unnoise.process.state import LATEST

TOYS = {"K=3 L=2": Toy(3, 2, seed=0), "K=4 L=3": Toy(4, 3, seed=1)}


pytestmark = pytest.mark.usefixtures("double")


def nodes_for(schedule: str, toy: str = "K=3 L=2") -> int:
    fewer = 20 if toy == "K=4 L=3" else 0  # which leave errors below 2e-4
    return (60 if schedule == "geometric" else 44) - fewer


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize(("process", "schedule", "kind"), COMBINATIONS)
def test_the_bound_of_the_exact_prediction_is_the_entropy(toy: str, process: str, schedule: str, kind: str) -> None:
    made = build(process, schedule, TOYS[toy].vocab)
    bound = integral(TOYS[toy], made, Elbo(made), Exact(TOYS[toy], made, kind), nodes_for(schedule, toy))
    assert abs(bound - TOYS[toy].entropy) < 1e-3, f"bound {bound:.6f}, entropy {TOYS[toy].entropy:.6f}"


@pytest.mark.parametrize(("process", "schedule", "kind"), COMBINATIONS)
def test_any_other_prediction_gives_more(process: str, schedule: str, kind: str) -> None:
    toy = TOYS["K=3 L=2"]
    made = build(process, schedule, toy.vocab)
    bound = integral(toy, made, Elbo(made), Perturbed(toy, made, kind), nodes_for(schedule))
    assert bound > toy.entropy + 1e-2


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize(
    ("process", "schedule", "kind"),
    [(p, s, k) for p, s, k in COMBINATIONS if s in ("linear", "cosine-table", "log-linear", "per-token")],
)
def test_with_steps_the_bound_lies_above_and_comes_down(toy: str, process: str, schedule: str, kind: str) -> None:
    made = build(process, schedule, TOYS[toy].vocab)
    exact = Exact(TOYS[toy], made, kind)
    bounds = [integral(TOYS[toy], made, Elbo(made, steps=steps), exact) for steps in (1, 2, 4, 8, 16, 32)]
    entropy = TOYS[toy].entropy
    assert all(bound > entropy - 1e-9 for bound in bounds)
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(bounds))
    # the excess over the entropy falls at least in proportion to 1/T
    assert bounds[-1] - entropy < 2.5 * (bounds[-2] - entropy) / 2 + 1e-4
    assert bounds[-1] - entropy < 0.3 * (bounds[0] - entropy)


@pytest.mark.parametrize("kind", ["mean", "score"])
def test_starting_late_pays_for_what_is_left_out(kind: str) -> None:
    """With reconstruction at t_1 the bound stays one; with t_1 → 0 it comes down to the entropy."""
    toy = TOYS["K=4 L=3"]
    process = Masked(toy.vocab, Linear())
    bounds = [integral(toy, process, Elbo(process, start=s), Exact(toy, process, kind)) for s in (0.3, 0.1, 0.01)]
    assert bounds[0] > bounds[1] > bounds[2] > toy.entropy - 1e-6
    assert bounds[2] - toy.entropy < 1e-3


def test_the_network_free_reconstruction_is_looser_by_little() -> None:
    toy = TOYS["K=4 L=3"]
    process = build("masked", "per-token", toy.vocab)
    assert isinstance(process, Masked)
    start = torch.full(toy.x.shape, 1e-3)
    free = float((toy.p * process.reconstruction(toy.x, start).sum(-1)).sum().detach())
    exact = Elbo(process, start=1e-3)
    denoiser = Exact(toy, process, "mean")
    asked = float(expected(toy, process, 1e-3, lambda x, x_t, t: exact.reconstruction(denoiser, x, x_t, t)))
    assert asked <= free < asked + 0.1
    free_bound = Elbo(process, start=1e-3, network_free=True)
    assert torch.allclose(free_bound.boundary(denoiser, toy.x, None), process.reconstruction(toy.x, start).sum(-1))


@pytest.mark.parametrize("schedule", ["linear", "cosine", "log-linear", "geometric"])
def test_the_score_of_a_mean_has_the_bound_of_the_mean(schedule: str) -> None:
    """Masked: s = α/(1−α)·μ turns the score loss into the mean loss, at every text and time."""
    toy = TOYS["K=4 L=3"]
    process = build("masked", schedule, toy.vocab)
    mean = Random(toy, process)
    elbo = Elbo(process)

    def score(x_t, t, where=None):
        prediction = mean(x_t, t, where)
        at = t[:, None].expand(x_t.shape)
        x_t, at = (x_t, at) if where is None else (x_t[where], at[where])
        return ScorePrediction(prediction.ratios(process, x_t, at))

    for t in (0.01, 0.3, 0.9, 0.999):
        at_t = torch.full((len(toy.x),), t)
        x_t = process.corrupt(toy.x, at_t, torch.Generator().manual_seed(0))
        a, b = elbo.at(mean, toy.x, x_t, at_t), elbo.at(score, toy.x, x_t, at_t)
        assert torch.allclose(a, b, atol=1e-6, rtol=1e-6)


def test_multinomial_and_d3pm_agree_where_they_must() -> None:
    """Plug-in with the leave-one-out mean and marginal with the full mean are one reverse step, so one bound."""
    toy = TOYS["K=4 L=3"]
    plug, marginal = Uniform(toy.vocab, Linear(), reverse="plug-in"), Uniform(toy.vocab, Linear())
    one, other = Exact(toy, plug, "leave-one-out"), Exact(toy, marginal, "mean")
    for steps in (4, 16):
        a = integral(toy, plug, Elbo(plug, steps=steps), one)
        b = integral(toy, marginal, Elbo(marginal, steps=steps), other)
        assert abs(a - b) < 1e-9
    # and on any prediction: the clean reading of a leave-one-out mean is the full mean
    x_t = toy.x
    t = torch.full(x_t.shape, 0.4)
    clean = one(x_t, t[:, 0]).clean(plug, x_t, t)
    assert torch.allclose(clean, other(x_t, t[:, 0]).values, atol=1e-9)


def test_the_hybrids_cross_entropy_is_at_odds_with_a_plugged_in_mean() -> None:
    """It is least at p(x_0 | x_t), whose own token the plug-in counts twice: the bound is far above the entropy there."""
    toy = Toy(3, 2)
    for process, steps in ((Uniform(3, Linear(), reverse="plug-in"), 50), (Masked(3, Linear()), 50)):
        entropy = float(integral(toy, process, Elbo(process, steps=steps), Exact(toy, process, "leave-one-out")))
        posterior = float(integral(toy, process, Elbo(process, steps=steps), Exact(toy, process, "mean")))
        assert (posterior > 1.2 * entropy) == isinstance(process, Uniform)


def test_many_steps_reach_the_continuous_bound_of_any_prediction() -> None:
    toy = TOYS["K=3 L=2"]
    for name, kind in (("masked", "mean"), ("uniform", "mean"), ("uniform plug-in", "leave-one-out"), ("banded", "mean")):
        process = build(name, "linear", toy.vocab)
        denoiser = Perturbed(toy, process, kind, scale=0.3)
        limit = integral(toy, process, Elbo(process), denoiser)
        gaps = [abs(integral(toy, process, Elbo(process, steps=steps), denoiser) - limit) for steps in (50, 200)]
        assert gaps[1] < 1e-2 * limit
        assert gaps[1] < 0.5 * gaps[0] + 1e-9


ESTIMATORS = [
    ("masked", "linear", "mean", {}),
    ("masked", "linear", "mean", {"power": 2.0}),
    ("masked", "log-linear", "mean", {}),
    ("masked", "geometric", "score", {"start": 0.05}),
    ("masked", "per-token", "mean", {"start": 1e-3}),
    ("masked", "cosine", "mean", {"steps": 7}),
    ("uniform", "log-linear", "mean", {}),
    ("uniform", "geometric", "score", {}),
    ("uniform plug-in", "cosine-table", "leave-one-out", {"steps": 20}),
    ("uniform plug-in", "log-linear", "leave-one-out", {"power": 1.5}),
    ("banded", "linear", "mean", {"power": 2.0}),
    ("masked", "unfinished", "mean", {}),
    ("masked", "unfinished", "score", {}),
    ("uniform", "unfinished", "score", {"start": 0.3}),
    ("masked", "linear", "mean", {"start": 0.3}),
]


@pytest.mark.parametrize(("process", "schedule", "kind", "options"), ESTIMATORS)
def test_a_draw_of_the_bound_is_unbiased(process: str, schedule: str, kind: str, options: dict) -> None:
    toy = TOYS["K=3 L=2"]
    made = build(process, schedule, toy.vocab)
    denoiser = Perturbed(toy, made, kind)
    elbo = Elbo(made, **options)
    truth = integral(toy, made, elbo, denoiser, nodes_for(schedule))
    generator = torch.Generator().manual_seed(7)
    draws = []
    for _ in range(400):  # stratification couples the rows of a batch: batch means are the independent draws
        x = toy.x[torch.multinomial(toy.p, 250, replacement=True, generator=generator)]
        draws.append(elbo(denoiser, x, generator).detach().mean())
    means = torch.stack(draws)
    error = float(means.std() / len(means) ** 0.5)
    assert abs(float(means.mean()) - truth) < 4 * error, f"{float(means.mean()):.4f} ± {error:.4f}, should be {truth:.4f}"
    assert error < 0.02 * truth


def test_no_denoiser_is_asked_at_pure_noise() -> None:
    toy = TOYS["K=3 L=2"]
    process = build("masked", "log-linear", 3)
    latest = []

    def watch(x_t, t, where=None):
        latest.append(float(t.max()))
        return Random(toy, process)(x_t, t, where)

    for elbo in (Elbo(process), Elbo(process, steps=3)):
        for seed in range(20):
            elbo(watch, toy.x, torch.Generator().manual_seed(seed))
    assert max(latest) <= LATEST < 1


def test_an_unfinished_process_pays_at_the_noise_end() -> None:
    """With α(1) = 0.1 the boundary term is large: without it the bound lies below the entropy, with it above."""
    toy = TOYS["K=3 L=2"]
    for name, kind in (("masked", "mean"), ("uniform", "mean"), ("uniform", "score"), ("lopsided", "mean")):
        process = build(name, "unfinished", toy.vocab)
        exact = Exact(toy, process, kind)
        bound = integral(toy, process, Elbo(process), exact)
        paid = float((toy.p * process.noise_kl(toy.x).sum(-1)).sum())
        if process.terminal_alpha:
            paid += process.terminal_alpha * float((toy.p * Elbo(process).masked_reconstruction(exact, toy.x)).sum())
        assert bound > toy.entropy - 1e-6
        assert bound - paid < toy.entropy - 1e-6
    uniform = build("uniform", "unfinished", 5)
    x = torch.arange(5)
    assert torch.allclose(uniform.noise_kl(x), Process.noise_kl(uniform, x), atol=1e-12)
