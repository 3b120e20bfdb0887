"""The last step p(x_0 | x_1) of T steps of uniform noise: the mean itself or the normalized product, by enumeration."""

import math

import pytest
import torch

from toy import Exact, Random, Toy, expected, pick, texts
from unnoise import Ancestral, CosineTable, Elbo, Linear, MeanPrediction, Process, Uniform, method, sample

TOY = Toy(3, 2, seed=0)
T = 4

pytestmark = pytest.mark.usefixtures("double")


def uniform(last_step: str) -> Uniform:
    return Uniform(3, Linear(), reverse="plug-in", mean_until=1 / T if last_step == "mean" else 0.0)


def exact_bound(process: Process, denoiser, steps: int = T) -> float:
    """E_{p_data} of the bound, summed over all steps."""
    bound = Elbo(process, steps=steps)
    return float(
        sum(expected(TOY, process, i / steps, lambda x, x_t, t: bound.at(denoiser, x, x_t, t)) for i in range(1, steps + 1))
    )


def reverse_law(process: Process, denoiser, last_step: str) -> torch.Tensor:
    """Return the law of x_0 under the model, multiplied out by the notes' formulas: [N]."""
    x = texts(3, 2)
    law = torch.full((9,), 1 / 9)
    for i in range(T, 0, -1):
        t, s = i / T, (i - 1) / T
        mu = denoiser(x, torch.full((9,), t)).values.exp()  # [N, L, K]
        kept = (1 - t) / (1 - s)
        back = kept * torch.eye(3)[x] + (1 - kept) / 3  # q(x_t | x_s)
        step = back * ((1 - s) * mu + s / 3)
        step = step / step.sum(-1, keepdim=True)
        if i == 1 and last_step == "mean":
            step = mu
        law = law @ (step[:, 0][:, x[:, 0]] * step[:, 1][:, x[:, 1]])
    return law


@pytest.mark.parametrize("last_step", ["product", "mean"])
def test_both_bound_the_likelihood_of_their_own_model(last_step: str) -> None:
    """E[bound(x_0)] ≥ −log p_θ(x_0) for each text, p_θ multiplied out by hand, for arbitrary predictions."""
    process = uniform(last_step)
    for seed in range(3):
        denoiser = Random(TOY, process, seed=seed)
        law = reverse_law(process, denoiser, last_step)
        assert float(law.sum()) == pytest.approx(1)
        bound = Elbo(process, steps=T)
        for n, x in enumerate(TOY.x):
            nats = 0.0
            for i in range(1, T + 1):
                x_t, t = texts(3, 2), torch.full((9,), i / T)
                q = process.transition(None, t)[torch.arange(9)[:, None], x[None].expand(9, 2), x_t].prod(-1)
                nats += float((q * bound.at(denoiser, x[None].expand(9, 2), x_t, t)).sum())
            assert nats >= -float(law[n].log()) - 1e-9


def test_the_last_term_by_hand() -> None:
    """−log μ(x_0), or −log [ q(x_1|x_0)μ(x_0) / Σ_k q(x_1|k)μ_k ]; the other steps agree."""
    mu = torch.tensor([0.7, 0.2, 0.1]).log()
    x, x_t = torch.tensor([[2]]), torch.tensor([[0]])

    def denoiser(x_t, t, where=None):
        return MeanPrediction(pick(mu.expand(*x_t.shape, 3), where))

    values = {
        (name, i): float(Elbo(uniform(name), steps=T).at(denoiser, x, x_t, torch.tensor([i / T])))
        for name in ("product", "mean")
        for i in (1, 2)
    }
    own, other = 0.75 + 0.25 / 3, 0.25 / 3
    product = other * 0.1 / (own * 0.7 + other * 0.3)
    assert values["mean", 1] == pytest.approx(-torch.tensor(0.1).log())
    assert values["product", 1] == pytest.approx(-torch.tensor(product).log())
    assert values["mean", 2] == values["product", 2]
    own, other = 0.5 + 0.5 / 3, 0.5 / 3  # also the mean is multiplied with q(x_t|x_0) above 1/T, as fewer steps need
    later = uniform("mean").cross_entropy(MeanPrediction(mu[None]), x[0], x_t[0], torch.tensor([0.5]))
    assert float(later) == pytest.approx(-math.log(other * 0.1 / (own * 0.7 + other * 0.3)))


def test_closed_forms_are_the_dense_ones() -> None:
    process = uniform("mean")
    dense = process.dense()
    logits = torch.randn(9, 3, generator=torch.Generator().manual_seed(2))
    prediction = MeanPrediction.from_logits(logits)
    x, x_t = torch.arange(3).repeat(3), torch.arange(3).repeat_interleave(3)
    for i in (1, 2, 4):
        t, s = torch.full((9,), i / T), torch.full((9,), (i - 1) / T)
        for name, arguments in (("kl", (x, x_t, s, t)), ("cross_entropy", (x, x_t, t))):
            assert torch.allclose(getattr(process, name)(prediction, *arguments), getattr(dense, name)(prediction, *arguments))
        assert torch.allclose(prediction.reverse(process, x_t, s, t), prediction.reverse(dense, x_t, s, t))
        assert torch.allclose(prediction.reverse(process, x_t, s, t).exp().sum(-1), torch.ones(9))


def test_at_its_own_optimum_each_has_the_same_value() -> None:
    """μ = p(x_0^i | x_t^{≠i}) but at t = 1/T, where the mean itself must be p(x_0^i | x_t)."""
    leave_one_out, own = (Exact(TOY, uniform("product"), kind) for kind in ("leave-one-out", "mean"))

    def switched(x_t, t, where=None):
        first = t[:, None, None] < 1.5 / T
        return MeanPrediction(pick(torch.where(first, own(x_t, t).values, leave_one_out(x_t, t).values), where))

    product, mean = exact_bound(uniform("product"), leave_one_out), exact_bound(uniform("mean"), switched)
    assert product == pytest.approx(mean, abs=1e-9) and mean > TOY.entropy
    assert exact_bound(uniform("mean"), leave_one_out) > mean + 0.5  # the mean of the other steps, taken for p(x_0 | x_1)
    assert exact_bound(uniform("product"), switched) > product + 1e-3


def test_the_sampler_draws_the_model_that_is_bounded() -> None:
    for last_step in ("product", "mean"):
        process = uniform(last_step)
        denoiser = Random(TOY, process, seed=1)
        drawn = sample(process, denoiser, batch=40_000, length=2, sampler=Ancestral(T), seed=3)
        law = reverse_law(process, denoiser, last_step)
        counts = torch.bincount(TOY.index(drawn), minlength=9)
        assert float((counts / 40_000 - law).abs().max()) < 0.01
    laws = [reverse_law(uniform(name), Random(TOY, uniform(name), seed=1), name) for name in ("product", "mean")]
    assert float((laws[0] - laws[1]).abs().max()) > 0.03


def test_the_option_of_the_methods() -> None:
    for name in ("multinomial", "d3pm-uniform"):
        mean, product = method(f"{name}:last_step=mean,steps=50").process(5), method(name).process(5)
        assert isinstance(mean, Uniform) and isinstance(mean.schedule, CosineTable)
        assert mean.mean_until == 1 / 50 and product.mean_until == 0
        with pytest.raises(ValueError, match="last_step is product or mean, found 'median'"):
            method(f"{name}:last_step=median")
    with pytest.raises(ValueError, match="mean_until is for plug-in"):
        Uniform(3, Linear(), mean_until=0.1)
