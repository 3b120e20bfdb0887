"""Reading a network's output: a network and a process make a denoiser, which says what the numbers mean."""

import math
from abc import ABC, abstractmethod
from copy import copy
from typing import Self

import torch
from torch import Tensor

from unnoise.data.texts import PAD
from unnoise.insertion import InsertionPrediction
from unnoise.network.transformer import Cache, Transformer, normalise
from unnoise.prediction import MeanPrediction, Prediction, ScorePrediction
from unnoise.process.base import Process
from unnoise.process.canvas import Canvas
from unnoise.process.insertion import Insertion


class NetworkDenoiser(ABC):
    """A denoiser made of a network: (x_t, t, where) → Prediction."""

    causal = False
    gaps = False
    guided = False  # whether a label can be insisted on

    def __init__(self, network: Transformer, process: Canvas):
        self.network, self.process = network, process
        self.label: Tensor | None = None
        self.guidance = 1.0

    def condition(self, label: Tensor | int | None, guidance: float = 1.0) -> Self:
        """This denoiser, told the class of each text ([B] long, or one for all; the number of classes stands for none).

        guidance w ≠ 1: log p(x|∅) + w·(log p(x|label) − log p(x|∅)), renormalised (classifier-free guidance,
        arXiv:2207.12598); for predictions of a mean.
        """
        count = self.network.shape.labels
        if label is not None and not count:
            raise ValueError("this model was trained without labels")
        if guidance != 1 and not self.guided:
            raise ValueError("guidance is for methods that predict a mean, such as mdlm: leave it at 1")
        numbers = None if label is None else torch.as_tensor(label)
        if numbers is not None and not bool(((numbers >= 0) & (numbers <= count)).all()):
            raise ValueError(f"labels go from 0 to {count - 1}, found {label}")
        told = copy(self)
        told.label, told.guidance = numbers, guidance
        return told

    def run(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """The network's output, with the label told."""
        return self.network(x, t, where, cache, self.label)

    @abstractmethod
    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction | InsertionPrediction:
        """The prediction at every position, or at `where`."""


class MeanDenoiser(NetworkDenoiser):
    """μ = softmax of K outputs; x_t may also be a state of numbers, [B, L, inputs]."""

    guided = True

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        told = MeanPrediction.from_logits(self.run(x_t, t, where))
        if self.guidance == 1 or self.label is None:
            return told
        untold = torch.log_softmax(self.network(x_t, t, where), -1)
        return MeanPrediction.from_logits(untold + self.guidance * (told.log_probs - untold))


class ScoreDenoiser(NetworkDenoiser):
    """log s = the process's scaling of K outputs (`Process.scaled_score`)."""

    process: Process

    def __init__(self, network: Transformer, process: Process):
        super().__init__(network, process)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> ScorePrediction:
        raw = self.run(x_t, t, where)
        at = t[:, None].expand(x_t.shape).double()
        if where is not None:
            x_t, at = x_t[where], at[where]
        return ScorePrediction(self.process.scaled_score(raw, x_t, at))


class CausalDenoiser(NetworkDenoiser):
    """p(x^i | x^{<i}) from a causal network; see `unnoise.autoregressive`."""

    causal = True

    def next_token(self, tokens: Tensor, cache: object | None) -> tuple[Tensor, object]:
        """Tokens not seen so far: [B, n] → log p of what follows each: [B, n, K], and the cache."""
        memory = cache if isinstance(cache, Cache) else Cache()
        return torch.log_softmax(self.run(tokens, cache=None if self.network.training else memory), -1), memory

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        start = torch.full_like(x_t[:, :1], self.process.vocab)
        return MeanPrediction.from_logits(self.run(torch.cat([start, x_t[:, :-1]], 1), where=where))


class GapDenoiser(NetworkDenoiser):
    """Two heads: μ at `where`, and g = (1 − a)·G before each position and after the last, log G from the second head.

    A text of the greatest length grows no more: its gaps are zero.
    """

    gaps = True
    process: Insertion

    def __init__(self, network: Transformer, process: Insertion):
        super().__init__(network, process)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        assert self.network.gap_head is not None
        there = x_t != PAD
        start = x_t.new_full((len(x_t), 1), self.process.vocab + 1)
        read = torch.cat([start, torch.where(there, x_t, self.process.vocab + 2)], 1)
        present = torch.cat([torch.ones_like(start, dtype=torch.bool), there], 1)
        h = self.network.features(read, t, present=present, label=self.label)
        texts = h[:, 1:]
        log_probs = torch.log_softmax(self.network.head(normalise(texts if where is None else texts[where])), -1)
        longest = self.network.shape.length - self.process.around
        rate = self.network.gap_head(normalise(h))[..., 0].clamp_max(math.log(10 * longest)).exp()
        missing = self.process.insertion.noise(t.double()).to(rate.dtype) * (there.sum(1) < longest)
        return InsertionPrediction(log_probs, missing[:, None] * rate)
