"""Gaussian diffusion and Bayesian flow on toys of one token: quadrature over noise and time, no sampling, then samplers."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import unnoise
from exact_gaussian import ExactGaussian, P, gaussian
from toy import chi_square, quadrature
from unnoise import BayesianFlow, FlowElbo, FlowSampler, Gaussian, GaussianElbo, GaussianSampler, MeanPrediction, sample
from unnoise.families.gaussian import GaussianCrossEntropy, NoiseShape
from unnoise.objective.times import stratified
from unnoise.process.process_base import gather

ENTROPY = float(-(P * P.log()).sum())
X = torch.arange(3)[:, None]


pytestmark = pytest.mark.usefixtures("double")


def hermite(dimensions: int, nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes [n, d] and weights [n] of E over a standard normal vector."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / math.sqrt(2 * math.pi)
    points = torch.tensor(list(itertools.product(x, repeat=dimensions)))
    weights = torch.tensor([math.prod(c) for c in itertools.product(w, repeat=dimensions)])
    return points, weights


# ---- Gaussian ---------------------------------------------------------------------------------------------------------


NOISE, WEIGHT = hermite(2, 40)


def over_noise(process: Gaussian, t: float, value) -> float:
    """E over x_0 ~ P and z_t of value(x [n,1], z [n,1,2], t [n]) → [n]."""
    total = 0.0
    at = torch.full((len(NOISE),), t)
    for k in range(3):
        x = torch.full((len(NOISE), 1), k)
        z = process.signal(at)[0].sqrt() * process.table()[k] + process.noise(at)[0].sqrt() * NOISE
        total += float(P[k] * (WEIGHT * value(x, z[:, None], at)).sum())
    return total


@torch.no_grad()
def gaussian_bound(process: Gaussian, denoiser, elbo: GaussianElbo) -> tuple[float, float, float]:
    """Compute the three terms of the bound by quadrature."""
    diffusion = sum(
        float(w) * over_noise(process, float(t), lambda x, z, at: elbo.diffusion(denoiser, x, z, at))
        for t, w in zip(*quadrature(60, power=1.0), strict=True)
    )
    reconstruction = over_noise(process, 0.0, lambda x, z, at: elbo.reconstruction(denoiser, x, z, at))
    prior = float((P * process.noise_kl(X).sum(-1)).sum())
    return diffusion, reconstruction, prior


@torch.no_grad()
def mixture_kl(process: Gaussian) -> float:
    """KL(q(z_1) ‖ N(0, I)) of the mixture over texts."""

    def log_ratio(x: Tensor, z: Tensor, at: Tensor) -> Tensor:
        signal, noise = process.signal(at)[:1], process.noise(at)[:1]
        distance = (z - signal.sqrt() * process.table()).square().sum(-1)  # [n, 3]
        log_q = torch.logsumexp(P.log() - 0.5 * distance / noise, -1) - noise.log()
        return log_q + 0.5 * z[:, 0].square().sum(-1)

    return over_noise(process, 1.0, log_ratio)


@pytest.mark.parametrize("learned", [False, True])
def test_the_exact_gaussian_bound_is_the_entropy_and_what_noise_remembers(learned: bool) -> None:
    process = gaussian(learned=learned)
    bound = sum(gaussian_bound(process, ExactGaussian(process), GaussianElbo(process)))
    assert abs(bound - ENTROPY - mixture_kl(process)) < 1e-4
    for error in (0.1, -0.3):
        assert sum(gaussian_bound(process, ExactGaussian(process, error), GaussianElbo(process))) > bound + 1e-4
    free = sum(gaussian_bound(process, ExactGaussian(process), GaussianElbo(process, network_free=True)))
    assert bound <= free < bound + 0.05


def test_the_learned_shape_rises_from_zero_to_one() -> None:
    shape = NoiseShape().double()
    with torch.no_grad():
        for weight in shape.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
        t = torch.linspace(0, 1, 101)
        g, slope = shape(t)
        assert abs(float(g[0])) < 1e-12 and float(g[-1]) == pytest.approx(1) and bool((slope > 0).all())
        assert torch.allclose(slope[1:-1], (shape(t + 1e-6)[0] - shape(t - 1e-6)[0])[1:-1] / 2e-6, atol=1e-6)


def test_the_shape_does_not_change_the_bound_and_learns_to_vary_less() -> None:
    process = gaussian(learned=True)
    assert process.shape is not None
    denoiser, elbo = ExactGaussian(process), GaussianElbo(process)
    x = torch.multinomial(P, 2000, replacement=True, generator=torch.Generator().manual_seed(0))[:, None]

    @torch.no_grad()
    def figures() -> tuple[float, float]:
        """Compute the bound and E L² of its diffusion term by quadrature."""
        squares = sum(
            float(w) * over_noise(process, float(t), lambda x, z, at: elbo.diffusion(denoiser, x, z, at).square())
            for t, w in zip(*quadrature(60, power=1.0), strict=True)
        )
        return sum(gaussian_bound(process, denoiser, elbo)), squares

    bound, squares = figures()
    optimizer = torch.optim.Adam(process.shape.parameters(), 0.05)
    for step in range(200):
        optimizer.zero_grad()
        elbo(denoiser, x, torch.Generator().manual_seed(step)).mean().backward()
        optimizer.step()
    after, less = figures()
    assert after == pytest.approx(bound, abs=1e-3) and less < 0.97 * squares


@torch.no_grad()
def test_each_gaussian_term_by_itself() -> None:
    process = gaussian()
    elbo = GaussianElbo(process)
    diffusion, reconstruction, prior = gaussian_bound(process, ExactGaussian(process), elbo)
    # the I-MMSE relation: the diffusion term is the information that z_0 has beyond z_1
    with torch.no_grad():
        late = over_noise(process, 1.0, lambda x, z, at: elbo.reconstruction(ExactGaussian(process), x, z, at))
    assert abs(diffusion - (late - reconstruction)) < 1e-4
    assert reconstruction == pytest.approx(
        over_noise(process, 0.0, lambda x, z, at: -gather(ExactGaussian(process)(z, at).log_probs, x)[:, 0])
    )
    signal = torch.sigmoid(torch.tensor(-5.0))
    by_hand = 0.5 * (signal * 2 - 2 * signal - 2 * torch.log(1 - signal))  # ‖z_0‖² = D = 2
    assert prior == pytest.approx(float(by_hand))
    z = torch.randn(5, 1, 2)
    t = torch.full((5,), 0.4)
    x = torch.zeros(5, 1, dtype=torch.long)
    simple = GaussianElbo(process, simple=True).diffusion(ExactGaussian(process), x, z, t)
    estimate = ExactGaussian(process)(z, t).log_probs.exp() @ process.table()
    signal, noise = process.signal(t)[0], process.noise(t)[0]
    epsilon, guess = ((z - signal.sqrt() * mean) / noise.sqrt() for mean in (process.table()[x], estimate))
    assert torch.allclose(simple, (epsilon - guess).square().sum((-1, -2)))


def test_the_gaussian_posterior_is_bayes_rule() -> None:
    """q(z_s|z_t,z_0) ∝ q(z_t|z_s) q(z_s|z_0) with precisions added."""
    process = gaussian()
    s, t = torch.tensor([0.3]), torch.tensor([0.7])
    z, z_0 = torch.randn(1, 1, 2), torch.randn(1, 1, 2)
    mean, variance = process.posterior(z, z_0, s, t)
    signal_s, signal_t, noise_s = process.signal(s), process.signal(t), process.noise(s)
    a = signal_t / signal_s
    precision = a / (1 - a) + 1 / noise_s
    assert torch.allclose(variance.flatten(), 1 / precision)
    expected = (a.sqrt() * z / (1 - a) + signal_s.sqrt() * z_0 / noise_s) / precision
    assert torch.allclose(mean, expected)


@pytest.mark.parametrize("sampler", [GaussianSampler(120), GaussianSampler(120, deterministic=True)])
def test_both_gaussian_samplers_reach_the_data(sampler: GaussianSampler) -> None:
    process = Gaussian(3, width=2, gamma=(-4.0, 8.0)).double()
    drawn = sample(process, ExactGaussian(process), batch=6000, length=1, sampler=sampler, seed=1)
    assert chi_square(torch.bincount(drawn[:, 0], minlength=3), P) > 1e-3


def test_a_gaussian_draw_is_unbiased() -> None:
    process = gaussian()
    elbo, denoiser = GaussianElbo(process), ExactGaussian(process, 0.3)
    truth = sum(gaussian_bound(process, denoiser, elbo))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        means = torch.stack(
            [elbo(denoiser, X[torch.multinomial(P, 200, True, generator=generator)], generator).mean() for _ in range(300)]
        )
    assert abs(float(means.mean()) - truth) < 4 * float(means.std()) / 300**0.5


def test_self_conditioning_is_read_and_given_tokens_stay() -> None:
    process = Gaussian(3, width=2, self_condition=True).double()
    assert process.inputs == 4
    seen = []

    def denoiser(state: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        seen.append(float(state[..., 2:].detach().abs().max()))
        return MeanPrediction.from_logits(process.log_likelihood(state[..., :2], t.double()))

    known = torch.tensor([[1, -1, -1]])
    drawn = sample(process, denoiser, batch=1, length=3, sampler=GaussianSampler(5), given=known)
    assert drawn[0, 0] == 1 and seen[0] == 0 and min(seen[1:]) > 0
    nats = GaussianElbo(process)(denoiser, torch.tensor([[0, 1]]), torch.Generator().manual_seed(0))
    assert nats.shape == (1,) and torch.isfinite(nats).all()


class SelfConditioned:
    """A denoiser whose answer depends on the estimate next to z; it notes whether there was one."""

    def __init__(self, process: Gaussian):
        self.process, self.guesses = process, []

    def __call__(self, state: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        guess = state[..., 2:].detach()
        self.guesses.append(bool(guess.abs().max() > 0))
        logits = self.process.log_likelihood(state, t.double()) + P.log() + guess @ self.process.table().T
        return MeanPrediction.from_logits(logits + torch.tensor([0.3, -0.4, 0.0]))

    def twice(self, z: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        """f(z, f(z, ∅)), for a process without self-conditioning."""
        first = self(torch.cat([z, torch.zeros_like(z)], -1), t).log_probs.exp() @ self.process.table()
        return self(torch.cat([z, first], -1), t)


@torch.no_grad()
def test_the_bound_of_a_self_conditioned_model_is_that_of_two_calls() -> None:
    """Evaluated, it is the bound of f(z, f(z, ∅)) draw by draw, in the diffusion term and in the reconstruction."""
    process, plain = gaussian(self_condition=True), gaussian()
    denoiser = SelfConditioned(process)
    x = torch.tensor([[0], [1], [2], [2]])
    for seed in range(8):
        nats = GaussianElbo(process)(denoiser, x, torch.Generator().manual_seed(seed))
        wanted = GaussianElbo(plain)(denoiser.twice, x, torch.Generator().manual_seed(seed))
        assert torch.allclose(nats, wanted, rtol=1e-12)
    denoiser.guesses.clear()
    GaussianElbo(process)(denoiser, x)
    assert sorted(denoiser.guesses) == [False, False, True, True]


@pytest.mark.parametrize("objective", [lambda p: GaussianElbo(p, network_free=True), GaussianCrossEntropy])
def test_half_of_the_training_batches_have_no_first_estimate(objective) -> None:
    process = gaussian(self_condition=True)
    denoiser, batches = SelfConditioned(process), 400
    for seed in range(batches):
        objective(process)(denoiser, X, torch.Generator().manual_seed(seed))
    given = sum(denoiser.guesses)
    assert len(denoiser.guesses) == batches + given  # a batch with an estimate is two calls
    assert abs(given - batches / 2) < 4 * math.sqrt(batches) / 2


def test_the_shape_follows_the_gradient_of_the_squared_loss() -> None:
    """Its gradient is ∇ Σ_b L_b²/scale, with L_b the diffusion term of row b; the end points follow the bound's gradient."""
    process = gaussian(learned=True)
    assert process.shape is not None
    denoiser, elbo, x = ExactGaussian(process, 0.3), GaussianElbo(process, network_free=True), X
    elbo(denoiser, x, torch.Generator().manual_seed(3)).sum().backward()
    found = [weight.grad.clone() for weight in process.shape.parameters()]
    process.shape.row_weight = None
    generator = torch.Generator().manual_seed(3)
    t = stratified(len(x), x.device, generator)
    diffusion = elbo.diffusion(denoiser, x, process.diffuse(process.table()[x], t, generator), t)
    squares = diffusion.square().sum() / math.log(3)  # a sequence of one token of three
    wanted = torch.autograd.grad(squares, list(process.shape.parameters()))
    assert all(torch.allclose(one, other, rtol=1e-6, atol=1e-12) for one, other in zip(found, wanted, strict=True))
    assert max(float(one.abs().max()) for one in wanted) > 1e-6


def test_gaussian_gradients_reach_embeddings_and_schedule() -> None:
    process = gaussian(learned=True)
    GaussianElbo(process)(ExactGaussian(process), X).sum().backward()
    assert process.embedding.grad is not None and (process.embedding.grad != 0).any()
    assert process.ends.grad is not None and (process.ends.grad != 0).all()


# ---- Bayesian flow ----------------------------------------------------------------------------------------------------


class ExactFlow:
    """p(x_0 | θ) ∝ p(x_0)·θ_{x_0}: the belief is the likelihood."""

    def __init__(self, error: float = 0.0):
        self.error = error

    def __call__(self, state: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        logits = (state / 3).clamp_min(1e-300).log() + P.log() + self.error * torch.tensor([1.0, -1.0, 0.5])
        return MeanPrediction.from_logits(logits)


FLOW_NOISE, FLOW_WEIGHT = hermite(3, 24)


def over_beliefs(process: BayesianFlow, u: float, value) -> float:
    """E over x_0 ~ P and θ_u of value(x [n,1], θ [n,1,3], u [n]) → [n]."""
    total, beta = 0.0, process.accuracy * u**2
    for k in range(3):
        target = 3 * torch.eye(3)[k] - 1
        belief = torch.softmax(beta * target + math.sqrt(beta * 3) * FLOW_NOISE, -1)[:, None]
        x = torch.full((len(FLOW_NOISE), 1), k)
        total += float(P[k] * (FLOW_WEIGHT * value(x, belief, torch.full((len(x),), u))).sum())
    return total


@torch.no_grad()
def flow_bound(process: BayesianFlow, denoiser) -> float:
    elbo = FlowElbo(process)
    flow = sum(
        float(w) * over_beliefs(process, float(u), lambda x, b, at: elbo.flow(denoiser, x, b, at))
        for u, w in zip(*quadrature(50, power=1.0), strict=True)
    )
    return flow + over_beliefs(process, 1.0, lambda x, b, at: elbo.reconstruction(denoiser, x, b, at))


def test_the_exact_flow_bound_is_the_entropy() -> None:
    process = BayesianFlow(3, accuracy=2.0)
    bound = flow_bound(process, ExactFlow())
    assert abs(bound - ENTROPY) < 1e-3
    for error in (0.2, -0.4):
        assert flow_bound(process, ExactFlow(error)) > ENTROPY + 1e-3


def test_beliefs_are_drawn_as_stated() -> None:
    process = BayesianFlow(3, accuracy=2.0)
    x = torch.zeros(60_000, 1, dtype=torch.long)
    drawn = process.believe(x, torch.full((60_000,), 0.6), torch.Generator().manual_seed(0))[:, 0]
    by_quadrature = torch.tensor([over_one(process, 0.6, k) for k in range(3)])
    assert torch.allclose(drawn.mean(0), by_quadrature, atol=5e-3)
    # many small messages are one: updates add up to β
    belief = torch.full((60_000, 1, 3), 1 / 3)
    for alpha in (0.3, 0.2, 0.22):
        belief = process.update(belief, x, torch.tensor(alpha), torch.Generator().manual_seed(int(100 * alpha)))
    assert torch.allclose(belief[:, 0].mean(0), drawn.mean(0), atol=1e-2)


def over_one(process: BayesianFlow, u: float, k: int) -> float:
    beta = process.accuracy * u**2
    belief = torch.softmax(beta * (3 * torch.eye(3)[0] - 1) + math.sqrt(beta * 3) * FLOW_NOISE, -1)
    return float((FLOW_WEIGHT * belief[:, k]).sum())


def test_a_flow_draw_is_unbiased_also_when_it_saves_the_last_term() -> None:
    process = BayesianFlow(3, accuracy=2.0)
    denoiser = ExactFlow(0.3)
    truth = flow_bound(process, denoiser)
    elbo = FlowElbo(process)
    for grad in (True, False):
        generator = torch.Generator().manual_seed(0)
        with torch.set_grad_enabled(grad):
            means = torch.stack(
                [elbo(denoiser, X[torch.multinomial(P, 200, True, generator=generator)], generator).mean() for _ in range(400)]
            )
        assert abs(float(means.mean()) - truth) < 4 * float(means.std()) / 20


def test_the_flow_sampler_reaches_the_data_and_keeps_what_is_given() -> None:
    process = BayesianFlow(3, accuracy=4.0)
    drawn = sample(process, ExactFlow(), batch=8000, length=1, sampler=FlowSampler(40), seed=1)
    assert chi_square(torch.bincount(drawn[:, 0], minlength=3), P) > 1e-3
    known = torch.tensor([[2, -1]])
    assert sample(process, ExactFlow(), batch=1, length=2, sampler=FlowSampler(4), given=known)[0, 0] == 2


def test_the_messages_of_the_flow_sampler_add_up_to_the_accuracy() -> None:
    """Σ α_i = β(1), α_i = β(1)(2i − 1)/n²: when all messages say 0, the last belief is drawn as θ_1 given 0."""
    process = BayesianFlow(3, accuracy=2.0)
    for n in (1, 7):
        alpha = process.accuracies(n)
        assert torch.allclose(alpha, torch.tensor([2.0 * (2 * i - 1) / n**2 for i in range(1, n + 1)], dtype=alpha.dtype))
        assert abs(float(alpha.sum()) - 2.0) < 1e-12
    seen = []

    def certain(state: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        seen.append((float(t[0]), state / 3))
        return MeanPrediction.from_logits(torch.tensor([50.0, 0.0, 0.0]).expand_as(state))

    sample(process, certain, batch=20_000, length=1, sampler=FlowSampler(8), seed=0)
    assert [round(t, 6) for t, _ in seen] == [round(1 - i / 7, 6) for i in range(8)]
    odds = seen[-1][1][:, 0].log() @ torch.tensor([1.0, -0.5, -0.5])  # mean 3β, variance 3β·1.5
    assert abs(float(odds.mean()) - 6.0) < 4 * 3 / 20_000**0.5 and abs(float(odds.var()) / 9.0 - 1) < 0.05


def test_mistakes() -> None:
    from unnoise import Ancestral, Linear, Masked

    masked, process, flow = Masked(3, Linear()), gaussian(), BayesianFlow(3)
    for make, words in (
        (lambda: Gaussian(3, width=0), "at least one number"),
        (lambda: Gaussian(3, gamma=(1.0, 0.0)), "gamma to rise"),
        (lambda: BayesianFlow(3, accuracy=0.0), "accuracy"),
        (lambda: GaussianElbo(masked), "needs a Gaussian process, found Masked"),
        (lambda: FlowElbo(masked), "needs a BayesianFlow process, found Masked"),
        (lambda: GaussianSampler(0), "steps must be a whole number"),
        (lambda: FlowSampler(0), "steps must be a whole number"),
        (lambda: sample(masked, ExactFlow(), batch=1, length=1, sampler=FlowSampler(2)), "found Masked"),
        (lambda: sample(masked, ExactFlow(), batch=1, length=1, sampler=GaussianSampler(2)), "found Masked"),
        (lambda: sample(process, ExactFlow(), batch=1, length=1, sampler=Ancestral(2)), "process over tokens, found Gaussian"),
        (
            lambda: sample(
                flow, lambda s, t, where=None: MeanPrediction(s[..., :2]), batch=1, length=1, sampler=FlowSampler(2)
            ),
            "must return a MeanPrediction of shape",
        ),
        (lambda: GaussianElbo(process)(lambda s, t, where=None: MeanPrediction(s), X), "must return a MeanPrediction of shape"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize("name", ["gaussian", "gaussian:self_condition=true", "bfn"])
def test_a_network_that_knows_nothing_of_the_others_is_bayes_rule(name: str) -> None:
    """With equal outputs μ is the posterior of each position by itself under equal priors, ∝ q(state | x_0)."""
    codec = unnoise.codec("chars", ["abc"])
    model = unnoise.Model.build(name, codec, length=4, width=16, depth=1, heads=2)  # its head is zero
    process, t = model.process, torch.tensor([0.3, 0.6])
    x = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    generator = torch.Generator().manual_seed(0)
    if isinstance(process, BayesianFlow):
        belief = process.believe(x, 1 - t, generator)
        state, wanted = 3 * belief, belief
    else:
        z = process.diffuse(process.table()[x], t, generator)
        state = process.observe(z, None)
        signal, noise = process.signal(t)[:, None, None, None], process.noise(t)[:, None, None, None]
        far = (z[:, :, None] - signal.sqrt() * process.table()).square().sum(-1)  # ‖z − √ā e_k‖²
        wanted = torch.softmax(-far / (2 * noise[..., 0]), -1)
    found = model.denoiser(state, t).values.exp()
    assert torch.allclose(found, wanted, atol=1e-5)
    assert not torch.allclose(model.denoiser(state, t).values.exp(), torch.full_like(wanted, 1 / 3), atol=0.1)
