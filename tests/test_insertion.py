"""Flex-MDM on texts of length 0 to 3: the bound of the exact prediction is −log p of every text, by enumeration."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from toy import chi_square
from unnoise import Cosine, Insertion, InsertionElbo, InsertionPrediction, InsertionSampler, Linear, LogLinear, Polynomial
from unnoise.insertion import gap_cost, insert
from unnoise.process.insertion import PAD

K, LONGEST = 2, 3
TEXTS = [text for n in range(LONGEST + 1) for text in itertools.product(range(K), repeat=n)]
P = torch.softmax(torch.randn(len(TEXTS), generator=torch.Generator().manual_seed(3), dtype=torch.float64), 0)


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def padded(texts: list[tuple[int, ...]], width: int = LONGEST) -> torch.Tensor:
    return torch.tensor([[*text, *[PAD] * (width - len(text))] for text in texts], dtype=torch.long).view(len(texts), width)


def statuses(process: Insertion, u: float) -> tuple[float, float, float]:
    """Probabilities that a token is missing, masked, visible at u; the second by quadrature over T₁."""
    t = torch.tensor(1 - u)
    a, b = float(process.insertion.alpha(t)), float(process.unmasking.alpha(t))
    nodes, weights = np.polynomial.legendre.leggauss(60)
    level = torch.tensor(a * (nodes + 1) / 2)  # a(T₁) is uniform on [0, a]
    then = process.unmasking.alpha(process.insertion.inverse(level))
    masked = float((torch.tensor(a * weights / 2) * (1 - b) / (1 - then)).sum())
    return 1 - a, masked, a - masked


class Exact:
    """μ and g by summing over all texts and all ways in which a canvas can be a part of them."""

    def __init__(self, process: Insertion):
        self.process = process
        self.known: dict[tuple[tuple[int, ...], float], tuple[torch.Tensor, torch.Tensor]] = {}

    def at(self, canvas: tuple[int, ...], t: float) -> tuple[torch.Tensor, torch.Tensor]:
        if (canvas, t) in self.known:
            return self.known[canvas, t]
        missing = float(self.process.insertion.noise(torch.tensor(t)))
        mean, gaps, total = torch.zeros(len(canvas), K), torch.zeros(len(canvas) + 1), 0.0
        for text, p in zip(TEXTS, P.tolist(), strict=True):
            for chosen in itertools.combinations(range(len(text)), len(canvas)):
                if any(c not in (self.process.mask, text[i]) for c, i in zip(canvas, chosen, strict=True)):
                    continue
                weight = p * missing ** (len(text) - len(canvas))
                total += weight
                for place, i in enumerate(chosen):
                    mean[place, text[i]] += weight
                edges = [-1, *chosen, len(text)]
                for place in range(len(canvas) + 1):
                    gaps[place] += weight * (edges[place + 1] - edges[place] - 1)
        if total == 0:  # no text contains this canvas: anything will do, but nothing more is to come
            mean, total = mean + 1 / K, 1.0
        self.known[canvas, t] = mean / total, gaps / total
        return self.known[canvas, t]

    def __call__(self, x: torch.Tensor, t: torch.Tensor) -> InsertionPrediction:
        log_probs, gaps = torch.full((*x.shape, K), -math.log(K)), torch.zeros(x.shape[0], x.shape[1] + 1)
        for row, (canvas, at) in enumerate(zip(x.tolist(), t.tolist(), strict=True)):
            short = tuple(c for c in canvas if c != PAD)
            mean, gap = self.at(short, at)
            log_probs[row, : len(short)] = mean.clamp_min(1e-300).log()
            gaps[row, : len(short) + 1] = gap
        return InsertionPrediction(log_probs, gaps)


def bound(process: Insertion, text: tuple[int, ...], denoiser, nodes: int = 40) -> float:
    """The whole bound of one text: quadrature over u, a sum over the status of every token."""
    elbo = InsertionElbo(process)
    x, w = np.polynomial.legendre.leggauss(nodes)
    total = 0.0
    for v, weight in zip((x + 1) / 2, w / 2, strict=True):
        # u = 1 − (1 − v)²: the hazards grow as 1/(1 − u)
        u, jacobian = 1 - (1 - v) ** 2, 2 * (1 - v)
        chances = statuses(process, u)
        states = list(itertools.product(range(3), repeat=len(text)))
        whole = padded([text] * len(states), len(text))
        status = torch.tensor(states).view(len(states), len(text))
        partial = process.align(whole, status > 0, status == 2)
        p = torch.tensor([math.prod(chances[s] for s in state) for state in states])
        t = torch.full((len(states),), 1 - u)
        total += weight * jacobian * float((p * elbo.at(denoiser, partial, t)).sum())
    return total


SCHEDULES = {
    "linear": lambda: Insertion(K),
    "fast insertion": lambda: Insertion(K, Polynomial(2.0), Linear()),
    "fast unmasking": lambda: Insertion(K, Linear(), Polynomial(1.5)),
    "cosine": lambda: Insertion(K, Cosine(), Cosine()),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_bound_of_the_exact_prediction_is_the_likelihood_of_every_text(name: str) -> None:
    process = SCHEDULES[name]()
    exact = Exact(process)
    for text, p in zip(TEXTS, P.tolist(), strict=True):
        assert abs(bound(process, text, exact) + math.log(p)) < 2e-3, (text, bound(process, text, exact), -math.log(p))


def test_any_other_prediction_gives_more_on_average() -> None:
    process = Insertion(K)
    exact = Exact(process)

    def bent(x: torch.Tensor, t: torch.Tensor) -> InsertionPrediction:
        true = exact(x, t)
        log_probs = torch.log_softmax(true.log_probs.clamp_min(-20) + torch.tensor([0.5, -0.5]), -1)
        return InsertionPrediction(log_probs, true.gaps * 1.3)

    entropy = float(-(P * P.log()).sum())
    assert sum(p * bound(process, text, bent) for text, p in zip(TEXTS, P.tolist(), strict=True)) > entropy + 0.02


def test_a_corrupted_text_has_the_stated_statuses() -> None:
    process = Insertion(K, Polynomial(2.0), Cosine())
    x = padded([(0, 1, 1)] * 40_000)
    t = torch.full((40_000,), 0.4)
    partial = process.corrupt(x, t, torch.Generator().manual_seed(0))
    missing, masked, visible = statuses(process, 0.6)
    shares = [float((partial.gaps.sum(1) / 3).mean()), float((partial.x == K).sum() / 120_000)]
    shares.append(float(((partial.x != K) & (partial.x != PAD)).sum() / 120_000))
    for share, truth in zip(shares, (missing, masked, visible), strict=True):
        assert abs(share - truth) < 0.01
    there = partial.x != PAD
    assert torch.equal(there, partial.target != PAD)
    seen = there & (partial.x != K)
    assert torch.equal(partial.x[seen], partial.target[seen])
    assert ((partial.gaps.sum(1) + there.sum(1)) == 3).all()


def test_a_draw_of_the_bound_is_unbiased() -> None:
    process = Insertion(K)
    exact = Exact(process)
    text = (0, 1)
    truth = bound(process, text, exact)
    generator = torch.Generator().manual_seed(0)
    x = padded([text] * 100)
    means = torch.stack([InsertionElbo(process)(exact, x, generator).mean() for _ in range(80)])
    assert abs(float(means.mean()) - truth) < 4 * float(means.std()) / 80**0.5


def test_padding_is_nothing() -> None:
    process = Insertion(K)
    exact = Exact(process)
    partial = process.align(padded([(0, 1)], 2), torch.tensor([[True, False]]), torch.tensor([[False, False]]))
    wide = process.align(
        padded([(0, 1), (0, 1, 1)]), torch.tensor([[True, False, False], [True, True, True]]), torch.zeros(2, 3).bool()
    )
    t = torch.full((2,), 0.5)
    alone, beside = InsertionElbo(process).at(exact, partial, t[:1]), InsertionElbo(process).at(exact, wide, t)
    assert torch.allclose(alone[0], beside[0])


def test_the_sampler_writes_the_data() -> None:
    process = Insertion(K)
    frames = list(InsertionSampler(steps=80, longest=12).chain(process, Exact(process), batch=6000, seed=0))
    assert frames[0].x.shape[1] == 0 and frames[-1].t == 0
    number = {text: i for i, text in enumerate(TEXTS)}
    rows = [tuple(c for c in row if c != PAD) for row in frames[-1].x.tolist()]
    counts = torch.zeros(len(TEXTS))
    outside = 0
    for row in rows:
        if row in number:
            counts[number[row]] += 1
        else:
            outside += 1
    assert outside < 0.02 * len(rows)  # two insertions in one short step
    distance = 0.5 * float((counts / counts.sum() - P).abs().sum())
    assert distance < 0.04


def test_given_tokens_keep_their_order_and_closed_gaps_stay_closed() -> None:
    process = Insertion(K)

    def eager(x: torch.Tensor, t: torch.Tensor) -> InsertionPrediction:
        return InsertionPrediction(torch.full((*x.shape, K), -math.log(K)), torch.ones(x.shape[0], x.shape[1] + 1))

    given = torch.tensor([0, 1, 0])
    open_gaps = torch.tensor([False, True, False, False])
    sampler = InsertionSampler(steps=20, longest=30)
    for frame in sampler.chain(process, eager, batch=20, seed=1, given=given, open_gaps=open_gaps):
        for row, origin in zip(frame.x.tolist(), frame.origin.tolist(), strict=True):
            stands = [(o, c) for o, c in zip(origin, row, strict=True) if o >= 0]
            assert stands == [(0, 0), (1, 1), (2, 0)]
            text = [c for c in row if c != PAD]
            assert text[0] == 0 and text[-2:] == [1, 0]
    assert any(len([c for c in row if c != PAD]) > 3 for row in frame.x.tolist())
    assert not (frame.x == process.mask).any()


def test_no_text_grows_beyond_the_longest() -> None:
    process = Insertion(K)

    def greedy(x: torch.Tensor, t: torch.Tensor) -> InsertionPrediction:
        return InsertionPrediction(torch.full((*x.shape, K), -math.log(K)), torch.full((x.shape[0], x.shape[1] + 1), 50.0))

    last = list(InsertionSampler(steps=5, longest=7).chain(process, greedy, batch=4, seed=0))[-1]
    assert last.x.shape == (4, 7)


def test_insert_and_gap_cost_by_hand() -> None:
    x, origin = torch.tensor([[5, 6], [7, PAD]]), torch.tensor([[0, 1], [0, -1]])
    longer, stands = insert(x, origin, torch.tensor([[1, 0, 2], [0, 1, 0]]), mask=9)
    assert longer.tolist() == [[9, 5, 6, 9, 9], [7, 9, PAD, PAD, PAD]]
    assert stands.tolist() == [[-1, 0, 1, -1, -1], [0, -1, -1, -1, -1]]
    cost = gap_cost(torch.tensor([0.0, 2.0]), torch.tensor([0.3, 1.5]))
    assert torch.allclose(cost, torch.tensor([0.3, 1.5 - 2 - 2 * math.log(1.5)]))
    assert chi_square(torch.tensor([50, 50]), torch.tensor([0.5, 0.5])) > 0.5


def test_mistakes() -> None:
    process = Insertion(K)
    x = padded([(0, 1)])
    for make, words in (
        (lambda: Insertion(K, LogLinear(0.1)), r"α\(0\) = 1 and α\(1\) = 0"),
        (lambda: process.corrupt(torch.tensor([[-1, 0]]), torch.tensor([0.5])), "a token after padding"),
        (lambda: process.corrupt(x + 5, torch.tensor([0.5])), "tokens must lie in 0…1"),
        (lambda: InsertionElbo(Linear()), "needs an Insertion process"),  # pyright: ignore[reportArgumentType]
        (lambda: InsertionSampler(steps=0), "steps must be a whole number"),
        (lambda: InsertionSampler(longest=0), "longest must be ≥ 1"),
        (lambda: InsertionElbo(process)(lambda x, t: torch.zeros(1), x), "must return an InsertionPrediction"),  # pyright: ignore
        (
            lambda: InsertionElbo(process)(lambda x, t: InsertionPrediction(torch.zeros(1), torch.zeros(1)), x),
            "must return shapes",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            make()
