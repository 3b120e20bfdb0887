"""Parameterizations, which turn a network and a process into a denoiser."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from unnoise.network.attention import KVCache
from unnoise.network.layers import Dropout
from unnoise.network.network_base import keywords
from unnoise.prediction import MeanPrediction, Prediction, RatioPrediction, ScorePrediction, TokenPrediction
from unnoise.process.process_base import Process
from unnoise.process.state import ProcessBase, position_times
from unnoise.rng import RowGenerator

EXCLUDED = -1e30  # logit of an excluded token; unlike −∞ it can be multiplied by 0


def without(logits: Tensor, excluded: Tensor) -> Tensor:
    """Set the logits [..., ≥ K] of the excluded tokens, [K] bool, to −1e30.

    A softmax then renormalizes the distribution of the other tokens. Symbols after the K tokens do not change.
    """
    more = logits.shape[-1] - len(excluded)
    least = max(EXCLUDED, torch.finfo(logits.dtype).min / 2)
    return logits.masked_fill(torch.nn.functional.pad(excluded, (0, more)) if more else excluded, least)


class Parameterization(ABC):
    """A denoiser (x_t, t, where) → Prediction that calls a network.

    prediction: type of the result.
    takes_guidance: whether classifier-free guidance is supported.
    length: maximum sequence length.
    labels: number of classes.
    """

    prediction: ClassVar[type[Prediction]]
    takes_guidance: ClassVar[bool] = False

    def __init__(self, network: nn.Module, process: ProcessBase, length: int, labels: int = 0):
        self.network, self.process, self.length, self.labels = network, process, length, labels
        self.keywords = keywords(network)
        self.label: Tensor | None = None
        self.guidance_scale = 1.0
        self.dropout: tuple[float, RowGenerator] | None = None

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        """Return the fields of a network's configuration that the parameterization determines."""
        fields = {
            "inputs": process.inputs,
            "outputs": process.vocab,
            "length": length + process.extra_positions,
            "time": not time_free,
        }
        return fields if process.holds_tokens else fields | {"pointer": False}

    def condition(self, label: Tensor | int | None, guidance_scale: float = 1.0) -> Self:
        """Return this denoiser conditioned on a label: [B] long, or one for all; the number of classes means "no label".

        guidance_scale: w ≠ 1 gives log p(x|∅) + w·(log p(x|label) − log p(x|∅)), renormalized (classifier-free guidance,
            arXiv:2207.12598), for predictions of a mean.
        """
        if label is not None and not self.labels:
            raise ValueError("this model was trained without labels")
        if guidance_scale != 1 and not self.takes_guidance:
            raise ValueError("guidance is for methods that predict a mean, such as mdlm: leave it at 1")
        numbers = None if label is None else torch.as_tensor(label)
        if numbers is not None and not bool(((numbers >= 0) & (numbers <= self.labels)).all()):
            raise ValueError(f"labels go from 0 to {self.labels - 1}, found {label}")
        conditioned = copy(self)
        conditioned.label, conditioned.guidance_scale = numbers, guidance_scale
        return conditioned

    def with_dropout(self, rate: float, generator: RowGenerator) -> Self:
        """Return this denoiser with dropout at the given rate in every branch of the network."""
        dropping = copy(self)
        dropping.dropout = rate, generator
        return dropping

    def run(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """Return the network's output at every position [B, L, outputs], or at `where` [n, outputs]."""
        output = self.call(x, t, where) if cache is None else self.call(x, t, where, cache=cache)
        return output if where is None or output.dim() == 2 else output[where]

    def call(self, x: Tensor, t: Tensor | None, where: Tensor | None, **options: Any) -> Any:
        """Return the network's output for this label and these options, without the tokens that the process excludes.

        Raise ValueError if the network does not take one of them.
        """
        output = self.output(x, t, where, **options)
        excluded = self.process.excluded
        if excluded is None:
            return output
        return (without(output[0], excluded), *output[1:]) if isinstance(output, tuple) else without(output, excluded)

    def output(self, x: Tensor, t: Tensor | None, where: Tensor | None, **options: Any) -> Any:
        """Return the network's output for this label and these options, or raise ValueError if it does not take one of them."""
        if self.label is not None:
            options["label"] = self.label
        if self.dropout is not None:
            rate, generator = self.dropout
            options["dropout"] = Dropout(rate, generator.next_keys())
        if missing := options.keys() - self.keywords:
            name = type(self.network).__name__
            raise ValueError(f"this needs a network whose forward takes {min(missing)!r}, and that of {name} does not")
        return self.network(x, t, where, **options)

    @abstractmethod
    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        """Return the prediction at every position, or at `where`."""


class MeanParameterization(Parameterization):
    """μ = softmax of K outputs (SUBS for masked processes); x_t may also be a state of numbers, [B, L, inputs]."""

    prediction: ClassVar[type[Prediction]] = MeanPrediction
    takes_guidance: ClassVar[bool] = True

    def log_probs(self, x_t: Tensor, t: Tensor, where: Tensor | None) -> Tensor:
        """Return log μ without guidance: [B, L, K], or [n, K] at `where`."""
        return torch.log_softmax(self.run(x_t, t, where), -1)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        return self.guided(lambda one: one.log_probs(x_t, t, where))

    def guided(self, log_probs: Callable[[Self], Tensor]) -> MeanPrediction:
        """Return the mean with guidance, where `log_probs` returns log μ of a denoiser; it is called twice if guidance ≠ 1."""
        found = log_probs(self)
        if self.guidance_scale != 1 and self.label is not None:
            unconditional = log_probs(self.condition(None))
            found = torch.log_softmax(unconditional + self.guidance_scale * (found - unconditional), -1)
        return MeanPrediction(found)


@runtime_checkable
class HasLikelihood(Protocol):
    """A process with a likelihood q(state | x_0 = k) of each token."""

    def log_likelihood(self, state: Tensor, t: Tensor) -> Tensor:
        """Return log q(state | x_0 = k) of each position, up to a constant: [B, L, inputs], [B] → [B, L, K]."""
        ...


class LikelihoodParameterization(MeanParameterization):
    """μ_k ∝ e^{output_k}·q(state | x_0 = k), Bayes' rule: the network only has to learn the information about x_0 in the other
    positions (the output prior of Plaid, arXiv:2305.18619)."""

    def log_probs(self, x_t: Tensor, t: Tensor, where: Tensor | None) -> Tensor:
        assert isinstance(self.process, HasLikelihood)
        known = self.process.log_likelihood(x_t, t).to(torch.get_default_dtype())
        return torch.log_softmax(self.run(x_t, t, where) + (known if where is None else known[where]), -1)


class ScoreParameterization(Parameterization):
    """log s = the process's scaling of K outputs (`Process.scaled_score`)."""

    prediction: ClassVar[type[Prediction]] = ScorePrediction
    process: Process

    def __init__(self, network: nn.Module, process: ProcessBase, length: int, labels: int = 0):
        if not isinstance(process, Process):
            raise ValueError(f"a score needs a process over tokens, found {type(process).__name__}")
        super().__init__(network, process, length, labels)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> TokenPrediction:
        raw = self.run(x_t, t, where)
        at = position_times(t, x_t).double()
        if where is not None:
            x_t, at = x_t[where], at[where]
        return self.predicted(raw, x_t, at)

    def predicted(self, raw: Tensor, x_t: Tensor, t: Tensor) -> TokenPrediction:
        """Convert the network's output to a prediction: [*P, K] → [*P, S]."""
        return ScorePrediction(self.process.scaled_score(raw, x_t, t))


class PlainScoreParameterization(ScoreParameterization):
    """log s = the K outputs (SEDD without scale_by_sigma); the ratio of the mask, which bounds and samplers ignore, is 1."""

    def predicted(self, raw: Tensor, x_t: Tensor, t: Tensor) -> ScorePrediction:
        return ScorePrediction(torch.nn.functional.pad(raw, (0, self.process.states - self.process.vocab)))


class RatioParameterization(ScoreParameterization):
    """s = 1 + c with a concrete score c linear in the K outputs (`Process.linear_ratios`): s may be zero or negative."""

    prediction: ClassVar[type[Prediction]] = RatioPrediction

    def predicted(self, raw: Tensor, x_t: Tensor, t: Tensor) -> RatioPrediction:
        return RatioPrediction(self.process.linear_ratios(raw, x_t, t))
