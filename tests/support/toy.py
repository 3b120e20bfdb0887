"""Enumerable distributions: every text, every noised text, and the exact prediction, by brute force."""

import itertools
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from unnoise import MeanPrediction, Prediction, Process, ScorePrediction

NODES = 40


def texts(states: int, length: int) -> Tensor:
    """All sequences: [states^length, length]."""
    return torch.tensor(list(itertools.product(range(states), repeat=length)))


@cache
def quadrature(nodes: int = NODES, power: float = 2.0) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre nodes and weights on [0, 1] after t = u^power: [n], [n]."""
    import numpy as np

    u, w = np.polynomial.legendre.leggauss(nodes)
    u, w = torch.tensor((u + 1) / 2), torch.tensor(w / 2)
    return u**power, w * power * u ** (power - 1)


class Toy:
    """A random joint distribution over K^L texts."""

    def __init__(self, vocab: int, length: int, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.vocab, self.length = vocab, length
        self.x = texts(vocab, length)
        self.p = torch.softmax(1.5 * torch.randn(len(self.x), generator=generator, dtype=torch.float64), 0)

    @property
    def entropy(self) -> float:
        return float(-(self.p * self.p.log()).sum())

    def index(self, x: Tensor, states: int | None = None) -> Tensor:
        """Return the index of each text among all texts: [..., L] → [...]."""
        base = states or self.vocab
        place = base ** torch.arange(self.length - 1, -1, -1)
        return (x * place).sum(-1)

    @torch.no_grad()
    def likelihoods(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """q(x_t^i | x_0^i) for all texts: x_t [B, L], t [B] → [B, N, L]."""
        times, when = torch.unique(t.double(), return_inverse=True)
        matrices = process.transition(None, times)[:, : self.vocab]  # [T, K, S]
        columns = torch.stack([matrices[when, :, x_t[:, i]] for i in range(self.length)], -1)
        return torch.stack([columns[:, self.x[:, i], i] for i in range(self.length)], -1)

    def noised(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """q(x_t): [B]."""
        return self.likelihoods(process, x_t, t).prod(-1) @ self.p

    def marginals(self, joint: Tensor, position: int) -> Tensor:
        """[B, N] weights of texts → [B, K] weights of the token at a position."""
        out = joint.new_zeros(len(joint), self.vocab)
        return out.index_add(1, self.x[:, position], joint)

    def posterior_mean(self, process: Process, x_t: Tensor, t: Tensor, own: bool = True) -> Tensor:
        """p(x_0^i = k | x_t), or without position i's own token: [B, L, K]."""
        like = self.likelihoods(process, x_t, t)
        rows = []
        for i in range(self.length):
            rest = [j for j in range(self.length) if own or j != i]
            joint = like[:, :, rest].prod(-1) * self.p
            marginal = self.marginals(joint, i)
            total = marginal.sum(-1, keepdim=True)
            rows.append(torch.where(total > 0, marginal / total, torch.full_like(marginal, 1 / self.vocab)))
        return torch.stack(rows, 1)

    def score(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """p_t(x_t with y at i)/p_t(x_t): [B, L, S]."""
        here = self.noised(process, x_t, t)
        out = torch.empty(*x_t.shape, process.states, dtype=torch.float64)
        for i in range(self.length):
            for y in range(process.states):
                there = x_t.clone()
                there[:, i] = y
                out[:, i, y] = self.noised(process, there, t) / here
        return out


def pick(values: Tensor, where: Tensor | None) -> Tensor:
    return values if where is None else values[where]


class Exact:
    """The denoiser that knows the toy: kind "mean", "leave-one-out" or "score"."""

    def __init__(self, toy: Toy, process: Process, kind: str):
        self.toy, self.process, self.kind = toy, process, kind

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        states = self.process.states
        times, when = torch.unique(t.double(), return_inverse=True)
        distinct, which = torch.unique(self.toy.index(x_t, states) * len(times) + when, return_inverse=True)
        x_t, t = texts(states, self.toy.length)[distinct // len(times)], times[distinct % len(times)]
        if self.kind == "score":
            return ScorePrediction(pick(self.toy.score(self.process, x_t, t).clamp_min(1e-300).log()[which], where))
        mean = self.toy.posterior_mean(self.process, x_t, t, own=self.kind == "mean")
        return MeanPrediction(pick(mean.clamp_min(1e-300).log()[which], where))


class ExactBlocks:
    """The block denoiser that knows the toy; error: logits that are added, which make it wrong."""

    def __init__(self, toy: Toy, error: float = 0.0):
        self.toy = toy
        generator = torch.Generator().manual_seed(3)
        tables = (toy.vocab + 1) ** toy.length
        self.error = error * torch.randn(tables, toy.length, toy.vocab, generator=generator, dtype=torch.float64)
        self.known: dict[tuple[tuple[int, ...], int], Tensor] = {}

    def blocks(self, x_t: Tensor, x: Tensor, t: Tensor, where: Tensor, block: int) -> MeanPrediction:
        """Predict each block given the blocks before it, complete or not."""
        assert x.shape[1] <= self.toy.length
        found = []
        for row, i in where.nonzero().tolist():
            first = i // block * block
            read = torch.cat([x[row, :first], x_t[row, first : first + block]])  # what position i may see
            found.append(self.predicted(tuple(read.tolist()), i))
        return MeanPrediction(torch.stack(found))

    def predicted(self, read: tuple[int, ...], i: int) -> Tensor:
        """Compute the log-probabilities of position i given the first tokens, some of them masked: [K]."""
        if (read, i) not in self.known:
            toy = self.toy
            fits = torch.ones(len(toy.x), dtype=torch.bool)
            for place, token in enumerate(read):
                fits &= (toy.x[:, place] == token) | (token == toy.vocab)
            mean = toy.marginals((toy.p * fits)[None], i)[0]
            number = sum(token * (toy.vocab + 1) ** place for place, token in enumerate(read))
            logits = (mean / mean.sum()).clamp_min(1e-300).log() + self.error[number, i]
            self.known[read, i] = torch.log_softmax(logits, 0)
        return self.known[read, i]

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        at = torch.ones_like(x_t, dtype=torch.bool) if where is None else where
        return self.blocks(x_t, x_t, t, at, self.toy.length)


class Perturbed:
    """The exact prediction times a random factor: wrong, but with a finite bound also as t → 0."""

    def __init__(self, toy: Toy, process: Process, kind: str, scale: float = 0.5):
        self.exact = Exact(toy, process, kind)
        self.error = Random(toy, process, "score" if kind == "score" else "mean", scale=scale)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        values = self.exact(x_t, t, where).values + self.error(x_t, t, where).values
        return ScorePrediction(values) if self.error.kind == "score" else MeanPrediction.from_logits(values)


class Random:
    """A denoiser with arbitrary predictions: a table of logits over noised texts, moved a little by t."""

    def __init__(self, toy: Toy, process: Process, kind: str = "mean", seed: int = 1, scale: float = 1.0, time: float = 0.3):
        generator = torch.Generator().manual_seed(seed)
        self.toy, self.process, self.kind, self.time = toy, process, kind, time
        width = process.states if kind == "score" else toy.vocab
        shape = (process.states**toy.length, toy.length, width)
        self.table = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.drift = torch.randn(shape, generator=generator, dtype=torch.float64)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        number = self.toy.index(x_t, self.process.states)
        logits = self.table[number] + self.time * t.double()[:, None, None] * self.drift[number]
        make: Callable[[Tensor], Prediction] = ScorePrediction if self.kind == "score" else MeanPrediction.from_logits
        return make(pick(logits, where))


def pairs(toy: Toy, process: Process, t: float) -> tuple[Tensor, Tensor, Tensor]:
    """All (x_0, x_t) with q(x_t | x_0) > 0 and their weight p(x_0) q(x_t | x_0): [M, L], [M, L], [M]."""
    noisy = texts(process.states, toy.length)
    weight = toy.likelihoods(process, noisy, torch.full((len(noisy),), t, dtype=torch.float64)).prod(-1) * toy.p  # [X, N]
    i, j = (weight > 0).nonzero(as_tuple=True)
    return toy.x[j], noisy[i], weight[i, j]


def expected(toy: Toy, process: Process, t: float, value: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """E_{p(x_0) q(x_t|x_0)} value(x_0, x_t, t), by enumeration: scalar."""
    x, x_t, weight = pairs(toy, process, t)
    return (weight * value(x, x_t, torch.full((len(x),), t, dtype=torch.float64))).sum()


def sampler_law(toy: Toy, process: Process, start: Tensor, kernels: list[Callable[[Tensor], Tensor]]) -> Tensor:
    """Compute the exact law of a chain whose steps move positions independently.

    start: [S^L] law of the first canvas; kernel(canvases [M, L]) → [M, L, S] probabilities of each position.
    """
    canvases = texts(process.states, toy.length)
    law = start
    for kernel in kernels:
        alive = law > 0
        probs = kernel(canvases[alive])  # [m, L, S]
        step = torch.ones(int(alive.sum()), len(canvases), dtype=torch.float64)
        for i in range(toy.length):
            step = step * probs[:, i][:, canvases[:, i]]
        law = law[alive] @ step
    return law


def total_variation(p: Tensor, q: Tensor) -> float:
    return float(0.5 * (p - q).abs().sum())


def chi_square(counts: Tensor, probs: Tensor) -> float:
    """Return the p-value that counts [N] were drawn from probs [N], by the Wilson–Hilferty approximation."""
    n = counts.sum()
    keep = probs * n > 5
    observed = torch.cat([counts[keep].double(), counts[~keep].sum().double()[None]])
    awaited = torch.cat([probs[keep] * n, (probs[~keep] * n).sum()[None]])
    if awaited[-1] < 1e-9:
        assert observed[-1] == 0, "a text of probability zero was drawn"
        observed, awaited = observed[:-1], awaited[:-1]
    statistic = float(((observed - awaited) ** 2 / awaited).sum())
    freedom = len(awaited) - 1
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    return 0.5 * float(torch.erfc(torch.tensor(z / 2**0.5)))
