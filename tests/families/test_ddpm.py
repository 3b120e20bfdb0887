"""DDPM in one dimension, where the posterior, the denoiser and the bound are known: quadrature over the noise, no sampling."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import unnoise
from toy import chi_square
from unnoise import Ddpm, DdpmElbo, DdpmPrediction, DdpmSampler, DdpmSimple, cosine_betas, linear_betas, sample, sqrt_betas
from unnoise.objective.times import stratified

P = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
LEVELS = torch.tensor([-1.0, -1 / 3, 1 / 3, 1.0], dtype=torch.float64)
ENTROPY = float(-(P * P.log()).sum())
GRID = torch.linspace(-9, 9, 1201, dtype=torch.float64)
WEIGHT = torch.exp(-GRID.square() / 2) / math.sqrt(2 * math.pi) * float(GRID[1] - GRID[0])
BETAS = [0.1, 0.35, 0.2, 0.6, 0.85]
TARGETS, VARIANCES = ("eps", "x0", "mean"), ("beta", "posterior")

pytestmark = pytest.mark.usefixtures("double")


def products(betas: Tensor) -> Tensor:
    """ᾱ_0 = 1, ᾱ_1, …, ᾱ_T, one product after another."""
    found = [1.0]
    for beta in betas.tolist():
        found.append(found[-1] * (1 - beta))
    return torch.tensor(found, dtype=torch.float64)


class Exact:
    """E[x_0 | x_t] of a law of x_0 as the process's target, by the formulas of the notes; `error` bends it.

    expected: (x_t [...], ᾱ_t) → E[x_0 | x_t] [...].
    """

    def __init__(self, process: Ddpm, expected: Callable[[Tensor, float], Tensor], error: float = 0.0):
        self.process, self.expected, self.error = process, expected, error
        self.alpha_bar = products(process.betas)

    def __call__(self, z: Tensor, t: Tensor, where: Tensor | None = None) -> DdpmPrediction:
        value = torch.empty_like(z)
        for step in (t * self.process.steps).round().long().unique().tolist():
            rows = (t * self.process.steps).round().long() == step
            value[rows] = self.at(z[rows], step)
        return DdpmPrediction(value)

    def at(self, z: Tensor, step: int) -> Tensor:
        signal, before, beta = float(self.alpha_bar[step]), float(self.alpha_bar[step - 1]), float(self.process.betas[step - 1])
        x_0 = self.expected(z, signal) + self.error * torch.cos(3 * z)
        eps = (z - math.sqrt(signal) * x_0) / math.sqrt(1 - signal)
        if self.process.target == "mean":
            return (math.sqrt(before) * beta * x_0 + math.sqrt(1 - beta) * (1 - before) * z) / (1 - signal)
        return {"x0": x_0, "eps": eps}[self.process.target]


def expected_level(z: Tensor, signal: float) -> Tensor:
    """E[x_0 | x_t] for levels of probabilities P."""
    far = (z[..., None] - math.sqrt(signal) * LEVELS).square() / (2 * (1 - signal))
    return torch.softmax(P.log() - far, -1) @ LEVELS


def levels(betas: Tensor, **options) -> Ddpm:
    return Ddpm(4, betas, **options)


@torch.no_grad()
def terms(process: Ddpm, denoiser: Exact, p: Tensor = P, clip: bool = True) -> Tensor:
    """L_0, L_1, …, L_T of the bound, each by quadrature over x_0 and the noise: [T + 1]."""
    elbo, alpha_bar, found = DdpmElbo(process, clip=clip), products(process.betas), []
    for step in range(1, process.steps + 1):
        total = 0.0
        for k in range(len(p)):
            x = torch.full((len(GRID), 1), k)
            z_0, at = LEVELS[x][..., None], torch.full((len(GRID),), step)
            z = alpha_bar[step].sqrt() * z_0 + (1 - alpha_bar[step]).sqrt() * GRID[:, None, None]
            nats = elbo.reconstruction(denoiser, x, z) if step == 1 else elbo.kl(denoiser, z_0, z, at)
            total += float(p[k] * (WEIGHT * nats).sum())
        found.append(total)
    last = alpha_bar[-1]
    return torch.tensor([*found, float((p * 0.5 * (last * LEVELS.square() - last - torch.log(1 - last))).sum())])


# ---- the table and the forward process ---------------------------------------------------------------------------------


def test_the_linear_table_is_that_of_the_paper() -> None:
    betas = linear_betas(1000)
    assert betas[0] == 1e-4 and betas[-1] == pytest.approx(0.02) and torch.allclose(betas.diff(), betas.diff()[0])
    assert float(products(betas)[-1]) == pytest.approx(4.04e-5, rel=0.01)
    for steps in (1, 20, 100, 250, 4000):
        short = linear_betas(steps)
        assert len(short) == steps and float(short.min()) > 0 and float(short.max()) <= 0.999
    assert float(products(linear_betas(250))[-1]) == pytest.approx(4e-5, rel=0.2)


def test_the_cosine_and_square_root_tables_have_the_signal_of_their_papers() -> None:
    t = torch.arange(101) / 100
    f = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    cosine, root = cosine_betas(100), sqrt_betas(100)
    assert torch.allclose(products(cosine)[:-1], (f / f[0])[:-1]) and float(cosine[-1]) == 0.999
    g = 1 - torch.sqrt(t + 1e-4)
    assert torch.allclose(products(root)[:-1], (g / g[0])[:-1]) and float(root[-1]) == 0.999


def test_a_table_from_an_array() -> None:
    for given in (BETAS, np.array(BETAS, dtype=np.float32), torch.tensor(BETAS)):
        process = levels(given)
        assert process.steps == 5 and process.betas.dtype == torch.float64
        assert torch.allclose(process.alpha_bar, products(torch.tensor(BETAS)), atol=1e-7)
    for wrong, words in (
        ([0.1, 0.0], "each β_t must lie between 0 and 1, found β_2 = 0"),
        ([1.0], "each β_t must lie between 0 and 1, found β_1 = 1"),
        ([0.1, float("nan")], "β_2 = nan"),
        ([], "a whole number of steps from 1"),
        ([[0.1]], r"one number for each step, \[T\], found the shape \[1, 1\]"),
        ("linear", "must be a sequence of numbers, found str"),
    ):
        with pytest.raises(ValueError, match=words):
            levels(wrong)


def test_small_noise_keeps_its_digits() -> None:
    process = levels(torch.full((3,), 1e-12))
    assert torch.allclose(process.one_minus_alpha_bar, 1e-12 * torch.arange(4.0), rtol=1e-10, atol=0)


def test_the_marginal_is_one_step_after_another() -> None:
    """Mean and variance of x_t given x_0 by the recursion √(1 − β)·x + √β·ε."""
    process = levels(torch.tensor(BETAS))
    mean, variance = 1.0, 0.0
    for step, beta in enumerate(BETAS, 1):
        mean, variance = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
        t = torch.tensor([step / 5])
        assert float(process.signal(t).sqrt()) == pytest.approx(mean) and float(process.noise(t)) == pytest.approx(variance)
    z = process.diffuse(torch.ones(200_000, 1, 1), torch.full((200_000,), 0.6), torch.Generator().manual_seed(0))
    wanted = products(torch.tensor(BETAS))[3]
    assert abs(float(z.mean() - wanted.sqrt())) < 5 / 200_000**0.5 and float(z.var() / (1 - wanted)) == pytest.approx(
        1, abs=0.02
    )


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_the_posterior_is_that_of_numerical_integration(step: int) -> None:
    """q(x_{t−1} | x_t, x_0) ∝ q(x_t | x_{t−1}) q(x_{t−1} | x_0) on a grid; at t = 1 it is x_0 itself."""
    process, alpha_bar = levels(torch.tensor(BETAS)), products(torch.tensor(BETAS))
    x_0, x_t, beta = 0.7, -0.9, BETAS[step - 1]
    s, t = process.time_of(torch.tensor([step - 1])), process.time_of(torch.tensor([step]))
    mean, variance = process.posterior(torch.full((1, 1, 1), x_t), torch.full((1, 1, 1), x_0), s, t)
    if step == 1:
        assert float(mean) == pytest.approx(x_0) and float(variance) == 0
        return
    x = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    before = alpha_bar[step - 1]
    density = torch.exp(
        -(x_t - math.sqrt(1 - beta) * x).square() / (2 * beta) - (x - before.sqrt() * x_0).square() / (2 * (1 - before))
    )
    density /= density.sum()
    by_integration = float((density * x).sum())
    assert float(mean) == pytest.approx(by_integration, abs=1e-9)
    assert float(variance) == pytest.approx(float((density * (x - by_integration).square()).sum()), abs=1e-9)
    # the other two forms of the notes
    eps = (x_t - float(alpha_bar[step].sqrt()) * x_0) / float((1 - alpha_bar[step]).sqrt())
    by_noise = (x_t - beta / float((1 - alpha_bar[step]).sqrt()) * eps) / math.sqrt(1 - beta)
    assert float(mean) == pytest.approx(by_noise)
    assert float(process.reverse_variance(s, t, "posterior")) == pytest.approx(float(variance))
    assert float(process.reverse_variance(s, t, "beta")) == pytest.approx(beta)


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_gives_x_0_back(target: str) -> None:
    process = levels(torch.tensor(BETAS), target=target)
    step = torch.arange(1, 6)
    z_0, z = torch.rand(5, 2, 1) * 2 - 1, torch.randn(5, 2, 1)
    value = process.wanted(z_0, z, step)
    exact = Exact(process, lambda z, signal: z_0[0, :, 0].expand_as(z[..., 0])[..., None])
    for i in range(5):
        exact.expected = lambda z, signal, i=i: z_0[i : i + 1]
        assert torch.allclose(value[i : i + 1], exact.at(z[i : i + 1], i + 1))
    assert torch.allclose(process.clean(value, z, step), z_0)
    far = process.wanted(3 * torch.ones_like(z_0), z, step)
    assert torch.allclose(process.clean(far, z, step), torch.ones_like(z_0))
    assert torch.allclose(process.clean(far, z, step, clip=False), 3 * torch.ones_like(z_0))


# ---- the decoder ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_discretised_decoder_is_the_normal_law_of_each_bin(variance: str) -> None:
    process = levels(torch.tensor(BETAS), variance=variance)
    sigma = math.sqrt(0.1 if variance == "beta" else 0.35 * 0.1 / (1 - 0.9 * 0.65))
    for mean in (-1.0, -0.4, 0.1, 0.95):
        found = process.decoded(torch.full((1, 1, 1), mean))[0, 0].exp()
        edges = [-40.0, -2 / 3, 0.0, 2 / 3, 40.0]
        for k in range(4):
            v = torch.linspace(edges[k], edges[k + 1], 200_001, dtype=torch.float64)
            density = torch.exp(-(v - mean).square() / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
            assert float(found[k]) == pytest.approx(float(torch.trapezoid(density, v)), abs=1e-6)
        assert float(found.sum()) == pytest.approx(1, abs=1e-12)
        own = process.decoded_token(torch.full((1, 4, 1), mean), torch.arange(4)[None])[0].exp()
        assert torch.allclose(own, found)


def test_the_decoder_is_finite_far_away_and_has_gradients() -> None:
    process = Ddpm(256, [1e-4, 1e-4], variance="beta")
    clean = torch.full((1, 256, 1), -1.0, requires_grad=True)
    log_p = process.decoded_token(clean, torch.arange(256)[None])
    assert bool(torch.isfinite(log_p).all())
    assert float(log_p[0, -1].detach()) == pytest.approx(
        -((2 - 1 / 255) ** 2) / 2e-4, rel=1e-3
    )  # 2 − h away, in units of σ = 0.01
    log_p.sum().backward()
    assert clean.grad is not None and bool(torch.isfinite(clean.grad).all()) and bool((clean.grad[0, 1:] > 0).all())


def test_the_decoder_of_embeddings_is_bayes_rule_among_the_tokens_in_use() -> None:
    process = Ddpm(4, BETAS, variance="beta", embed="fixed", width=3)
    assert torch.allclose(process.table().square().sum(-1), torch.full((4,), 3.0))
    clean = torch.randn(2, 1, 3)
    far = (clean[:, :, None] - process.table()).square().sum(-1)
    wanted = torch.softmax(-far / (2 * 0.1), -1)
    assert torch.allclose(process.decoded(clean).exp(), wanted)
    process.exclude([2])
    found = process.decoded(clean).exp()
    assert bool((found[..., 2] == 0).all())
    assert torch.allclose(found[..., [0, 1, 3]], wanted[..., [0, 1, 3]] / (1 - wanted[..., 2:3]))


# ---- the bound -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("target", TARGETS)
def test_each_term_is_a_divergence_by_numerical_integration(target: str, variance: str) -> None:
    """L_{t−1} at one x_t, by integration of q log q/p over x_{t−1}."""
    process, alpha_bar = levels(torch.tensor(BETAS), target=target, variance=variance), products(torch.tensor(BETAS))
    denoiser = Exact(process, expected_level, 0.1)
    x = torch.linspace(-12, 12, 40_001, dtype=torch.float64)
    for step in (2, 4, 5):
        z, z_0, beta = 0.3, -1 / 3, BETAS[step - 1]
        before, signal = float(alpha_bar[step - 1]), float(alpha_bar[step])
        posterior = beta * (1 - before) / (1 - signal)
        x_0 = float(expected_level(torch.tensor(z), signal)) + 0.1 * math.cos(3 * z)

        def log_normal(clean: float, variance: float, b=before, s=signal, beta=beta, z=z) -> Tensor:
            mean = (math.sqrt(b) * beta * clean + math.sqrt(1 - beta) * (1 - b) * z) / (1 - s)
            return -(x - mean).square() / (2 * variance) - 0.5 * math.log(2 * math.pi * variance)

        log_q = log_normal(z_0, posterior)
        log_p = log_normal(x_0, beta if variance == "beta" else posterior)
        wanted = float(torch.trapezoid(log_q.exp() * (log_q - log_p), x))
        found = DdpmElbo(process).kl(denoiser, torch.full((1, 1, 1), z_0), torch.full((1, 1, 1), z), torch.tensor([step]))
        assert float(found) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("table", [linear_betas, cosine_betas])
def test_the_bound_falls_to_the_entropy_as_steps_grow(table: Callable[[int], Tensor]) -> None:
    excess = []
    for steps in (24, 96, 384):
        process = levels(table(steps))
        excess.append(float(terms(process, Exact(process, expected_level)).sum()) - ENTROPY)
    assert min(excess) > 0 and excess[1] < 0.3 * excess[0] and excess[2] < 0.3 * excess[1], excess
    assert excess[-1] < 0.06


def test_the_larger_variance_costs_what_its_ratio_says() -> None:
    """With σ_t² = β_t the bound of single points stays Σ ½(r − 1 − log r) above the entropy, r = (1 − ᾱ_{t−1})/(1 − ᾱ_t)."""
    process = levels(linear_betas(384), variance="beta")
    noise = 1 - products(process.betas)
    ratio = noise[1:-1] / noise[2:]
    cost = 0.5 * float((ratio - 1 - ratio.log()).sum())
    excess = float(terms(process, Exact(process, expected_level)).sum()) - ENTROPY
    assert cost > 0.4 and excess == pytest.approx(cost, abs=0.02)


@pytest.mark.parametrize("target", TARGETS)
def test_the_bound_does_not_depend_on_the_target_and_a_wrong_denoiser_pays(target: str) -> None:
    betas = linear_betas(50)
    found, wrong = (
        float(terms(levels(betas, target=target), Exact(levels(betas, target=target), expected_level, error)).sum())
        for error in (0.0, 0.1)
    )
    reference = levels(betas, target="x0")
    assert found == pytest.approx(float(terms(reference, Exact(reference, expected_level)).sum()), abs=1e-9)
    assert wrong > found + 0.01


@pytest.mark.parametrize("target", TARGETS)
def test_the_bound_of_normal_data_is_its_entropy_in_any_number_of_steps(target: str) -> None:
    """For x_0 ~ N(0, 1) every p(x_{t−1} | x_t) is normal with variance β_t, so that nothing is lost (arXiv:2006.11239, 3.2)."""
    process = levels(torch.tensor(BETAS), target=target, variance="beta")
    denoiser = Exact(process, lambda z, signal: math.sqrt(signal) * z)
    alpha_bar, total = products(process.betas), 0.0
    nodes, weights = (torch.tensor(values) for values in np.polynomial.hermite_e.hermegauss(6))
    z_0, eps = (one.reshape(-1, 1, 1) for one in torch.meshgrid(nodes, nodes, indexing="ij"))
    weight = torch.outer(weights, weights).flatten() / (2 * math.pi)
    for step in range(1, 6):
        z, at = alpha_bar[step].sqrt() * z_0 + (1 - alpha_bar[step]).sqrt() * eps, torch.full((len(z_0),), step)
        clean = process.clean(denoiser(z, process.time_of(at)).value, z, at, clip=False)
        error = (z_0 - clean).square()[:, 0, 0]
        first = error / (2 * BETAS[0]) + 0.5 * math.log(2 * math.pi * BETAS[0])
        total += float((weight * (first if step == 1 else process.step_kl(z_0, clean, at))).sum())
    last = float(alpha_bar[-1])
    total += 0.5 * (last - last - math.log(1 - last))
    assert total == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=1e-10)


def test_the_bound_of_a_mixture_of_normals_falls_to_its_entropy() -> None:
    """x_0 ~ Σ w_j N(m_j, s²), with E[x_0 | x_t] by the rule of Bayes for each component."""
    w, m, s = torch.tensor([0.3, 0.7]), torch.tensor([-0.8, 0.5]), 0.25

    def expected(z: Tensor, signal: float) -> Tensor:
        spread = signal * s**2 + 1 - signal
        far = z[..., None] - math.sqrt(signal) * m
        share = torch.softmax(w.log() - far.square() / (2 * spread), -1)
        return (share * (m + math.sqrt(signal) * s**2 / spread * far)).sum(-1)

    x = torch.linspace(-3, 3, 241)
    density = (w * torch.exp(-(x[:, None] - m).square() / (2 * s**2))).sum(-1) / (s * math.sqrt(2 * math.pi))
    mass = density * (x[1] - x[0])
    assert float(mass.sum()) == pytest.approx(1)
    entropy = -float((mass * density.log()).sum())
    eps = GRID[::10]
    weight = (mass[:, None] * (WEIGHT[::10] * 10)).flatten()
    z_0, noise = (one.reshape(-1, 1, 1) for one in torch.meshgrid(x, eps, indexing="ij"))
    excess = []
    for steps in (8, 32, 128):
        process = levels(linear_betas(steps), variance="beta")
        denoiser, alpha_bar, total = Exact(process, expected), products(process.betas), 0.0
        for step in range(1, steps + 1):
            z = alpha_bar[step].sqrt() * z_0 + (1 - alpha_bar[step]).sqrt() * noise
            at = torch.full((len(z),), step)
            clean = process.clean(denoiser.at(z, step), z, at, clip=False)
            beta = float(process.betas[0])
            first = ((z_0 - clean).square() / (2 * beta))[:, 0, 0] + 0.5 * math.log(2 * math.pi * beta)
            total += float((weight * (first if step == 1 else process.step_kl(z_0, clean, at))).sum())
        last = alpha_bar[-1]
        total += float((mass * 0.5 * (last * x.square() - last - torch.log(1 - last))).sum())
        excess.append(total - entropy)
    assert min(excess) > 0 and excess[1] < 0.4 * excess[0] and excess[2] < 0.4 * excess[1], excess


def test_one_known_image_costs_only_its_ends() -> None:
    """With the posterior variance and x̂_0 = x_0 every L_{t−1} is zero (the other case of arXiv:2006.11239, 3.2)."""
    process = levels(torch.tensor(BETAS), variance="posterior")
    point = torch.tensor([0.0, 1.0, 0.0, 0.0])
    found = terms(process, Exact(process, lambda z, signal: torch.full_like(z, -1 / 3)), point)
    assert float(found[1:5].abs().max()) < 1e-12 and float(found[0]) > 0 and float(found[-1]) > 0


def test_clipping_never_loosens_a_term() -> None:
    process = levels(torch.tensor(BETAS))
    denoiser = Exact(process, expected_level, 0.5)
    clipped, free = terms(process, denoiser), terms(process, denoiser, clip=False)
    assert bool((clipped[1:5] <= free[1:5]).all()) and float(clipped[1:5].sum()) < float(free[1:5].sum()) - 0.01


# ---- draws ---------------------------------------------------------------------------------------------------------------


def test_steps_are_drawn_with_the_inverse_of_their_weight() -> None:
    for betas in (linear_betas(20), torch.tensor(BETAS), torch.tensor([0.2, 0.3])):
        elbo = DdpmElbo(levels(betas))
        v = (torch.arange(2_000_000) + 0.5) / 2_000_000
        step, weight = elbo.steps_at(v)
        each = torch.stack([weight[step == i].sum() / len(v) for i in range(2, len(betas) + 1)])
        assert int(step.min()) == 2 and int(step.max()) == len(betas) and torch.allclose(each, torch.ones_like(each), atol=1e-3)
        assert float(weight.max()) <= 10 * (len(betas) - 1) + 1e-9
    assert float(DdpmElbo(levels(linear_betas(20))).density()[0]) > 3 / 19  # early steps, which cost most, are drawn more often


@pytest.mark.parametrize("variance", VARIANCES)
def test_a_draw_of_the_bound_is_unbiased(variance: str) -> None:
    process = levels(torch.tensor(BETAS), variance=variance)
    denoiser = Exact(process, expected_level, 0.2)
    truth = float(terms(process, denoiser).sum())
    for share in (1.0, 0.25):
        generator, elbo = torch.Generator().manual_seed(0), DdpmElbo(process, share=share)
        with torch.no_grad():
            means = torch.stack(
                [
                    elbo(denoiser, torch.multinomial(P, 200, True, generator=generator)[:, None], generator).mean()
                    for _ in range(300)
                ]
            )
        assert abs(float(means.mean()) - truth) < 4 * float(means.std()) / 300**0.5


def test_the_density_of_steps_cuts_the_variance() -> None:
    """E (L_{t−1}/p_t)² = Σ L²/p is far smaller than with even steps."""
    process = levels(linear_betas(100))
    cost = terms(process, Exact(process, expected_level, 0.05))[1:-1]
    assert float((cost.square() / DdpmElbo(process).density()).sum()) < 0.5 * float(cost.square().sum() * len(cost))


def test_one_step_has_a_bound_too() -> None:
    process = levels([0.5])
    denoiser = Exact(process, expected_level)
    found = terms(process, denoiser)
    assert len(found) == 2 and float(found.sum()) > ENTROPY
    x = torch.multinomial(P, 40_000, True, generator=torch.Generator().manual_seed(0))[:, None]
    with torch.no_grad():
        drawn = DdpmElbo(process)(denoiser, x, torch.Generator().manual_seed(1))
    assert abs(float(drawn.mean() - found.sum())) < 4 * float(drawn.std()) / 200


@pytest.mark.parametrize("target", TARGETS)
def test_the_simple_loss_is_the_square_of_the_error_at_an_even_step(target: str) -> None:
    process = levels(torch.tensor(BETAS), target=target)
    denoiser, x = Exact(process, expected_level, 0.2), torch.randint(4, (10, 3), generator=torch.Generator().manual_seed(0))
    found = DdpmSimple(process)(denoiser, x, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    step = (stratified(10, x.device, generator) * 5).floor().long() + 1
    assert torch.equal(step.sort().values, torch.arange(1, 6).repeat_interleave(2))
    noise = torch.randn((10, 3, 1), generator=generator, dtype=torch.float64)
    alpha_bar, beta = products(process.betas), process.betas[step - 1][:, None, None]
    signal, before = alpha_bar[step][:, None, None], alpha_bar[step - 1][:, None, None]
    x_0 = LEVELS[x][..., None]
    z = signal.sqrt() * x_0 + (1 - signal).sqrt() * noise
    mean = (before.sqrt() * beta * x_0 + (1 - beta).sqrt() * (1 - before) * z) / (1 - signal)
    wanted = {"x0": x_0, "eps": noise, "mean": mean}[target] - denoiser(z, step / 5).value
    assert torch.allclose(found, wanted.square().sum((1, 2)))


def test_learned_embeddings_have_gradients_from_the_bound_and_no_simple_loss() -> None:
    process = Ddpm(4, BETAS, embed="learned", width=2)
    exact = Exact(process, lambda z, signal: math.sqrt(signal) * z)
    DdpmElbo(process, clip=False)(exact, torch.tensor([[0], [1], [2], [3]])).sum().backward()
    assert process.embedding is not None and process.embedding.grad is not None and bool((process.embedding.grad != 0).any())
    with pytest.raises(ValueError, match="learn them with loss=elbo"):
        DdpmSimple(process)
    assert not any(weight.requires_grad for weight in Ddpm(4, BETAS, embed="fixed").parameters())


# ---- samplers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("target", TARGETS)
def test_samples_follow_the_data(target: str, variance: str) -> None:
    process = levels(linear_betas(150), target=target)
    sampler = DdpmSampler(150, variance=variance)
    drawn = sample(process, Exact(process, expected_level), batch=5000, length=1, sampler=sampler, seed=1)
    assert chi_square(torch.bincount(drawn[:, 0], minlength=4), P) > 1e-3


class Watched(Exact):
    """An exact denoiser that keeps every state and time that it was called with."""

    def __call__(self, z: Tensor, t: Tensor, where: Tensor | None = None) -> DdpmPrediction:
        self.seen = [*getattr(self, "seen", []), (float(t[0]) * self.process.steps, z)]
        return super().__call__(z, t)


@pytest.mark.parametrize("steps", [4, 12, 30])
def test_the_states_of_normal_data_stay_normal_with_any_number_of_calls(steps: int) -> None:
    """With σ² = 1 − ᾱ_t/ᾱ_s and data N(0, 1) every x_t is N(0, 1), exactly."""
    process = Ddpm(4, linear_betas(12), variance="beta", embed="fixed", width=1)
    denoiser = Watched(process, lambda z, signal: math.sqrt(signal) * z)
    sample(process, denoiser, batch=20_000, length=1, sampler=DdpmSampler(steps), seed=0)
    visited = [round(step) for step, _ in denoiser.seen]
    assert visited == ([12, 8, 5, 1] if steps == 4 else list(range(12, 0, -1)))
    for (_, z), (_, after) in zip(denoiser.seen[:-1], denoiser.seen[1:], strict=True):
        assert abs(float(after.var()) - 1) < 5 * math.sqrt(2 / 20_000) and abs(float(after.mean())) < 5 / 20_000**0.5
        assert float((z * after).mean()) < 1  # the state moves


def test_the_step_of_algorithm_2() -> None:
    """x_{t−1} = (x_t − (1 − α_t)/√(1 − ᾱ_t)·ε̂)/√α_t + σ_t z, of the draws that the sampler made."""
    process = Ddpm(4, BETAS, embed="fixed", width=2)
    denoiser = Watched(process, lambda z, signal: 0.3 * z)
    for variance in VARIANCES:
        denoiser.seen = []
        sample(process, denoiser, batch=40_000, length=1, sampler=DdpmSampler(5, variance=variance), seed=0)
        alpha_bar = products(process.betas)
        for (step, z), (_, after) in zip(denoiser.seen[:-1], denoiser.seen[1:], strict=True):
            i = round(step)
            beta, noise = BETAS[i - 1], float(1 - alpha_bar[i])
            eps = (z - math.sqrt(1 - noise) * 0.3 * z) / math.sqrt(noise)
            rest = after - (z - beta / math.sqrt(noise) * eps) / math.sqrt(1 - beta)
            sigma = beta if variance == "beta" else beta * float(1 - alpha_bar[i - 1]) / noise
            assert (
                float(rest.var() / sigma) == pytest.approx(1, abs=0.03)
                and abs(float(rest.mean())) < 5 * (sigma / 80_000) ** 0.5
            )


def test_a_noised_state_goes_back_to_what_it_may_have_been() -> None:
    process = levels(linear_betas(150))
    state = torch.full((5000, 1, 1), 0.2)
    frames = unnoise.sample_from(process, Exact(process, expected_level), state, 0.3, sampler=DdpmSampler(150), seed=1)
    *_, last = frames
    signal = products(process.betas)[45]
    wanted = torch.softmax(P.log() - (0.2 - signal.sqrt() * LEVELS).square() / (2 * (1 - signal)), -1)
    assert chi_square(torch.bincount(last.x[:, 0], minlength=4), wanted) > 1e-3


def test_given_tokens_stay_and_temperature_zero_is_the_likeliest_level() -> None:
    process = levels(linear_betas(20))
    denoiser = Watched(process, expected_level)
    known = torch.tensor([[2, -1, -1]]).expand(500, -1).contiguous()
    drawn = sample(process, denoiser, batch=500, length=3, sampler=DdpmSampler(20), given=known)
    assert bool((drawn[:, 0] == 2).all()) and set(drawn[:, 1].tolist()) == {0, 1, 2, 3}
    alpha_bar = products(process.betas)
    for step, z in denoiser.seen:
        centred = z[:, 0, 0] - alpha_bar[round(step)].sqrt() / 3
        assert float(centred.var() / (1 - alpha_bar[round(step)])) == pytest.approx(1, abs=0.35)
    wide = levels([0.9, 0.9])  # a decoder so wide that draws differ
    at_zero = sample(
        wide, Exact(wide, lambda z, signal: 0 * z + 0.4), batch=200, length=1, sampler=DdpmSampler(2, temperature=0)
    )
    assert at_zero.unique().tolist() == [3]  # the last bin has the tail
    anyhow = sample(wide, Exact(wide, lambda z, signal: 0 * z + 0.4), batch=200, length=1, sampler=DdpmSampler(2))
    assert len(anyhow.unique()) == 4


def test_mistakes() -> None:
    masked, process = unnoise.Masked(4, unnoise.Linear()), levels(BETAS)
    for make, words in (
        (lambda: DdpmElbo(masked), "needs a Ddpm process, found Masked"),
        (lambda: DdpmSimple(masked), "needs a Ddpm process, found Masked"),
        (lambda: DdpmSampler(4, variance="mean"), "variance must be model or beta or posterior"),
        (
            lambda: sample(masked, lambda *_: None, batch=1, length=1, sampler=DdpmSampler(4)),
            "needs a Ddpm process, found Masked",
        ),
        (
            lambda: DdpmElbo(process)(lambda z, t, where=None: DdpmPrediction(z[..., 0]), torch.tensor([[1]])),
            r"must return a DdpmPrediction of shape \[1, 1, 1\]",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            make()
