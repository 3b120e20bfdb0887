"""What a network's output means.

A denoiser returns one of these, never a bare tensor. Every process can turn any of them into the same three things:
ratios p_t(y)/p_t(x_t), the reverse step p(x_s | x_t), and the clean distribution p(x_0 | x_t); so a bound or a sampler
written for one of them serves all. A position is any index of the leading shape P: [B, L], or [n] where only n
positions were asked for.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from unnoise.process.base import Process


class Prediction(ABC):
    """The common vocabulary of predictions; x_t: [*P] long, s < t: [*P] float."""

    @property
    @abstractmethod
    def values(self) -> Tensor:
        """The tensor inside: [*P, K] or [*P, S]."""

    @abstractmethod
    def width(self, process: "Process") -> int:
        """How many entries the last axis must have for this process."""

    @abstractmethod
    def replace(self, values: Tensor) -> "Prediction":
        """The same kind of prediction with other values."""

    @abstractmethod
    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        """log s_y ≈ log p_t(y)/p_t(x_t) for every state y: [*P, S]; the entry at x_t means nothing."""

    @abstractmethod
    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """log p(x_s | x_t): [*P, S]."""

    @abstractmethod
    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        """log p(x_0 | x_t) over the K real tokens: [*P, K]."""


@dataclass(frozen=True)
class MeanPrediction(Prediction):
    """μ = p(x_0 | x_t), a distribution over the K real tokens; kept as normalised log-probabilities.

    log_probs: [B, L, K], or [n, K] where only n positions were asked for. There is no entry for the mask, and a masked
    process carries unmasked tokens over by itself: the two facts called SUBS in MDLM (arXiv:2406.07524) are built in.
    """

    log_probs: Tensor

    @staticmethod
    def from_logits(logits: Tensor) -> "MeanPrediction":
        """Normalise a network's raw output: [..., K] → MeanPrediction."""
        return MeanPrediction(torch.log_softmax(logits, -1))

    @property
    def values(self) -> Tensor:
        return self.log_probs

    def width(self, process: "Process") -> int:
        return process.vocab

    def replace(self, values: Tensor) -> "MeanPrediction":
        return MeanPrediction(values)

    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.mean_ratios(self.log_probs, x_t, t)

    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return process.mean_reverse(self.log_probs, x_t, s, t)

    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.mean_clean(self.log_probs, x_t, t)

    def shaped(self, temperature: float = 1.0, top_p: float = 1.0) -> "MeanPrediction":
        """μ^{1/temperature}, cut to the smallest set of tokens with mass ≥ top_p, normalised; temperature 0 is the mode."""
        log_probs = self.log_probs
        if temperature == 0:
            best = torch.full_like(log_probs, -torch.inf)
            return MeanPrediction(best.scatter(-1, log_probs.argmax(-1, keepdim=True), 0.0))
        if temperature != 1:
            log_probs = torch.log_softmax(log_probs / temperature, -1)
        if top_p < 1:
            ranked, order = log_probs.sort(-1, descending=True)
            mass = ranked.double().exp().cumsum(-1)
            # a token stays while the mass before it is below top_p, so the most probable one always stays
            dropped = torch.cat([torch.zeros_like(mass[..., :1]), mass[..., :-1]], -1) >= top_p
            dropped = torch.zeros_like(dropped).scatter(-1, order, dropped)
            log_probs = torch.log_softmax(log_probs.masked_fill(dropped, -torch.inf), -1)
        return MeanPrediction(log_probs)


@dataclass(frozen=True)
class ScorePrediction(Prediction):
    """s_y ≈ p_t(y)/p_t(x_t) for y ≠ x_t, kept as log s (SEDD, arXiv:2310.16834).

    log_ratios: [B, L, S], or [n, S]; S = K + 1 for a masked process, K otherwise. The entry at x_t is ignored.
    """

    log_ratios: Tensor

    @property
    def values(self) -> Tensor:
        return self.log_ratios

    def width(self, process: "Process") -> int:
        return process.states

    def replace(self, values: Tensor) -> "ScorePrediction":
        return ScorePrediction(values)

    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return self.log_ratios

    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return process.score_reverse(self.log_ratios, x_t, s, t)

    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.score_clean(self.log_ratios, x_t, t)
