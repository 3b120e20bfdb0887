"""Concrete scores on a user's neighbourhoods: loss, noise between neighbours and Metropolis–Hastings, by enumeration."""

import pytest
import torch

from toy import Exact, Toy, chi_square, expected, texts, total_variation
from unnoise import (
    ConcreteScore,
    Elbo,
    EulerLeaping,
    Linear,
    Markov,
    Masked,
    Metropolis,
    Model,
    Neighbourhood,
    RatioPrediction,
    Uniform,
    codec,
    method,
    sample,
)
from unnoise.sampler_table import named_sampler

TOY = Toy(4, 2, seed=0)
LINE = {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]}
RING = {0: [1, 3], 1: [0, 2], 2: [1, 3], 3: [0, 2]}
ONE_WAY = {0: [1, 2], 1: [0, 2], 2: [1, 3], 3: [2, 0]}  # 0 → 2 and 3 → 0 have no way back
SHAPES = {"line": LINE, "ring": RING, "one way": ONE_WAY}

pytestmark = pytest.mark.usefixtures("double")


def matrix(near: dict[int, list[int]]) -> torch.Tensor:
    found = torch.zeros(4, 4, dtype=torch.bool)
    for x, others in near.items():
        found[x, others] = True
    return found


def test_names_and_mistakes() -> None:
    assert torch.equal(Neighbourhood.named("line", 4).neighbours, matrix(LINE))
    assert torch.equal(Neighbourhood.named("ring", 4).neighbours, matrix(RING))
    assert torch.equal(Neighbourhood.named("complete", 4).neighbours, ~torch.eye(4, dtype=torch.bool))
    assert not Neighbourhood(torch.ones(3, 3, dtype=torch.bool)).neighbours.diagonal().any()
    lonely = matrix(LINE)
    lonely[3] = False
    process = Uniform(4, Linear())
    for make, words in (
        (lambda: Neighbourhood(torch.ones(2, 3, dtype=torch.bool)), r"a bool matrix \[S, S\], found torch.bool \[2, 3\]"),
        (lambda: Neighbourhood(torch.ones(2, 2)), "found torch.float64"),
        (lambda: Neighbourhood(lonely), "each token needs a neighbour, found none of token 3"),
        (lambda: Neighbourhood.named("star", 4), "one of line, ring, complete, found 'star'"),
        (lambda: Neighbourhood.named("line", 1), "at least two tokens, found 1"),
        (lambda: ConcreteScore(process, neighbours=Neighbourhood.named("line", 5)), "the process's 4 states, found 5"),
        (lambda: Markov.graph(Neighbourhood(matrix(ONE_WAY)), Linear()), "needs a symmetric one"),
        (lambda: Metropolis(3, neighbours="star"), "one of line, ring, complete, found 'star'"),  # pyright: ignore[reportArgumentType]
        (
            lambda: Metropolis(3, neighbours=Neighbourhood.named("line", 5)).neighbourhood(4),
            "over the 4 tokens, found one over 5",
        ),
        (lambda: method("csm:neighbours=star"), "the neighbours of csm are line, ring or complete, found 'star'"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_minimiser_is_the_concrete_score_of_the_neighbours(shape: str) -> None:
    """At s = p_t(x_n)/p_t(x) the gradient of the mean loss is zero; one above it is p_t(x), for neighbours, elsewhere zero."""
    process, t, near = Uniform(4, Linear()), 0.3, SHAPES[shape]
    loss = ConcreteScore(process, neighbours=Neighbourhood(matrix(near)))
    x = texts(4, 2)
    p_t = TOY.noised(process, x, torch.full((16,), t))
    concrete = torch.zeros(16, 2, 4)  # c_p(x; N) = p(x_n)/p(x) − 1
    within = torch.zeros(16, 2, 4, dtype=torch.bool)
    for n, tokens in enumerate(x.tolist()):
        for i in range(2):
            for y in near[tokens[i]]:
                other = tokens.copy()
                other[i] = y
                concrete[n, i, y] = p_t[TOY.index(torch.tensor(other))] / p_t[n] - 1
                within[n, i, y] = True
    for error in (0.0, 1.0):
        c = (concrete + error).requires_grad_()

        def denoiser(x_t, t, where=None, c=c):
            return RatioPrediction(1 + c[TOY.index(x_t)])

        mean = expected(TOY, process, t, lambda x, x_t, at: loss.at(denoiser, x, x_t, at))
        (gradient,) = torch.autograd.grad(mean, c)
        wanted = error * p_t[:, None, None] * within
        assert torch.allclose(gradient, wanted, atol=1e-12), shape
    assert (concrete[within] < 0).any() and (concrete[within] > 0).any()


def test_with_little_noise_it_is_the_concrete_score_of_the_data() -> None:
    """c_p(x; N) = p(x_n)/p(x) − 1 of the texts themselves as t → 0, an error of order t."""
    process, x = Uniform(4, Linear()), texts(4, 2)
    y = (x[:, 0] + 1) % 4
    wanted = TOY.p[TOY.index(torch.stack([y, x[:, 1]], 1))] / TOY.p - 1
    errors = []
    for t in (1e-4, 1e-5):
        s = Exact(TOY, process, "score")(x, torch.full((16,), t)).values.exp()
        errors.append(float(((s[torch.arange(16), 0, y] - 1 - wanted) / (wanted + 1)).abs().max()))
    assert errors[1] < 1e-3 and errors[0] / errors[1] == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_proposals_are_uniform_over_neighbours(shape: str) -> None:
    near = Neighbourhood(matrix(SHAPES[shape]))
    u = (torch.arange(1200) + 0.5) / 1200
    for x, others in SHAPES[shape].items():
        token = torch.full((1200,), x)
        counts = torch.bincount(near.propose(token, u), minlength=4)
        assert counts.nonzero()[:, 0].tolist() == sorted(others) and int(counts.max()) == 1200 // len(others)
        for y in others:
            back = 1 / len(SHAPES[shape][y]) if x in SHAPES[shape][y] else 0
            ratio = near.log_proposal_ratio(torch.tensor([x]), torch.tensor([y])).exp()
            assert float(ratio) == pytest.approx(back * len(others))


def kernel(process, denoiser, level: float, shape: str) -> torch.Tensor:
    """Return the transition matrix of one move over all texts, with proposals by hand: [N, N]."""
    near, x = SHAPES[shape], texts(4, 2)
    found = torch.zeros(16, 16)
    hood = Neighbourhood(matrix(near))
    for i in range(2):
        where = torch.zeros_like(x, dtype=torch.bool)
        where[:, i] = True
        prediction = denoiser(x.masked_fill(where, 4) if isinstance(process, Masked) else x, torch.full((16,), level), where)
        for y in range(4):
            token = torch.full((16,), y)
            proposal = torch.tensor([(y in near[int(old)]) / len(near[int(old)]) for old in x[:, i]]) / 2
            log_ratio = Metropolis.log_ratio(process, prediction, x[:, i], token, torch.full((16,), level))
            accept = (log_ratio + hood.log_proposal_ratio(x[:, i], token)).exp().clamp_max(1)
            proposed = x.clone()
            proposed[:, i] = y
            found[torch.arange(16), TOY.index(proposed)] += proposal * accept
            found[torch.arange(16), torch.arange(16)] += proposal * (1 - accept)
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["uniform", "masked"])
def test_detailed_balance_on_a_neighbourhood(shape: str, name: str) -> None:
    process = Uniform(4, Linear()) if name == "uniform" else Masked(4, Linear())
    level = 0.3
    target = TOY.noised(process, TOY.x, torch.full((16,), level)) if name == "uniform" else TOY.p
    moves = kernel(process, Exact(TOY, process, "score" if name == "uniform" else "mean"), level, shape)
    flow = target[:, None] * moves
    assert torch.allclose(moves.sum(1), torch.ones(16)) and torch.allclose(flow, flow.T, atol=1e-12)
    assert float(torch.linalg.eigvals(moves).abs().sort()[0][-2]) < 1 - 1e-3  # and it mixes


@pytest.mark.parametrize("shape", ["line", "one way"])
def test_the_sampler_reaches_the_target_over_a_neighbourhood(shape: str) -> None:
    """On a line the ends have one neighbour and the others two: without q(x|x′)/q(x′|x) their texts come too often."""
    process, level = Uniform(4, Linear()), 0.05
    exact = Exact(TOY, process, "score")
    t = torch.full((16,), level)
    p_t = TOY.noised(process, TOY.x, t)
    clean = exact(TOY.x, t).clean(process, TOY.x, t[:, None].expand(TOY.x.shape)).exp()  # the last call, from each text
    target = p_t @ (clean[:, 0, TOY.x[:, 0]] * clean[:, 1, TOY.x[:, 1]])
    near = "line" if shape == "line" else Neighbourhood(matrix(ONE_WAY))
    sampler = Metropolis(150, level=level, neighbours=near)
    drawn = sample(process, exact, batch=8000, length=2, sampler=sampler, seed=1)
    counts = torch.bincount(TOY.index(drawn), minlength=16)
    assert chi_square(counts, target) > 1e-4
    degrees = torch.tensor([len(SHAPES[shape][int(a)]) * len(SHAPES[shape][int(b)]) for a, b in TOY.x])
    if shape == "line":
        assert total_variation(target, target * degrees / (target * degrees).sum()) > 0.1  # what it would be without the factor


def test_noise_between_neighbours_needs_their_ratios_alone() -> None:
    """Rates are zero elsewhere, and bound and loss do not depend on other ratios."""
    process = Markov.graph(Neighbourhood.named("line", 4), Linear())
    rates = process.rate(torch.tensor(0.5))
    assert torch.equal(rates.fill_diagonal_(0) > 0, matrix(LINE))
    exact = Exact(TOY, process, "score")
    x_t, t = texts(4, 2), torch.full((16,), 0.4)
    log_s = exact(x_t, t).values
    elsewhere = ~(matrix(LINE)[x_t])
    spoiled = RatioPrediction(log_s.exp().masked_fill(elsewhere, 7.0))
    bound, loss = Elbo(process), ConcreteScore(process)
    for objective in (bound, loss):
        values = [objective.at(lambda *_, p=p: p, TOY.x, x_t, t) for p in (exact(x_t, t), spoiled)]
        assert torch.allclose(*values, atol=1e-12)


def test_the_method_learns_and_samples_on_a_line() -> None:
    for name in ("line", "ring"):
        found = method(f"csm:neighbours={name}")
        process = found.process(5)
        assert isinstance(process, Markov) and isinstance(found.sampler, EulerLeaping)
        assert torch.equal(process.generator > 0, Neighbourhood.named(name, 5).neighbours)
    assert isinstance(method("csm").process(5), Uniform)
    assert method("csm:neighbours=line").process(1).vocab == 1  # the trainer builds it before there is a codec
    sampler = named_sampler("metropolis:neighbours=ring")
    assert isinstance(sampler, Metropolis) and sampler.neighbours == "ring" and sampler.before is not None


def test_a_model_on_a_ring_end_to_end() -> None:
    torch.set_default_dtype(torch.float32)
    model = Model.build("csm:neighbours=ring", codec("text8"), length=8, width=16, depth=1, heads=2)
    x = torch.randint(27, (4, 8), generator=torch.Generator().manual_seed(0))
    loss = model.method.objective(model.process)(model.denoiser, x, torch.Generator().manual_seed(1)).mean()
    loss.backward()
    gradients = [w.grad for w in model.network.parameters() if w.grad is not None]
    assert all(torch.isfinite(g).all() for g in gradients) and any(g.abs().max() > 0 for g in gradients)
    assert len(model.generate(1, length=8, steps=4)[0]) == 8
    assert len(model.generate(1, length=8, steps=4, sampler="metropolis:neighbours=ring")[0]) == 8
