"""The contrasts: each formula by enumeration or by the core's own, and each command at tiny settings."""

import json
import math
from pathlib import Path

import pytest
import torch

from cases import build
from toy import Exact, Random, Toy, texts
from unnoise import Elbo, Linear, LogLinear, Masked, MeanPrediction, Process, ScorePrediction, Uniform
from unnoise.apps.contrasts import (
    base as training,
    paths as last_step,
    paths as path_estimate,
    scores,
    scores as grid,
    scores as score_entropy,
    subs,
)
from unnoise.apps.contrasts.base import ExactMean, Language
from unnoise.apps.contrasts.command import contrast_named, contrasts
from unnoise.cli.main import main
from unnoise.process.state import LATEST

TINY = {
    "path-estimate": "path-estimate:steps=4,draws=20",
    "subs": "subs:updates=2",
    "score-entropy": "score-entropy:updates=2",
    "scores": "scores:updates=2",
    "concrete-score": "concrete-score:levels=4",
    "last-step": "last-step:steps=4",
}
DOCS = Path(__file__).parents[3] / "docs"
double = pytest.mark.usefixtures("double")


# ---- the language ------------------------------------------------------------------------------------------------------


@double
@pytest.mark.parametrize("name", ["masked", "uniform", "uniform plug-in"])
def test_the_exact_denoiser_is_that_of_the_enumeration(name: str) -> None:
    language = Language(3, 2, seed=5)
    toy = Toy(3, 2)
    toy.p = language.p
    assert torch.equal(toy.x, language.x) and toy.entropy == pytest.approx(language.entropy)
    process = build(name, "linear", 3)
    x_t = texts(process.states, 2)
    for t in (0.1, 0.7):
        at = torch.full((len(x_t),), t)
        found = ExactMean(language, process)(x_t, at).log_probs
        wanted = Exact(toy, process, "leave-one-out" if "plug-in" in name else "mean")(x_t, at)
        assert isinstance(wanted, MeanPrediction) and torch.allclose(found.exp(), wanted.log_probs.exp(), atol=1e-12)


# ---- path-estimate -----------------------------------------------------------------------------------------------------


def all_paths(process: Process, x: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return every path x_1 … x_T of a text and its probability q(x_1 … x_T | x_0): [N, T, L], [N]."""
    noisy = texts(process.states, len(x))
    paths, weight = x.expand(1, 1, len(x)), torch.ones(1)
    for i in range(1, steps + 1):
        s, t = torch.tensor((i - 1) / steps), torch.tensor(i / steps)
        q = process.transition(s, t)[paths[:, -1][:, None], noisy[None]].prod(-1)  # [N, M]
        row, column = (q > 0).nonzero(as_tuple=True)
        weight = weight[row] * q[row, column]
        paths = torch.cat([paths[row], noisy[column][:, None]], 1)
    return paths[:, 1:], weight


@double
@pytest.mark.parametrize("name", ["uniform plug-in", "masked"])
def test_all_estimates_have_one_mean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """E over all paths and steps, listed: log ratios of paths, by hand too, and KL terms, whole or one step times T."""
    process, steps = build(name, "linear", 3), 3
    denoiser = Random(Toy(3, 2), process, seed=2)
    x = torch.tensor([2, 0])
    paths, weight = all_paths(process, x, steps)
    assert float(weight.sum()) == pytest.approx(1)
    states = iter(paths.unbind(1))
    monkeypatch.setattr(type(process), "noised", lambda *_: next(states))
    means = {}
    for choice in range(steps):
        states = iter(paths.unbind(1))
        monkeypatch.setattr(torch, "randint", lambda high, shape, c=choice, **_: torch.full(shape, c))
        found = path_estimate.estimates(process, denoiser, x.expand(len(paths), 2), steps, torch.Generator())
        for kind, values in found.items():
            means[kind] = means.get(kind, 0.0) + float((weight * values).sum()) / steps
    exact = path_estimate.exact_bound(process, denoiser, x, steps)
    assert means == {kind: pytest.approx(exact, abs=1e-9) for kind in path_estimate.KINDS}
    by_hand = -float(weight @ (-weight.log()))  # E log q(x_1 … x_T | x_0), then −E log p(x_0 … x_T)
    for path, w in zip(paths, weight.tolist(), strict=True):
        log_p = float(process.stationary()[path[-1]].log().sum())
        for i, (earlier, x_t) in enumerate(zip([x, *path[:-1]], path, strict=True), 1):
            s, t = (torch.full((2,), j / steps) for j in (i - 1, i))
            mu = denoiser(x_t[None], t[:1].clamp_max(LATEST))
            assert isinstance(mu, MeanPrediction)
            back = process.dense().mean_reverse(mu.log_probs[0], x_t, s, t)
            log_p += float(back[torch.arange(2), earlier].sum())
        by_hand -= w * log_p
    assert exact == pytest.approx(by_hand, abs=1e-9)


def deviations(process: Process, denoiser, x: torch.Tensor, steps: int) -> list[float]:
    """Return the standard deviation of T·term for a random t, with log q(x_t|x_s), with log q(x_s|x_t, x_0), and of T·KL."""
    noisy = texts(process.states, len(x))
    n = len(noisy)
    moments = torch.zeros(3, 2)
    for i in range(1, steps + 1):
        s, t = (torch.full((n, len(x)), j / steps) for j in (i - 1, i))
        q_t = process.marginal(x.expand(n, -1), t).gather(-1, noisy[..., None])[..., 0].prod(-1)
        step = process.transition(s[0, 0], t[0, 0])
        forward = step[noisy[:, None], noisy[None]].prod(-1).T  # [x_t, x_s]
        prediction = denoiser(noisy, t[:, 0].clamp_max(LATEST))
        log_p = prediction.reverse(process, noisy, s, t)[:, torch.arange(len(x)), noisy].sum(-1)  # [x_t, x_s]
        posterior = process.posterior(x.expand(n, -1), noisy, s, t)[:, torch.arange(len(x)), noisy].prod(-1)
        weight = torch.nan_to_num(q_t[:, None] * posterior) / steps
        known = weight > 1e-15
        terms = [(torch.where(known, one.log() - log_p, 0.0)) for one in (forward, posterior)]
        kl = torch.nan_to_num((posterior * terms[1]).sum(-1, keepdim=True)).expand(n, n)
        for k, values in enumerate((*terms, kl)):
            moments[k] += torch.stack([(weight * (steps * values) ** j)[known].sum() for j in (1, 2)])
    return (moments[:, 1] - moments[:, 0] ** 2).sqrt().tolist()


@double
@pytest.mark.parametrize("name", ["uniform plug-in", "masked"])
def test_the_deviation_of_a_term_grows_with_t_much_more_than_of_its_kl(name: str) -> None:
    """By enumeration; and with the terms of the posterior the KL is never worse (Rao–Blackwell)."""
    language = Language(3, 2, seed=0)
    x, process = language.x[language.p.argmax()], build(name, "linear", 3)
    few, many = (deviations(process, ExactMean(language, process, error=0.5), x, steps) for steps in (8, 128))
    assert few[2] <= few[1] and many[2] <= many[1] < many[0]
    assert many[0] / few[0] > 4 and many[2] / few[2] < 2.5 and many[0] > 3 * many[2]
    found = path_estimate.estimates(
        process, ExactMean(language, process, error=0.5), x.expand(20_000, 2), 8, torch.Generator().manual_seed(0)
    )
    assert float(found["step"].std()) == pytest.approx(few[0], rel=0.05)
    assert float(found["step KL"].std()) == pytest.approx(few[2], rel=0.05)


@double
def test_the_path_of_a_perfect_model_is_exact_while_its_kl_terms_vary() -> None:
    language, process = Language(3, 1, seed=0), Masked(3, Linear())
    x = language.x[1].expand(2000, 1)
    found = path_estimate.estimates(process, ExactMean(language, process), x, 8, torch.Generator().manual_seed(0))
    assert torch.allclose(found["path"], -language.p[1].log().expand(2000))
    assert float(found["path KL"].std()) > 0.1


# ---- subs --------------------------------------------------------------------------------------------------------------


@double
def test_the_loss_with_probability_on_the_mask_is_the_kl_of_the_dense_posteriors() -> None:
    """L_2 = KL(q(x_s|m, x_0) ‖ q(x_s|m, x_θ)) with x_θ over K + 1 states, every term from matrices."""
    process = Masked(3, Linear())
    x_theta = torch.softmax(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), -1)
    x, mask = torch.arange(20) % 3, torch.full((20,), 3)
    for s, t in ((0.0, 0.25), (0.25, 0.5), (0.75, 1.0)):
        at_s, at_t = torch.full((20,), s), torch.full((20,), t)
        to_t, to_s = process.transition(at_s, at_t), process.transition(None, at_s)
        q, p = (torch.einsum("bj,bji,bi->bi", one, to_s, to_t[:, :, 3]) for one in (torch.eye(4)[x], x_theta))
        q, p = q / q.sum(-1, keepdim=True), p / p.sum(-1, keepdim=True)
        wanted = (torch.xlogy(q, q) - torch.xlogy(q, p)).sum(-1)
        own, m = x_theta[torch.arange(20), x], x_theta[:, 3]
        assert torch.allclose(subs.step_loss(m, own, 1 - at_s, 1 - at_t), wanted)
        prediction = subs.MaskPrediction(x_theta.log())
        assert torch.allclose(process.kl(prediction, x, mask, at_s, at_t), wanted)
        assert torch.allclose(prediction.reverse(process, mask, at_s, at_t).exp(), p, atol=1e-12)
        with_subs = process.kl(prediction.subs(), x, mask, at_s, at_t)
        price = subs.price(m, 1 - at_s, 1 - at_t)
        assert torch.allclose(wanted, with_subs + price) and bool((price > 0).all())
        assert torch.allclose(subs.step_loss(0 * m, own / (1 - m), 1 - at_s, 1 - at_t), with_subs)
        assert torch.allclose(subs.price(0 * m, 1 - at_s, 1 - at_t), torch.zeros(20))


@double
def test_the_ratios_of_a_prediction_with_a_mask() -> None:
    """s_y = q(y|x_θ)/q(m|x_θ): many short steps become the integrand of continuous time."""
    process = Masked(3, Linear())
    prediction = subs.MaskPrediction(torch.log_softmax(torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), -1))
    x, mask, t = torch.arange(3), torch.full((3,), 3), torch.full((3,), 0.6)
    step = 1e-6
    assert torch.allclose(
        process.kl(prediction, x, mask, t - step, t) / step, process.integrand(prediction, x, mask, t), rtol=1e-4
    )


@double
def test_without_carry_over_tokens_cost_in_the_last_step_only() -> None:
    process = Masked(3, Linear())
    bound = subs.MaskElbo(process, steps=4)
    x_theta = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()

    def denoiser(x_t, t, where=None):
        return subs.MaskPrediction(x_theta.expand(int(x_t.numel()), 4))

    x = torch.tensor([[1]])
    assert float(bound.at(denoiser, x, x, torch.tensor([0.25]))) == pytest.approx(-math.log(0.2))
    assert float(bound.at(denoiser, x, x, torch.tensor([0.5]))) == pytest.approx(0)
    for t in (0.25, 0.5):
        wanted = subs.step_loss(*(torch.tensor(value) for value in (0.1, 0.2, 1.25 - t, 1 - t)))
        assert float(bound.at(denoiser, x, torch.tensor([[3]]), torch.tensor([t]))) == pytest.approx(float(wanted))
    read = subs.ReadWithSubs(denoiser, process)
    assert float(Elbo(process, steps=4).at(read, x, torch.tensor([[3]]), torch.tensor([0.25]))) == pytest.approx(
        -math.log(0.2 / 0.9)
    )


# ---- scores ------------------------------------------------------------------------------------------------------------


@double
def test_score_entropy_is_the_loss_of_the_normalised_mean_and_a_price() -> None:
    process = Masked(5, LogLinear(1e-3))
    log_s = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    x, mask, t = torch.arange(12) % 5, torch.full((12,), 5), torch.linspace(0.05, 0.95, 12)
    z = scores.implied_sum(process, ScorePrediction(log_s), mask, t)
    odds = process.schedule.noise(t) / process.schedule.alpha(t)
    assert torch.allclose(z, log_s[:, :5].exp().sum(-1) * odds)
    mean = process.integrand(MeanPrediction.from_logits(log_s[:, :5]), x, mask, t)
    assert torch.allclose(process.integrand(ScorePrediction(log_s), x, mask, t), mean + scores.price(process, z, t))
    assert bool((scores.price(process, z, t) > 0).all())
    mean_prediction = MeanPrediction.from_logits(log_s[:, :5])
    assert torch.allclose(scores.implied_sum(process, mean_prediction, mask, t), torch.ones(12))


# ---- score-entropy -----------------------------------------------------------------------------------------------------


def test_both_losses_are_least_at_the_ratio_and_their_derivatives_differ_by_s() -> None:
    for r in (2.0, 0.3, 0.0):
        s = torch.linspace(0.05, 3, 60, dtype=torch.float64, requires_grad=True)
        for loss in (score_entropy.squared, score_entropy.entropy):
            value, slope = loss(s, r)
            (gradient,) = torch.autograd.grad(value.sum(), s)
            assert torch.allclose(gradient, slope.detach()) and bool((value > -1e-12).all())
            assert float(loss(torch.tensor([max(r, 1e-12)], dtype=torch.float64), r)[0]) == pytest.approx(0, abs=1e-9)
        assert torch.allclose(score_entropy.entropy(s, r)[1] * s, score_entropy.squared(s, r)[1])
    near = torch.tensor([1e-9], dtype=torch.float64)
    assert float(score_entropy.entropy(near, 0.5)[1]) < -1e8 and float(score_entropy.squared(near, 0.5)[1]) == pytest.approx(
        -0.5
    )


def test_the_squared_loss_predicts_negative_ratios_end_to_end() -> None:
    """After a few updates on text, csm has negative ratios and sedd-uniform with score entropy has none."""
    found = contrast_named("score-entropy:updates=12").measure(lambda _: None)
    assert found["csm"]["negative"] > 0 and found["csm"]["least"] < 0
    assert found["sedd-uniform"]["negative"] == 0 and found["sedd-uniform"]["least"] > 0
    wanted = 0.3 / (0.3 + 27 * 0.7)  # up to α(1) = 1e-3
    assert found["csm"]["least true"] == pytest.approx(wanted, rel=2e-3)


# ---- concrete-score ----------------------------------------------------------------------------------------------------


def test_the_gradient_is_that_of_the_log_density_which_is_normalized() -> None:
    x = torch.linspace(-3, 3, 31, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(grid.log_density(x).sum(), x)
    assert torch.allclose(slope, grid.gradient(x.detach()))
    fine = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    assert float(grid.log_density(fine).exp().sum() * 1e-3) == pytest.approx(1, abs=1e-6)


def test_the_concrete_score_becomes_the_score() -> None:
    """c/δ = (p(x + δ) − p(x))/(δ p(x)) at each point; halving δ halves its error, and quarters the two-sided one."""
    x, p, one, two = grid.on_grid(0.25)
    density = grid.log_density(x).exp()
    up, down = (grid.log_density(x + sign * 0.25).exp() for sign in (1, -1))
    assert torch.allclose(one, (up - density) / (0.25 * density)) and torch.allclose(two, (up - down) / (0.5 * density))
    assert torch.allclose(p / p.sum(), density / density.sum())
    found = contrast_named("concrete-score:levels=9").measure(lambda _: None)
    ratios = {
        name: [a / b for a, b in zip(found[name], found[name][1:], strict=False)] for name in ("error", "two-sided error")
    }
    assert ratios["error"][-1] == pytest.approx(2, rel=0.01) and ratios["two-sided error"][-1] == pytest.approx(4, rel=0.01)


# ---- last-step ---------------------------------------------------------------------------------------------------------


@double
def test_the_bounds_of_the_last_step_are_exact_sums() -> None:
    found = contrast_named("last-step:steps=8", seed=3).measure(lambda _: None)
    language = Language(last_step.STEP_VOCAB, last_step.STEP_LENGTH, 3)
    assert found["entropy"] == pytest.approx(language.entropy)
    for product, mean, mismatch in zip(found["product"], found["mean"], found["mismatch"], strict=True):
        assert product["bound"] == pytest.approx(mean["bound"], abs=1e-9)
        assert found["entropy"] < product["bound"] <= mismatch["bound"] + 1e-9
    bounds = [row["bound"] for row in found["product"]]
    assert bounds == sorted(bounds, reverse=True)
    process = Uniform(4, Linear(), reverse="plug-in")  # one draw of the core's bound, many times
    x = language.x[torch.multinomial(language.p, 20_000, replacement=True, generator=torch.Generator().manual_seed(0))]
    nats = Elbo(process, steps=8)(ExactMean(language, process), x, torch.Generator().manual_seed(1))
    assert abs(float(nats.mean()) - bounds[-1]) < 4 * float(nats.std()) / len(x) ** 0.5


# ---- training and the command ------------------------------------------------------------------------------------------


def test_training_goes_over_the_text_and_learns() -> None:
    model = training.small_model("mdlm", 0)
    x = training.windows(model, "test", 16)
    bits = []
    for update in training.train(model, Elbo(model.process), 30, seed=0):  # pyright: ignore[reportArgumentType]
        if update in (0, 30):
            with torch.no_grad():
                bits.append(float(Elbo(model.process)(model.denoiser, x, torch.Generator().manual_seed(0)).mean()))  # pyright: ignore[reportArgumentType]
    assert bits[1] < bits[0] - 5
    assert training.moments(10) == [0, 1, 2, 4, 10]


@pytest.mark.parametrize("name", contrasts())
def test_each_command_draws_and_explains(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    light, dark = tmp_path / "light.svg", tmp_path / "dark.png"
    assert main(["contrast", TINY[name], "--out", str(light)]) == 0
    out, err = capsys.readouterr()
    about = contrasts()[name].about
    assert about in out and 8 <= len(about.splitlines()) <= 12 and max(map(len, about.splitlines())) <= 136
    assert f"wrote {light}" in err and light.read_bytes()[:5] == b"<?xml"
    assert main(["contrast", TINY[name], "--out", str(dark), "--dark", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["contrast"] == name and found["seed"] == 0 and dark.read_bytes()[:4] == b"\x89PNG"
    assert "\n".join(contrast_named(TINY[name]).lines(found)) in out  # the same seed measures the same


@pytest.mark.parametrize("name", contrasts())
def test_the_page_has_each_explanation(name: str) -> None:
    page = (DOCS / "apps" / "plots.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    assert f"unnoise contrast {name}" in page and " ".join(contrasts()[name].about.split()) in words
    for shade in ("light", "dark"):
        assert f"contrast-{name}-{shade}.png" in page and (DOCS / f"contrast-{name}-{shade}.png").exists()


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for line, words in (
        ("sub", "unknown contrast 'sub': use one of path-estimate, subs"),
        ("subs:update=3", "the contrast subs has no field 'update'; did you mean 'updates'?"),
        ("subs:seed=3", "has no field 'seed'"),
        ("subs:updates=0", "updates of the contrast subs must be a whole number ≥ 1, found 0"),
        ("subs:updates=many", "subs:updates must be a number, found 'many'"),
        ("subs --out picture.gif", ".png or .svg"),
    ):
        name, *more = line.split()
        assert main(["contrast", name, *(more or ["--out", str(tmp_path / "a.png")])]) == 2
        err = capsys.readouterr().err
        assert words in err and err.count("\n") == 1, err
    assert not list(tmp_path.iterdir())
