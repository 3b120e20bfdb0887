"""Flex-MDM on texts of length 0 to 3: the bound of the exact prediction is −log p of every text, by enumeration."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch

from unnoise import (
    Ancestral,
    Cosine,
    Insertion,
    InsertionElbo,
    InsertionPrediction,
    InsertionSampler,
    Linear,
    LogLinear,
    Masked,
    Model,
    Polynomial,
    sample,
    sample_frames,
)
from unnoise.data import Characters
from unnoise.families.insertion import gap_cost
from unnoise.families.insertion_sampler import grow
from unnoise.process.state import OPEN_GAP, PAD

K, LONGEST = 2, 3
TEXTS = [text for n in range(LONGEST + 1) for text in itertools.product(range(K), repeat=n)]
P = torch.softmax(torch.randn(len(TEXTS), generator=torch.Generator().manual_seed(3), dtype=torch.float64), 0)


leggauss = cache(np.polynomial.legendre.leggauss)
pytestmark = pytest.mark.usefixtures("double")


def padded(texts: list[tuple[int, ...]], width: int = LONGEST) -> torch.Tensor:
    return torch.tensor([[*text, *[PAD] * (width - len(text))] for text in texts], dtype=torch.long).view(len(texts), width)


def statuses(process: Insertion, u: float) -> tuple[float, float, float]:
    """Probabilities that a token is missing, masked, visible at u; the second by quadrature over T₁."""
    t = torch.tensor(1 - u)
    a, b = float(process.insertion.alpha(t)), float(process.unmasking.alpha(t))
    nodes, weights = leggauss(60)
    level = torch.tensor(a * (nodes + 1) / 2)  # a(T₁) is uniform on [0, a]
    then = process.unmasking.alpha(process.insertion.inverse(level))
    masked = float((torch.tensor(a * weights / 2) * (1 - b) / (1 - then)).sum())
    return 1 - a, masked, a - masked


def looked_up(at, x: torch.Tensor, t: torch.Tensor) -> InsertionPrediction:
    """Make a prediction from a function of one canvas and one time, called once for each pair that occurs."""
    times, when = torch.unique(t.double(), return_inverse=True)
    signs = K + 2  # the tokens, the mask and PAD
    number = ((x - PAD) * signs ** torch.arange(x.shape[1])).sum(1) * len(times) + when
    number, which = torch.unique(number, return_inverse=True)
    log_probs, gaps = torch.full((len(number), x.shape[1], K), -math.log(K)), torch.zeros(len(number), x.shape[1] + 1)
    canvases = (number // len(times))[:, None] // signs ** torch.arange(x.shape[1]) % signs + PAD
    for row, (canvas, i) in enumerate(zip(canvases.tolist(), (number % len(times)).tolist(), strict=True)):
        short = tuple(c for c in canvas if c != PAD)
        mean, gap = at(short, float(times[i]))
        log_probs[row, : len(short)], gaps[row, : len(short) + 1] = mean.clamp_min(1e-300).log(), gap
    return InsertionPrediction(log_probs[which], gaps[which])


class Exact:
    """μ and g by summing over all texts and all ways in which a canvas can be a part of them."""

    def __init__(self, process: Insertion):
        self.process = process
        self.known: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def sums(self, canvas: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sum p(text) for each number d of missing tokens: by token [d, n, K], by tokens in a gap [d, n + 1], and alone [d]."""
        if canvas in self.known:
            return self.known[canvas]
        n = len(canvas)
        mean, gaps, total = torch.zeros(LONGEST + 1, n, K), torch.zeros(LONGEST + 1, n + 1), torch.zeros(LONGEST + 1)
        for text, p in zip(TEXTS, P.tolist(), strict=True):
            missing = len(text) - n
            for chosen in itertools.combinations(range(len(text)), n):
                if any(c not in (self.process.mask, text[i]) for c, i in zip(canvas, chosen, strict=True)):
                    continue
                total[missing] += p
                for place, i in enumerate(chosen):
                    mean[missing, place, text[i]] += p
                edges = [-1, *chosen, len(text)]
                for place in range(n + 1):
                    gaps[missing, place] += p * (edges[place + 1] - edges[place] - 1)
        self.known[canvas] = mean, gaps, total
        return self.known[canvas]

    def at(self, canvas: tuple[int, ...], t: float) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.process.insertion.noise(torch.tensor(t)) ** torch.arange(LONGEST + 1)
        mean, gaps, total = (torch.tensordot(weight, sums, 1) for sums in self.sums(canvas))
        if total == 0:  # no text contains this canvas: anything will do, but nothing more is to come
            return mean + 1 / K, gaps
        return mean / total, gaps / total

    def __call__(self, x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
        return looked_up(self.at, x, t)


def bound(process: Insertion, text: tuple[int, ...], denoiser, nodes: int = 40, elbo: InsertionElbo | None = None) -> float:
    """Compute the whole bound of one text: quadrature over u, a sum over the status of every token."""
    elbo = elbo or InsertionElbo(process)
    x, w = leggauss(nodes)
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

    def bent(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
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


def law(rows: torch.Tensor) -> torch.Tensor:
    """Count each text; all others count in the last place."""
    number = {text: i for i, text in enumerate(TEXTS)}
    found = [number.get(tuple(c for c in row if c != PAD), len(TEXTS)) for row in rows.tolist()]
    return torch.bincount(torch.tensor(found), minlength=len(TEXTS) + 1) / len(rows)


def distance(shares: torch.Tensor, truth: torch.Tensor) -> float:
    return 0.5 * float((shares - torch.nn.functional.pad(truth, (0, 1))).abs().sum())


def test_the_sampler_comes_to_the_data_as_steps_grow() -> None:
    process = Insertion(K)
    far = []
    for steps in (4, 16, 128):
        frames = list(sample_frames(process, Exact(process), batch=6000, length=12, sampler=InsertionSampler(steps), seed=0))
        assert (frames[0].x == OPEN_GAP).all() and frames[-1].t == 0
        far.append(distance(law(frames[-1].x), P))
    assert far[0] > far[1] > far[2] and far[2] < 0.04


def test_a_wrong_hazard_or_a_wrong_gap_is_seen() -> None:
    """Check that the tests above would fail with 20 % more insertions or with the bound's weights swapped."""
    process = Insertion(K, Polynomial(2.0), Linear())
    exact = Exact(process)

    def generous(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
        return InsertionPrediction(exact(x, t).log_probs, exact(x, t).gaps * 1.2)

    right, wrong = (
        distance(law(sample(process, d, batch=6000, length=12, sampler=InsertionSampler(128), seed=0)), P)
        for d in (exact, generous)
    )
    assert right < 0.04 < wrong
    swapped = InsertionElbo(Insertion(K, Linear(), Polynomial(2.0)))  # each hazard in the other's place
    for text, p in zip(TEXTS[1:], P.tolist()[1:], strict=True):
        assert abs(bound(process, text, exact, elbo=swapped) + math.log(p)) > 0.02


class Random:
    """Any μ and g = (1 − a)·G of a canvas and a time, none at the greatest length."""

    def __init__(self, process: Insertion, longest: int, seed: int):
        self.process, self.longest = process, longest
        generator = torch.Generator().manual_seed(seed)
        self.canvases = [c for n in range(longest + 1) for c in itertools.product(range(K + 1), repeat=n)]
        self.number = {canvas: i for i, canvas in enumerate(self.canvases)}
        self.logits = torch.randn(len(self.canvases), 2, longest, K, generator=generator)
        self.rates = torch.rand(len(self.canvases), 2, longest + 1, generator=generator) * 2
        self.insertions = torch.tensor(  # from, to, place
            [
                (i, self.number[(*canvas[:place], K, *canvas[place:])], place)
                for canvas, i in self.number.items()
                if len(canvas) < longest
                for place in range(len(canvas) + 1)
            ]
        )
        self.unmaskings = torch.tensor(  # from, to, place, token
            [
                (i, self.number[(*canvas[:place], y, *canvas[place + 1 :])], place, y)
                for canvas, i in self.number.items()
                for place, token in enumerate(canvas)
                if token == K
                for y in range(K)
            ]
        )

    def at(self, canvas: tuple[int, ...], t: float) -> tuple[torch.Tensor, torch.Tensor]:
        i = self.number[canvas]
        logits, rates = ((1 - t) * both[i, 0] + t * both[i, 1] for both in (self.logits, self.rates))
        left = float(self.process.insertion.noise(torch.tensor(t))) * (len(canvas) < self.longest)
        return torch.softmax(logits[: len(canvas)], -1), left * rates[: len(canvas) + 1]

    def __call__(self, x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
        return looked_up(self.at, x, t)

    def likelihood(self, steps: int = 1500) -> torch.Tensor:
        """p of each canvas at the end, by Kolmogorov's equation in the clock −log t (for linear schedules): [canvases]."""
        total = 16.0
        p = torch.zeros(len(self.canvases))
        p[self.number[()]] = 1.0
        h = total / steps
        for i in range(steps):
            middle = self.generator(math.exp(-(i + 0.5) * h)).T
            p = torch.linalg.matrix_exp(h * middle) @ p
        return p

    def generator(self, t: float) -> torch.Tensor:
        """Rates between canvases per unit of −log t, where both hazards are 1: [from, to]."""
        logits, rates = ((1 - t) * both[:, 0] + t * both[:, 1] for both in (self.logits, self.rates))
        mean, gaps = torch.softmax(logits, -1), float(self.process.insertion.noise(torch.tensor(t))) * rates
        rate = torch.zeros(len(self.canvases), len(self.canvases))
        (one, other, place), (before, after, at, token) = self.insertions.T, self.unmaskings.T
        rate.index_put_((one, other), gaps[one, place], accumulate=True)
        rate.index_put_((before, after), mean[before, at, token], accumulate=True)
        return rate - torch.diag(rate.sum(1))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_of_any_prediction_lies_above_its_likelihood(seed: int) -> None:
    process = Insertion(K)
    model = Random(process, longest=2, seed=seed)
    p = model.likelihood()
    whole = [text for text in TEXTS if len(text) <= 2]
    assert abs(float(sum(p[model.number[text]] for text in whole)) - 1) < 1e-4
    above = [bound(process, text, model) + math.log(float(p[model.number[text]])) for text in whole]
    assert min(above) > -2e-3  # −log p ≤ bound for every text …
    assert max(above) > 0.02  # … and the two are not the same thing
    rows = sample(process, model, batch=6000, length=2, sampler=InsertionSampler(steps=200), seed=seed)
    truth = torch.tensor([float(p[model.number[text]]) if len(text) <= 2 else 0.0 for text in TEXTS])
    assert distance(law(rows), truth) < 0.04  # the sampler draws from that law


def eager(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
    return InsertionPrediction(torch.full((*x.shape, K), -math.log(K)), torch.ones(x.shape[0], x.shape[1] + 1))


@pytest.mark.parametrize("sampler", [InsertionSampler(20), InsertionSampler(20, order="confidence")])
def test_given_tokens_keep_their_order_and_closed_gaps_stay_closed(sampler: InsertionSampler) -> None:
    process = Insertion(K)
    given = torch.tensor([0, OPEN_GAP, 1, -1, 0]).expand(20, -1).contiguous()
    grown = set()
    for frame in sample_frames(process, eager, batch=20, length=9, sampler=sampler, seed=1, given=given):
        if frame.place is None:
            continue
        for row, place in zip(frame.x.tolist(), frame.place.tolist(), strict=True):
            text = [(c, p) for c, p in zip(row, place, strict=True) if c != PAD]
            assert [p for _, p in text] == sorted(p for _, p in text)
            assert [c for c, p in text if p in (0, 2, 4)] == [0, 1, 0]
            assert [p for _, p in text if p != 1] == [0, 2, 3, 4] and len(text) <= 9
            grown.add(len(text))
    assert max(grown) == 9 and min(grown) == 4
    assert not (frame.x == process.mask).any()


def test_two_gaps_are_kept_apart() -> None:
    process = Insertion(K)
    given = torch.tensor([[OPEN_GAP, 0, 1, OPEN_GAP], [0, OPEN_GAP, OPEN_GAP, 1]])
    *_, last = sample_frames(process, eager, batch=2, length=30, sampler=InsertionSampler(31), seed=3, given=given)
    for row, place, fixed in zip(last.x.tolist(), last.place.tolist(), ((1, 2), (0, 3)), strict=True):
        text = [(c, p) for c, p in zip(row, place, strict=True) if c != PAD]
        assert [c for c, p in text if p in fixed] == [0, 1] and len(text) > 2
    outer = [p for p in last.place[0].tolist() if p < 4]
    assert outer == sorted(outer) and {0, 3} <= set(outer)


def test_confidence_order_unmasks_as_many_and_the_surest_first() -> None:
    """Each step removes a share (b(v) − b(u))/(1 − b(u)) of the masks, whatever the order."""
    process = Insertion(K)
    sure = torch.tensor([0.5, 0.99, 0.6, 0.9])

    def closed(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
        probs = torch.stack([sure, 1 - sure], -1)[: x.shape[1]].expand(*x.shape, K)
        return InsertionPrediction(probs.log(), torch.zeros(x.shape[0], x.shape[1] + 1))

    given = torch.full((4000, 4), -1)
    frames = list(
        sample_frames(
            process, closed, batch=4000, length=4, sampler=InsertionSampler(5, order="confidence"), seed=0, given=given
        )
    )
    left = [float((frame.x == process.mask).double().mean()) for frame in frames]
    assert left == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0], abs=0.015)
    for frame in frames[1:-1]:
        revealed = frame.x != process.mask
        for surer, less in ((1, 3), (3, 2), (2, 0)):
            assert (revealed[:, surer] | ~revealed[:, less]).all()


def test_no_text_grows_beyond_the_longest() -> None:
    process = Insertion(K)

    def greedy(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> InsertionPrediction:
        return InsertionPrediction(torch.full((*x.shape, K), -math.log(K)), torch.full((x.shape[0], x.shape[1] + 1), 50.0))

    assert sample(process, greedy, batch=4, length=7, sampler=InsertionSampler(steps=5), seed=0).shape == (4, 7)


def test_grow_and_gap_cost_by_hand() -> None:
    x = torch.tensor([[5, 6], [7, PAD]])
    new = torch.tensor([[1, 2, 3], [4, 5, 6]])
    longer, numbers = grow(
        torch.tensor([[1, 0, 2], [0, 1, 0]]), x != PAD, (x, torch.full((2, 3), 9), PAD), (torch.zeros_like(x), new, -3)
    )
    assert longer.tolist() == [[9, 5, 6, 9, 9], [7, 9, PAD, PAD, PAD]]
    assert numbers.tolist() == [[1, 0, 0, 3, 3], [0, 5, -3, -3, -3]]
    cost = gap_cost(torch.tensor([0.0, 2.0]), torch.tensor([0.3, 1.5]))
    assert torch.allclose(cost, torch.tensor([0.3, 1.5 - 2 - 2 * math.log(1.5)]))


def test_padding_changes_nothing_in_the_network() -> None:
    """Predictions for a text do not change when longer texts join the batch, so attention never includes padding."""
    model = Model.build("flexmdm", Characters("ab"), length=9, width=32, depth=3, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    x = torch.tensor([[0, K, 1, PAD, PAD, PAD], [1, 0, K, K, 1, 0]])
    t = torch.tensor([0.4, 0.4])
    both, alone = model.denoiser(x, t), model.denoiser(x[:1, :3], t[:1])
    assert torch.allclose(both.log_probs[0, :3], alone.log_probs[0], atol=1e-6)
    assert torch.allclose(both.gaps[0, :4], alone.gaps[0], atol=1e-6)
    full = model.denoiser(torch.full((1, 9), K), t[:1])
    assert (full.gaps == 0).all() and (alone.gaps > 0).all()  # at the greatest length nothing more is expected
    at_masks = model.denoiser(x, t, x == K)
    assert torch.allclose(at_masks.log_probs, both.log_probs[x == K])


def test_mistakes() -> None:
    process = Insertion(K)
    x = padded([(0, 1)])
    for make, words in (
        (lambda: Insertion(K, LogLinear(0.1)), r"α\(0\) = 1 and α\(1\) = 0"),
        (lambda: process.corrupt(torch.tensor([[-1, 0]]), torch.tensor([0.5])), "a token after padding"),
        (lambda: process.corrupt(x + 5, torch.tensor([0.5])), "tokens must lie in 0…1"),
        (lambda: InsertionElbo(Linear()), "needs an Insertion process"),  # pyright: ignore[reportArgumentType]
        (lambda: InsertionSampler(steps=0), "steps must be a whole number"),
        (lambda: InsertionSampler(steps=1), "at least two network calls"),
        (lambda: InsertionSampler(order="x"), 'order must be "random" or "confidence"'),  # pyright: ignore[reportArgumentType]
        (lambda: sample(process, eager, batch=1, length=0, sampler=InsertionSampler()), "length must be ≥ 1"),
        (lambda: sample(process, eager, batch=1, length=3, sampler=Ancestral()), "needs a process over tokens"),
        (
            lambda: sample(Masked(K, Linear()), eager, batch=1, length=3, sampler=InsertionSampler()),
            "needs an Insertion process",
        ),
        (
            lambda: sample(process, eager, batch=1, length=3, sampler=InsertionSampler(), given=torch.tensor([[-3]])),
            "given must hold tokens 0…1, or -1 for one free token or -2 for any number of them, found -3",
        ),
        (lambda: InsertionElbo(process)(lambda x, t, where: torch.zeros(1), x), "must return an InsertionPrediction"),  # pyright: ignore
        (
            lambda: InsertionElbo(process)(lambda x, t, where: InsertionPrediction(torch.zeros(1), torch.zeros(1)), x),
            "must return shapes",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            make()
