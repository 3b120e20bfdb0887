"""Predictions: the return types of denoisers.

Each kind of `TokenPrediction` provides ratios p_t(y)/p_t(x_t), the reverse step p(x_s | x_t) and the clean distribution
p(x_0 | x_t), using the formulas of the process, so bounds and samplers work with all kinds. A position is any index of the
leading shape P: [B, L], or [n] if only n positions were predicted.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from unnoise.process.process_base import Process


class Prediction:
    """Base class of the return values of denoisers."""


class TokenPrediction(Prediction, ABC):
    """Base class of predictions for processes over tokens. Arguments are x_t: [*P] long and s < t: [*P] float."""

    @property
    @abstractmethod
    def values(self) -> Tensor:
        """The wrapped tensor: [*P, K] or [*P, S]."""

    @abstractmethod
    def width(self, process: "Process") -> int:
        """Return the required size of the last axis for a process."""

    @abstractmethod
    def replace(self, values: Tensor) -> Self:
        """Return a prediction of the same kind with other values."""

    @abstractmethod
    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        """Return log s_y ≈ log p_t(y)/p_t(x_t) for every state y; the entry at x_t is undefined: [*P, S]."""

    def plain_ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        """Return s_y without the logarithm, for squared losses; the entry at x_t is 1: [*P, S]."""
        return self.ratios(process, x_t, t).scatter(-1, x_t[..., None], 0.0).exp()

    @abstractmethod
    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_s | x_t): [*P, S]."""

    @abstractmethod
    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_0 | x_t) over the K real tokens: [*P, K]."""

    def selected(self, process: "Process", shape: tuple[int, ...], where: Tensor | None, count: int) -> Self:
        """Return the prediction at the n = `count` positions `where` of [B, L] = `shape` (None for all), checked: [n, ·]."""
        values, width = self.values, self.width(process)
        if not values.is_floating_point():
            raise ValueError(f"a prediction must hold floating-point numbers, found {values.dtype}")
        if values.dtype in (torch.float16, torch.bfloat16):  # precise enough for a network, not for a bound
            values = values.float()
        if values.shape == (*shape, width):
            return self.replace(values.flatten(0, 1) if where is None else values[where])
        if values.shape == (count, width):
            return self if values is self.values else self.replace(values)
        raise ValueError(
            f"a denoiser called at {count} of {shape[0]} × {shape[1]} positions must return a "
            f"{type(self).__name__} of shape {[count, width]} or {[*shape, width]}, found {list(values.shape)}"
        )


@dataclass(frozen=True)
class MeanPrediction(TokenPrediction):
    """μ = p(x_0 | x_t), a distribution over the K real tokens, as normalized log-probabilities.

    log_probs: [B, L, K], or [n, K] if only n positions were predicted. There is no entry for the mask, and masked processes
    keep unmasked tokens. These are the two properties called SUBS in MDLM (arXiv:2406.07524).
    """

    log_probs: Tensor

    @staticmethod
    def from_logits(logits: Tensor) -> "MeanPrediction":
        """Normalize the raw output of a network: [..., K] → MeanPrediction."""
        return MeanPrediction(torch.log_softmax(logits, -1))

    @property
    def values(self) -> Tensor:
        return self.log_probs

    def width(self, process: "Process") -> int:
        return process.vocab

    def replace(self, values: Tensor) -> Self:
        return type(self)(values)

    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.mean_ratios(self.log_probs, x_t, t)

    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return process.mean_reverse(self.log_probs, x_t, s, t)

    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.mean_clean(self.log_probs, x_t, t)

    def shaped(self, temperature: float = 1.0, top_p: float = 1.0) -> "MeanPrediction":
        """Return μ^{1/temperature} restricted to the smallest set of tokens with mass ≥ top_p; temperature 0 is the mode."""
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
class ScorePrediction(TokenPrediction):
    """s_y ≈ p_t(y)/p_t(x_t) for y ≠ x_t, as log s (SEDD, arXiv:2310.16834).

    log_ratios: [B, L, S], or [n, S]; S = K + 1 for a masked process, K otherwise. The entry at x_t is ignored.
    """

    log_ratios: Tensor

    @property
    def values(self) -> Tensor:
        return self.log_ratios

    def width(self, process: "Process") -> int:
        return process.states

    def replace(self, values: Tensor) -> Self:
        return type(self)(values)

    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return self.log_ratios

    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return process.score_reverse(self.log_ratios, x_t, s, t)

    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.score_clean(self.log_ratios, x_t, t)


@dataclass(frozen=True)
class RatioPrediction(TokenPrediction):
    """Ratios s_y ≈ p_t(y)/p_t(x_t) that may have any sign, as in concrete score matching (arXiv:2211.00802).

    ratio: [B, L, S], or [n, S]: s_y = 1 + c_y for the concrete score c_y = p_t(y)/p_t(x_t) − 1. The entry at x_t is ignored.
    Jump rates cannot be negative, so bounds and samplers use max(s_y, FLOOR) and describe the model with these ratios. A
    clipped ratio costs about −log FLOOR nats where the true path jumps to y, and adds at most a rate of FLOOR·β(t) of wrong
    jumps.
    """

    FLOOR: ClassVar[float] = 1e-3
    ratio: Tensor

    @property
    def values(self) -> Tensor:
        return self.ratio

    def width(self, process: "Process") -> int:
        return process.states

    def replace(self, values: Tensor) -> Self:
        return type(self)(values)

    def ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return self.ratio.clamp_min(self.FLOOR).log()

    def plain_ratios(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return self.ratio.scatter(-1, x_t[..., None], 1.0)

    def reverse(self, process: "Process", x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return process.score_reverse(self.ratios(process, x_t, t), x_t, s, t)

    def clean(self, process: "Process", x_t: Tensor, t: Tensor) -> Tensor:
        return process.score_clean(self.ratios(process, x_t, t), x_t, t)
