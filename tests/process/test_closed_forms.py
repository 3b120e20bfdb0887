"""Closed forms equal the dense formulas, values and gradients; and stay finite where float32 is hard pressed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cases import build
from unnoise import (
    CosineTable,
    Elbo,
    Linear,
    LogLinear,
    Masked,
    MaskedMarkov,
    MeanPrediction,
    PerToken,
    Prediction,
    Process,
    ScorePrediction,
    Uniform,
)

CASES = [
    (process, schedule)
    for process in ("masked", "uniform", "uniform plug-in", "banded", "birth-death")
    for schedule in ("linear", "polynomial", "cosine", "log-linear", "geometric", "cosine-table")
] + [("masked", "per-token"), ("masked banded", "linear"), ("masked banded", "cosine"), ("masked banded plug-in", "linear")]
TIMES = [0.02, 0.3, 0.7, 0.98]
MARKOV = ("banded", "birth-death")


def well_posed(process: str, schedule: str, t: float) -> bool:
    """Exclude early times of Markov chains: a distant token has a probability near rounding error there, and a
    prediction that believes in that token has no digits left to compare."""
    return process not in MARKOV or float(build("masked", schedule, 4).schedule.noise(torch.tensor(t))) > 0.05


pytestmark = pytest.mark.usefixtures("double")


def positions(process: Process, t: float, n: int = 60) -> tuple[Tensor, Tensor, Tensor]:
    """x_0, x_t and t at n positions; every kind of pair occurs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(process.vocab, (1, n), generator=generator)
    x_t = process.corrupt(x, torch.tensor([t]), generator)
    if isinstance(process, Masked | MaskedMarkov):
        x_t[:, : n // 3] = process.mask
    return x[0], x_t[0], torch.full((n,), t)


def both(process: Process, prediction: Callable[[Tensor], Prediction], width: int, value, n: int = 60) -> None:
    """value(process, prediction) by the closed form and by the dense one: same value, same gradient."""
    raw = torch.randn(n, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for by in (process, process.dense()):
        leaf = raw.clone().requires_grad_()
        out = value(by, prediction(leaf))
        (gradient,) = torch.autograd.grad(out.nan_to_num(neginf=0.0).sum(), leaf)
        results.append((out.detach(), gradient))
    (closed, closed_grad), (dense, dense_grad) = results
    assert torch.allclose(closed, dense, atol=1e-6, rtol=1e-6)
    assert torch.isfinite(closed_grad).all()
    assert torch.allclose(closed_grad, dense_grad, atol=1e-6, rtol=1e-6)


def kinds(process: Process) -> list[tuple[Callable[[Tensor], Prediction], int]]:
    mean = (MeanPrediction.from_logits, process.vocab)
    return [mean] if process.reverse == "plug-in" else [mean, (ScorePrediction, process.states)]


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize(("process", "schedule"), CASES)
def test_the_integrand(process: str, schedule: str, t: float) -> None:
    if not well_posed(process, schedule, t):
        pytest.skip("rounding error decides")
    made = build(process, schedule, 4)
    x, x_t, at = positions(made, t)
    for prediction, width in kinds(made):
        both(made, prediction, width, lambda by, p: by.integrand(p, x, x_t, at))


@pytest.mark.parametrize(("process", "schedule"), CASES)
def test_the_step_kl(process: str, schedule: str) -> None:
    made = build(process, schedule, 4)
    for s, t in ((0.0, 0.1), (0.3, 0.4), (0.85, 0.9)):
        if not well_posed(process, schedule, t):
            continue
        x, x_t, at = positions(made, t)
        prediction, width = kinds(made)[0]
        both(made, prediction, width, lambda by, p: by.kl(p, x, x_t, torch.full_like(at, s), at))  # noqa: B023


@pytest.mark.parametrize(("process", "schedule"), CASES)
def test_ratios_reverse_steps_and_clean_distributions(process: str, schedule: str) -> None:
    made = build(process, schedule, 4)
    x, x_t, at = positions(made, 0.6)
    s = torch.full_like(at, 0.35)
    active = made.active(x_t)
    for make, width in kinds(made):
        prediction = make(torch.randn(len(x), width, generator=torch.Generator().manual_seed(1)))
        dense = made.dense()
        for closed, oracle in (
            (prediction.reverse(made, x_t, s, at), prediction.reverse(dense, x_t, s, at)),
            (prediction.clean(made, x_t, at), prediction.clean(dense, x_t, at)),
        ):
            assert torch.allclose(closed.exp(), oracle.exp(), atol=1e-9)
        here, there = (
            prediction.ratios(by, x_t, at).scatter(-1, x_t[:, None], 0.0)[active].exp() for by in (made, dense)
        )  # the entry at x_t means nothing
        assert torch.allclose(here, there, atol=1e-8)
    assert torch.allclose(made.posterior(x, x_t, s, at), made.dense().posterior(x, x_t, s, at), atol=1e-12)
    assert torch.allclose(made.log_prob(x_t, x, at), made.dense().log_prob(x_t, x, at), atol=1e-12)
    assert torch.allclose(made.true_ratios(x, x_t, at), made.dense().true_ratios(x, x_t, at), atol=1e-9)


@pytest.mark.parametrize("process", ["masked", "uniform", "banded", "nearest", "birth-death", "lopsided", "masked banded"])
def test_transitions_are_the_flow_of_the_rates(process: str) -> None:
    """T(s,u)·T(u,t) = T(s,t), rows sum to one, and dT/dt = T·R."""
    made = build(process, "cosine", 4)
    s, u, t = torch.tensor(0.2), torch.tensor(0.5), torch.tensor(0.7)
    assert torch.allclose(made.transition(s, u) @ made.transition(u, t), made.transition(s, t), atol=1e-12)
    assert torch.allclose(made.transition(s, t).sum(-1), torch.ones(made.states), atol=1e-12)
    step = 1e-5
    slope = (made.transition(s, t + step) - made.transition(s, t - step)) / (2 * step)
    assert torch.allclose(slope, made.transition(s, t) @ made.rate(t), atol=1e-8)
    assert torch.allclose(made.stationary() @ made.transition(s, t), made.stationary(), atol=1e-12)
    end = made.transition(None, torch.tensor(1.0))[: made.vocab]
    assert torch.allclose(end, made.stationary().expand_as(end), atol=1e-12)


def test_tweedie_of_a_means_ratios_is_the_ancestral_step() -> None:
    for name in ("masked", "uniform", "uniform plug-in", "banded", "birth-death"):
        made = build(name, "linear", 4)
        _, x_t, at = positions(made, 0.6)
        s = torch.full_like(at, 0.35)
        mean = MeanPrediction.from_logits(torch.randn(len(x_t), 4, generator=torch.Generator().manual_seed(1)))
        tweedie = made.score_reverse(mean.ratios(made, x_t, at), x_t, s, at)
        assert torch.allclose(tweedie.exp(), mean.reverse(made, x_t, s, at).exp(), atol=1e-9), name


EXTREMES = {
    "masked mean": lambda vocab: (Masked(vocab, LogLinear(1e-3)), MeanPrediction.from_logits),
    "masked score": lambda vocab: (Masked(vocab, LogLinear(1e-3)), ScorePrediction),
    "masked per token": lambda vocab: (build("masked", "per-token", vocab), MeanPrediction.from_logits),
    "uniform marginal": lambda vocab: (Uniform(vocab, Linear()), MeanPrediction.from_logits),
    "uniform plug-in": lambda vocab: (Uniform(vocab, Linear(), reverse="plug-in"), MeanPrediction.from_logits),
    "uniform score": lambda vocab: (Uniform(vocab, Linear()), ScorePrediction),
}


@pytest.mark.parametrize("vocab", [4, 50_257])
@pytest.mark.parametrize("t", [1e-6, 1 - 1e-6])
@pytest.mark.parametrize("name", EXTREMES)
def test_float32_stays_finite_at_the_ends(name: str, t: float, vocab: int) -> None:
    torch.set_default_dtype(torch.float32)
    process, make = EXTREMES[name](vocab)
    n = 6
    x = torch.arange(n) % vocab
    at = torch.full((n,), t, dtype=torch.float64)
    x_t = torch.full_like(x, process.mask) if isinstance(process, Masked) else torch.where(x % 2 == 0, x, (x + 1) % vocab)
    width = process.states if make is ScorePrediction else vocab
    for scale in (1.0, 30.0):  # an undecided network and a very sure one
        raw = (scale * torch.randn(n, width, generator=torch.Generator().manual_seed(1))).requires_grad_()
        if make is ScorePrediction and scale > 1:
            continue  # a score of e^100 is wrong by any measure
        for value in (
            process.integrand(make(raw), x, x_t, at),
            process.kl(make(raw), x, x_t, (at - 1e-3).clamp_min(0), at),
        ):
            assert value.dtype == torch.float32
            assert torch.isfinite(value).all()
            (gradient,) = torch.autograd.grad(value.sum(), raw, retain_graph=True)
            assert torch.isfinite(gradient).all()


def test_float32_agrees_with_float64() -> None:
    """Near the ends too, where α or 1 − α has few digits if written carelessly."""
    for name, case in EXTREMES.items():
        process, make = case(50)
        x = torch.arange(20) % 50
        x_t = torch.full_like(x, process.mask) if isinstance(process, Masked) else torch.where(x % 2 == 0, x, x + 1)
        raw = torch.randn(20, process.states if make is ScorePrediction else 50, generator=torch.Generator().manual_seed(1))
        for t in (1e-5, 1e-3, 0.5, 0.999, 0.99999):
            at = torch.full((20,), t)
            exact = process.integrand(make(raw), x, x_t, at)
            rough = process.integrand(make(raw.float()), x, x_t, at)
            assert torch.allclose(rough.double(), exact, rtol=2e-3, atol=1e-4), (name, t)


def test_the_head_runs_at_masks_only() -> None:
    process = Masked(7, Linear())
    x = torch.randint(7, (8, 32), generator=torch.Generator().manual_seed(0))
    seen = []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        where = torch.ones_like(x_t, dtype=torch.bool) if where is None else where
        seen.append((int(where.sum()), int((x_t == 7).sum())))
        return MeanPrediction.from_logits(torch.zeros(int(where.sum()), 7))

    nats = Elbo(process)(denoiser, x, torch.Generator().manual_seed(0))
    assert nats.shape == (8,)
    assert seen[0][0] == seen[0][1] < 8 * 32


def test_no_loss_needs_eight_tensors_of_the_outputs_size() -> None:
    """Peak memory at K = 50,257 by the benchmark, in tensors of [B, L, K]: nothing of size [·, K, K] is ever made."""
    import runpy
    from pathlib import Path

    torch.set_default_dtype(torch.float32)
    peaks = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "memory.py"))["measure"]()
    assert len(peaks) == 6
    for name, peak in peaks.items():
        assert 0.5 < peak < 8, (name, peak)


def test_a_scaled_score_of_uniform_noise_is_free_and_a_plug_in_mean_is_one_of_them() -> None:
    process = Uniform(4, Linear(), reverse="plug-in")
    generator = torch.Generator().manual_seed(0)
    log_mu = torch.log_softmax(torch.randn(50, 4, generator=generator), -1)
    x_t, t = torch.randint(4, (50,), generator=generator), torch.rand(50, generator=generator) * 0.98 + 0.01
    raw = log_mu + torch.log(torch.tensor(4.0))
    scaled, wanted = process.scaled_score(raw, x_t, t), MeanPrediction(log_mu).ratios(process, x_t, t)
    other = torch.nn.functional.one_hot(x_t, 4) == 0
    assert torch.allclose(scaled[other], wanted[other], atol=1e-10)
    assert not torch.allclose(process.scaled_score(raw + 1, x_t, t)[other], wanted[other], atol=1e-2)  # not normalized


def test_sedds_scaling_of_masked_noise_is_that_of_a_mean_divided_by_the_vocabulary() -> None:
    """log s_y = raw_y − log K + log α/(1−α): raw = 0 is the exact score of tokens that are all equally likely."""
    process = Masked(5, Linear())
    t = torch.tensor([0.2, 0.5, 0.9])
    x_t = torch.full((3,), process.mask)
    log_s = process.scaled_score(torch.zeros(3, 5), x_t, t)
    assert torch.allclose(log_s[:, :5], ((1 - t) / t / 5).log()[:, None].expand(3, 5), atol=1e-12)
    assert torch.allclose(log_s[:, :5].exp().sum(-1), (1 - t) / t, atol=1e-12)  # Σ_y s_y = α/(1−α) at the mask


def test_genmd4s_reconstruction_without_a_network() -> None:
    """−t^{w_x}·log softmax(w log t)_x, of which t_1 is the smallest time."""
    schedule = PerToken(3, 2.0)
    with torch.no_grad():
        schedule.theta.copy_(torch.tensor([0.3, 1.2, 2.5]))
    w = torch.nn.functional.softplus(schedule.theta.detach())
    x, t = torch.tensor([0, 1, 2, 2]), torch.tensor([0.1, 0.1, 0.1, 0.6])
    log_softmax = torch.log_softmax(w * t.log()[:, None], -1)
    wanted = [-float(t[i] ** w[k] * log_softmax[i, k]) for i, k in enumerate(x.tolist())]
    found = Masked(3, schedule).reconstruction(x, t)
    assert torch.allclose(found, torch.tensor(wanted, dtype=found.dtype), atol=1e-12)
    alike = Masked(3, Linear()).reconstruction(x, t)
    assert torch.allclose(alike, t * torch.log(torch.tensor(3.0)), atol=1e-12)


@pytest.mark.parametrize("reverse", ["marginal", "plug-in"])
def test_a_bound_of_a_thousand_steps_has_its_digits_in_float32_at_a_vocabulary_of_50257(reverse) -> None:
    """One step costs about 1/T, which a softmax over the vocabulary in float32 knows to 10⁻⁵ only."""
    vocab, n, steps = 50_257, 4, 1000
    process = Uniform(vocab, CosineTable(steps), reverse)
    x = torch.arange(n)
    x_t = torch.where(x % 2 == 0, x, x + 7)
    raw = 2 * torch.randn(n, vocab, generator=torch.Generator().manual_seed(0))
    raw[:, :n] += 8
    log_mu = MeanPrediction.from_logits(raw)
    visited = range(1, steps + 1, 111)
    gap = torch.zeros(n)
    for i in visited:
        s, t = (torch.full((n,), step / steps) for step in (i - 1, i))
        q, exact = process.posterior(x, x_t, s, t), process.mean_reverse(log_mu.log_probs, x_t, s, t)
        truth = torch.where(q > 0, q * (q.clamp_min(1e-300).log() - exact), 0.0).sum(-1)
        rough = process.kl(MeanPrediction.from_logits(raw.float()), x, x_t, s, t)
        assert rough.dtype == torch.float32
        gap += (rough - truth) * steps / len(visited)
    assert float(gap.abs().max()) < 1e-3  # nats of a position, all steps together
