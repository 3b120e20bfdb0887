"""Denoisers of Flex-MDM, which predict masked tokens and the number of missing tokens between neighbours."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser
from unnoise.families.insertion.process import Insertion
from unnoise.network.parameterization import Parameterization
from unnoise.prediction import Prediction
from unnoise.process.state import LATEST, PAD, StateSpace


@dataclass(frozen=True)
class InsertionPrediction(Prediction):
    """log_probs: [B, M, K], or [n, K] at the masks alone; gaps: [B, M+1], how many tokens are expected before each position
    and after the last, g ≥ 0."""

    log_probs: Tensor
    gaps: Tensor


def predict_insertion(denoiser: Denoiser, process: Insertion, x: Tensor, t: Tensor) -> InsertionPrediction:
    """Return the prediction at the n masks and of the gaps, checked: log_probs [n, K], gaps [B, M+1]."""
    masked = x == process.mask
    prediction = denoiser(x, t.clamp_max(LATEST).to(torch.get_default_dtype()), masked)
    if not isinstance(prediction, InsertionPrediction):
        raise ValueError(f"an insertion denoiser must return an InsertionPrediction, found {type(prediction).__name__}")
    log_probs, gaps = prediction.log_probs, prediction.gaps
    if log_probs.shape == (*x.shape, process.vocab):
        log_probs = log_probs[masked]
    wanted = (int(masked.sum()), process.vocab), (x.shape[0], x.shape[1] + 1)
    found = tuple(log_probs.shape), tuple(gaps.shape)
    if found != wanted:
        raise ValueError(
            f"an insertion denoiser must return shapes {wanted[0]} and {wanted[1]}, found {found[0]} and {found[1]}"
        )
    return InsertionPrediction(log_probs, gaps)


class InsertionParameterization(Parameterization):
    """Two outputs: μ at `where`, and g = (1 − a)·G before each position and after the last, log G one number a position.

    A text of the greatest length grows no more: its gaps are zero.
    """

    prediction: ClassVar[type[Prediction]] = InsertionPrediction
    process: Insertion

    def __init__(self, network: nn.Module, process: StateSpace, length: int, labels: int = 0):
        if not isinstance(process, Insertion):
            raise ValueError(f"gaps need an Insertion process, found {type(process).__name__}")
        super().__init__(network, process, length, labels)

    @classmethod
    def network_config(cls, process: StateSpace, length: int, time_free: bool) -> dict[str, Any]:
        return super().network_config(process, length, time_free) | {"gaps": True}

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        there = x_t != PAD
        start = x_t.new_full((len(x_t), 1), self.process.vocab + 1)
        read = torch.cat([start, torch.where(there, x_t, self.process.vocab + 2)], 1)
        present = torch.cat([torch.ones_like(start, dtype=torch.bool), there], 1)
        chosen = torch.nn.functional.pad(torch.ones_like(there) if where is None else where, (1, 0))
        output, log_rate = self.call(read, t, chosen, present=present, gaps=True)
        log_probs = torch.log_softmax(output if output.dim() == 2 else output[chosen], -1)
        rate = log_rate.clamp_max(math.log(10 * self.length)).exp()
        missing = self.process.insertion.noise(t.double()).to(rate.dtype) * (there.sum(1) < self.length)
        shape = (*x_t.shape, self.process.vocab)
        return InsertionPrediction(log_probs.view(shape) if where is None else log_probs, missing[:, None] * rate)


class EndedInsertionParameterization(InsertionParameterization):
    """The same two outputs as the paper's own code reads them (arXiv:2509.01025): padding after the text and no start symbol;
    g = L·softplus(·), L the greatest length, before each position and, at the first padding, after the last; μ is a softmax
    over the K tokens, padding (K) and mask (K + 1), of which the last two are left out."""

    @classmethod
    def network_config(cls, process: StateSpace, length: int, time_free: bool) -> dict[str, Any]:
        symbols = process.vocab + 2
        more = {"inputs": symbols, "outputs": symbols, "pointer": False}  # padding and mask would be copied too
        return super().network_config(process, length, time_free) | more

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        vocab = self.process.vocab
        there = x_t != PAD
        symbols = torch.where(x_t == self.process.mask, vocab + 1, torch.where(there, x_t, vocab))
        read = torch.nn.functional.pad(symbols, (0, 1), value=vocab)
        place = torch.arange(read.shape[1], device=read.device)
        present = place <= there.sum(1, keepdim=True)  # the first padding too: its gap is the one after the last token
        chosen = torch.nn.functional.pad(torch.ones_like(there) if where is None else where, (0, 1))
        output, number = self.call(read, t, chosen, present=present, gaps=True)
        log_probs = torch.log_softmax(output if output.dim() == 2 else output[chosen], -1)[..., :vocab]
        shape = (*x_t.shape, vocab)
        gaps = self.length * torch.nn.functional.softplus(number)
        return InsertionPrediction(log_probs.view(shape) if where is None else log_probs, gaps)
