"""The autoregressive baseline: exact next-token likelihood and left-to-right sampling with a KV cache.

−log p(x) = Σ_i −log p(x^i | x^{<i}). There is no noise: a position is blank (index K) until it is sampled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.network.attention import KVCache
from unnoise.network.parameterization import Parameterization
from unnoise.objective.objective_base import Objective
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.process_base import gather
from unnoise.process.state import PAD, ProcessBase
from unnoise.rng import Generator, inverse_cdf, uniform
from unnoise.sampler.sampler_base import Frame, Sampler


@dataclass(frozen=True)
class NextTokenPrediction(Prediction):
    """log p(x^i | x^{<i}): log_probs [B, L, K], or [n, K] if only n positions were predicted."""

    log_probs: Tensor


@runtime_checkable
class NextToken(Protocol):
    """A denoiser that predicts each token from the previous tokens."""

    def next_token(self, tokens: Tensor, cache: object | None) -> tuple[Tensor, object]:
        """Return log p of the token after each new token, [B, n] → [B, n, K], and the cache for the next call."""
        ...


class NextTokenParameterization(Parameterization):
    """p(x^i | x^{<i}) = softmax of K outputs of a causal network, whose input starts with a start symbol (the blank, K)."""

    prediction: ClassVar[type[Prediction]] = NextTokenPrediction

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        return super().network_config(process, length, time_free) | {"causal": True, "grid": ()}

    def next_token(self, tokens: Tensor, cache: object | None) -> tuple[Tensor, object]:
        """Return log p of the token after each new token, [B, n] → [B, n, K], and the cache, which training does not use."""
        memory = cache if isinstance(cache, KVCache) else KVCache()
        output = self.run(tokens, cache=None if self.network.training else memory)
        return torch.log_softmax(output, -1), memory

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> NextTokenPrediction:
        start = torch.full_like(x_t[:, :1], self.process.vocab)
        return NextTokenPrediction(torch.log_softmax(self.run(torch.cat([start, x_t[:, :-1]], 1), where=where), -1))


class Autoregressive(Objective):
    """Exact negative log-likelihood Σ_i −log p(x^i | x^{<i}): [B].

    Token i is predicted from a start symbol (index K) and the preceding tokens.

    Sequences of unequal length are padded with −1, which does not contribute to the loss.
    """

    def __init__(self, process: ProcessBase):
        super().__init__()
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        there = x != PAD
        x = torch.where(there, x, 0)
        self.process.check_tokens(x)
        network = next_token_denoiser(denoiser, "the autoregressive likelihood")
        start = torch.full_like(x[:, :1], self.process.vocab)
        log_probs, _ = network.next_token(torch.cat([start, x[:, :-1]], 1), None)
        return -(gather(log_probs, x) * there).sum(-1)


def next_token_denoiser(denoiser: object, who: str) -> NextToken:
    """Return the denoiser if it predicts next tokens, or raise ValueError."""
    if not isinstance(denoiser, NextToken):
        raise ValueError(f"{who} needs a causal network with next_token, found {type(denoiser).__name__}")
    return denoiser


@dataclass(frozen=True)
class LeftToRight(Sampler):
    """x^i ~ p(x^i | x^{<i}), one token after another, each evaluated once with a KV cache.

    Keeps the model's distribution. A sequence stops at its EOS token. Given tokens do not influence earlier positions, so a
    given suffix is a heuristic.
    """

    requires: ClassVar[str] = "an autoregressive model"

    @property
    def keeps_distribution(self) -> bool:
        return True

    @property
    def distribution(self) -> str:
        return "keeps the model's distribution exactly"

    def tokens_read(self, length: int) -> int:
        return 1

    def serves(self, process: ProcessBase, prediction: type[Prediction] = NextTokenPrediction) -> bool:
        return issubclass(prediction, NextTokenPrediction)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        network = next_token_denoiser(denoiser.denoiser, "LeftToRight")
        length = x.shape[1]
        unread = torch.full_like(x[:, :1], denoiser.state_space.vocab)
        cache = None
        confidence = torch.zeros(x.shape, device=x.device)
        somewhere_free = free.any(0).tolist()
        u = uniform(x.shape, x.device, generator)
        end = denoiser.state_space.end
        ended = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for i in range(length):
            if not somewhere_free[i]:  # evaluate consecutive given tokens together
                unread = torch.cat([unread, x[:, i : i + 1]], 1)
                continue
            log_probs, cache = network.next_token(unread, cache)
            denoiser.nfe += len(x)
            shaped = MeanPrediction(log_probs[:, -1]).shaped(self.temperature, self.top_p).log_probs
            token = torch.where(free[:, i], inverse_cdf(shaped.double().exp(), u[:, i]), x[:, i])
            place = torch.tensor([i], device=x.device)
            x = x.index_copy(1, place, token[:, None])
            if denoiser.track_confidence:
                chance = gather(log_probs[:, -1], token).exp().to(confidence.dtype)
                confidence = confidence.index_copy(1, place, chance[:, None])
            unread = token[:, None]
            ended |= (x[:, i] == end) & free[:, i]  # a given EOS does not stop the sequence
            if all(somewhere_free[i:]):
                x = torch.where(ended[:, None] & ((((x == end) & free).cumsum(1) > 0) & free), torch.as_tensor(end or 0), x)
                if bool(ended.all()) and i < length - 1:
                    yield Frame(0.0, x, confidence, settled=length)
                    return
            yield Frame(1 - (i + 1) / length, x, confidence, settled=i + 1)
        if not somewhere_free[-1]:
            yield Frame(0.0, x, confidence, settled=length)
