"""Hybrid noise (GIDD): the flow of its rates, the dense oracle, the bound by enumeration, and masks alone at p_u = 0."""

import itertools

import pytest
import torch
from test_closed_forms import both, positions
from torch import Tensor

from sampler_laws import exact_law
from toy import Exact, Perturbed, Random, Toy, chi_square, expected, quadrature, total_variation
from unnoise import (
    Ancestral,
    Elbo,
    HybridNoise,
    HybridSchedule,
    Linear,
    Masked,
    MeanPrediction,
    ScorePrediction,
    TweedieLeaping,
    sample,
)
from unnoise.objective.times import SineTimes

TOYS = {"K=3 L=2": Toy(3, 2, seed=0), "K=4 L=3": Toy(4, 3, seed=1)}
SHARES = [0.0, 0.2, 0.7]

pytestmark = pytest.mark.usefixtures("double")


@torch.no_grad()
def integral(toy: Toy, process: HybridNoise, elbo: Elbo, denoiser, nodes: int = 16) -> float:
    """E_{p_data} of the bound: by quadrature after t = sin⁶(πv/2), and enumeration."""
    v, weight = quadrature(nodes, power=1.0)
    t, slope = SineTimes(6).warp(v, 0.0)
    total = sum(
        float(w * expected(toy, process, float(at), lambda x, x_t, t: elbo.at(denoiser, x, x_t, t)))
        for at, w in zip(t, weight * slope, strict=True)
    )
    return total + float((toy.p * process.noise_kl(toy.x).sum(-1)).sum())


@pytest.mark.parametrize(("toy", "share"), [*(("K=3 L=2", share) for share in SHARES), ("K=4 L=3", 0.4)])
@pytest.mark.parametrize(("kind", "reverse"), [("leave-one-out", "plug-in"), ("mean", "marginal"), ("score", "marginal")])
def test_the_bound_of_the_exact_prediction_is_the_entropy(toy: str, share: float, kind: str, reverse) -> None:
    process = HybridNoise(TOYS[toy].vocab, share, reverse)
    bound = integral(TOYS[toy], process, Elbo(process), Exact(TOYS[toy], process, kind))
    assert abs(bound - TOYS[toy].entropy) < 1e-5, f"bound {bound:.6f}, entropy {TOYS[toy].entropy:.6f}"


def test_any_other_prediction_gives_more_and_steps_come_down_to_it() -> None:
    toy = TOYS["K=3 L=2"]
    process = HybridNoise(3, 0.3)
    assert integral(toy, process, Elbo(process), Perturbed(toy, process, "leave-one-out")) > toy.entropy + 1e-2
    exact, bounds = Exact(toy, process, "leave-one-out"), []
    for steps in (1, 4, 16, 64):
        elbo = Elbo(process, steps=steps)
        with torch.no_grad():
            times = [i / steps for i in range(1, steps + 1)]
            found = [expected(toy, process, t, lambda x, x_t, t: elbo.at(exact, x, x_t, t)) for t in times]  # noqa: B023
        bounds.append(float(sum(found)))
    assert bounds[-1] > toy.entropy - 1e-9 and all(b <= a + 1e-9 for a, b in itertools.pairwise(bounds))
    assert bounds[-1] - toy.entropy < 0.1 * (bounds[0] - toy.entropy)


@pytest.mark.parametrize("share", SHARES)
def test_transitions_are_the_flow_of_the_rates(share: float) -> None:
    """T(s,u)·T(u,t) = T(s,t), rows sum to one, dT/dt = T·R, and at t = 1 all is masks."""
    process = HybridNoise(4, share)
    s, u, t = torch.tensor(0.2), torch.tensor(0.5), torch.tensor(0.7)
    assert torch.allclose(process.transition(s, u) @ process.transition(u, t), process.transition(s, t), atol=1e-13)
    assert torch.allclose(process.transition(None, s) @ process.transition(s, t), process.transition(None, t), atol=1e-13)
    assert torch.allclose(process.transition(s, t).sum(-1), torch.ones(5), atol=1e-13)
    assert bool((process.transition(s, s + 1e-12) >= 0).all()) and bool((process.rate(t).fill_diagonal_(0) >= 0).all())
    step = 1e-5
    slope = (process.transition(s, t + step) - process.transition(s, t - step)) / (2 * step)
    assert torch.allclose(slope, process.transition(s, t) @ process.rate(t), atol=1e-8)
    assert torch.allclose(process.transition(None, torch.tensor(1.0)), process.stationary().expand(5, 5), atol=1e-15)
    assert torch.equal(process.transition(None, torch.tensor(0.0)), torch.eye(5))
    half = process.transition(None, torch.tensor(0.5))[0]
    assert float(4 * half[1]) == pytest.approx(share) and float(half[4]) == pytest.approx(float(half[0] - half[1]))


@pytest.mark.parametrize("share", SHARES)
def test_the_schedule(share: float) -> None:
    schedule, t = HybridSchedule(share), torch.linspace(1e-3, 0.999, 300)
    assert torch.allclose(schedule.alpha(t) + schedule.noise(t), torch.ones(300), atol=1e-15)
    assert torch.allclose(schedule.inverse(schedule.alpha(t)), t, atol=1e-12)
    ends = torch.tensor([0.0, 1.0])
    assert torch.equal(schedule.alpha(ends), 1 - ends) and torch.equal(schedule.inverse(1 - ends), ends)
    assert torch.allclose(
        schedule.alpha_prime(t), (schedule.alpha(t + 1e-7) - schedule.alpha(t - 1e-7)) / 2e-7, rtol=1e-5, atol=1e-6
    )
    assert torch.allclose(schedule.rate(t), -schedule.alpha_prime(t) / schedule.alpha(t), rtol=1e-12)


@pytest.mark.parametrize("share", [0.2, 0.7])
@pytest.mark.parametrize("reverse", ["plug-in", "marginal"])
def test_every_quantity_is_that_of_the_dense_oracle(share: float, reverse) -> None:
    process = HybridNoise(4, share, reverse)
    kinds = [(MeanPrediction.from_logits, 4)] + ([(ScorePrediction, 5)] if reverse == "marginal" else [])
    for t in (0.02, 0.4, 0.98):
        x, x_t, at = positions(process, t)
        x_t[:20] = process.mask
        s = torch.full_like(at, t / 2)
        for make, width in kinds:
            both(process, make, width, lambda by, p: by.integrand(p, x, x_t, at))  # noqa: B023
            both(process, make, width, lambda by, p: by.kl(p, x, x_t, s, at))  # noqa: B023
            both(process, make, width, lambda by, p: p.reverse(by, x_t, s, at))  # noqa: B023
            both(process, make, width, lambda by, p: p.clean(by, x_t, at))  # noqa: B023
        dense = process.dense()
        assert torch.allclose(process.row(x_t, s, at), dense.row(x_t, s, at), atol=1e-15)
        assert torch.allclose(process.rates_into(x_t, at), dense.rates_into(x_t, at), atol=1e-13)
        assert torch.allclose(process.posterior(x, x_t, s, at), dense.posterior(x, x_t, s, at), atol=1e-12)


def test_without_uniform_noise_it_is_mdlm_with_the_linear_schedule() -> None:
    toy = TOYS["K=4 L=3"]
    hybrid, masked = HybridNoise(4, 0.0), Masked(4, Linear())
    for s, t in ((0.1, 0.3), (0.0, 0.6), (0.9, 0.999)):
        at = torch.full((len(toy.x),), t)
        x_t = masked.corrupt(toy.x, at, torch.Generator().manual_seed(0))
        one, other = (Elbo(process).at(Random(toy, process), toy.x, x_t, at) for process in (hybrid, masked))
        assert torch.allclose(one, other, rtol=1e-13, atol=0)
        earlier, later = torch.tensor(s), torch.tensor(t)
        assert torch.allclose(hybrid.transition(earlier, later), masked.transition(earlier, later), atol=1e-15)
        assert torch.allclose(hybrid.rate(later), masked.rate(later), rtol=1e-13)
        times = [torch.full(x_t.shape, time) for time in (s, t)]
        reverse = [Random(toy, by)(x_t, at).reverse(by, x_t, *times).exp() for by in (hybrid, masked)]
        assert torch.allclose(*reverse, atol=1e-15)


def test_noise_is_drawn_from_the_matrices() -> None:
    process = HybridNoise(3, 0.4)
    for s, t in ((None, 0.3), (0.3, 0.8)):
        later = torch.full((60_000,), t)
        earlier = None if s is None else torch.full((60_000,), s)
        for x_s in (1, process.mask):
            if s is None and x_s == process.mask:
                continue
            drawn = process.noised(torch.full((60_000,), x_s), earlier, later, torch.Generator().manual_seed(5))
            row = process.transition(None if s is None else torch.tensor(s), torch.tensor(t))[x_s]
            assert chi_square(torch.bincount(drawn, minlength=4), row) > 1e-3


def law_of(sampler: Ancestral | TweedieLeaping, process: HybridNoise, denoiser) -> Tensor:
    with torch.no_grad():
        return exact_law(TOYS["K=3 L=2"], process, sampler, denoiser)


def test_samplers_draw_from_it() -> None:
    toy, process = TOYS["K=3 L=2"], HybridNoise(3, 0.3)
    exact = Exact(toy, process, "leave-one-out")
    far, near = (total_variation(law_of(Ancestral(steps), process, exact), toy.p) for steps in (8, 64))
    assert near < 0.5 * far and near < 0.02
    few, denoiser = Ancestral(5), Random(toy, process, scale=0.7)
    drawn = sample(process, denoiser, batch=20_000, length=2, sampler=few, seed=3)
    assert chi_square(torch.bincount(toy.index(drawn), minlength=9), law_of(few, process, denoiser)) > 1e-4


def test_a_draw_of_the_bound_is_unbiased() -> None:
    toy, process = TOYS["K=3 L=2"], HybridNoise(3, 0.3)
    denoiser = Perturbed(toy, process, "leave-one-out")
    elbo, generator = Elbo(process, times=SineTimes()), torch.Generator().manual_seed(7)
    draws = []
    for _ in range(200):
        x = toy.x[torch.multinomial(toy.p, 250, replacement=True, generator=generator)]
        draws.append(elbo(denoiser, x, generator).detach().mean())
    means = torch.stack(draws)
    error = float(means.std() / len(means) ** 0.5)
    truth = integral(toy, process, elbo, denoiser)
    assert abs(float(means.mean()) - truth) < 4 * error and error < 0.02 * truth


def test_float32_agrees_with_float64() -> None:
    process, x = HybridNoise(50, 0.2), torch.arange(20) % 50
    raw = torch.randn(20, 50, generator=torch.Generator().manual_seed(1))
    for x_t in (x, (x + 1) % 50, torch.full_like(x, process.mask)):
        for t in (1e-6, 1e-3, 0.5, 0.999, 1 - 1e-6):
            at = torch.full((20,), t)
            exact = process.integrand(MeanPrediction.from_logits(raw), x, x_t, at)
            rough = process.integrand(MeanPrediction.from_logits(raw.float()), x, x_t, at)
            assert torch.allclose(rough.double(), exact, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_mistakes(share: float) -> None:
    with pytest.raises(ValueError, match="0 ≤ p_uniform < 1"):
        HybridNoise(3, share)
    with pytest.raises(ValueError, match="power must be ≥ 2"):
        SineTimes(1)
