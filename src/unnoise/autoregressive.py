"""The autoregressive baseline in the same house: next-token likelihood, exact, and left-to-right sampling with a cache.

−log p(x) = Σ_i −log p(x^i | x^{<i}). There is no noise: the canvas is blank (index K) until it is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from unnoise.categorical import draw
from unnoise.denoiser import Denoiser
from unnoise.objective import Objective
from unnoise.prediction import MeanPrediction
from unnoise.process.base import gather
from unnoise.process.canvas import Canvas
from unnoise.sampler.base import Asker, Frame, Sampler


@runtime_checkable
class NextToken(Protocol):
    """A network that predicts each token from those before it."""

    def next_token(self, tokens: Tensor, cache: object | None) -> tuple[Tensor, object]:
        """Tokens not seen so far: [B, n] → log p of what follows each, [B, n, K], and the cache for the next call."""
        ...


class Autoregressive(Objective):
    """Σ_i −log p(x^i | x^{<i}), exact: [B]. Token i is predicted from a start symbol (the blank, K) and tokens < i."""

    def __init__(self, process: Canvas):
        super().__init__()
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.process.check_tokens(x)
        network = next_token_network(denoiser, "the autoregressive likelihood")
        start = torch.full_like(x[:, :1], self.process.vocab)
        log_probs, _ = network.next_token(torch.cat([start, x[:, :-1]], 1), None)
        return -gather(log_probs, x).sum(-1)


def next_token_network(denoiser: object, who: str) -> NextToken:
    """The denoiser as one that predicts next tokens, or ValueError."""
    if not isinstance(denoiser, NextToken):
        raise ValueError(f"{who} needs a causal network with next_token, found {type(denoiser).__name__}")
    return denoiser


@dataclass(frozen=True)
class LeftToRight(Sampler):
    """x^i ~ p(x^i | x^{<i}), one token after another, each evaluated once thanks to the cache.

    Keeps the model's law. Given positions are read as they stand; what comes after a position cannot influence it, so
    a given suffix is a heuristic.
    """

    law: ClassVar[str] = "keeps the model's law exactly"

    @property
    def needs_mean(self) -> bool:
        return True

    def check(self, process: Canvas) -> None:
        return

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        network = next_token_network(asker.denoiser, "LeftToRight")
        length = x.shape[1]
        unread = torch.full_like(x[:, :1], asker.canvas.vocab)
        cache = None
        confidence = torch.zeros(x.shape, device=x.device)
        for i in range(length):
            if not free[:, i].any():  # read a given stretch in one go, when it ends
                unread = torch.cat([unread, x[:, i : i + 1]], 1)
                continue
            log_probs, cache = network.next_token(unread, cache)
            asker.evaluations += len(x)
            shaped = MeanPrediction(log_probs[:, -1]).shaped(self.temperature, self.top_p).log_probs
            token = torch.where(free[:, i], draw(shaped.double().exp(), generator), x[:, i])
            x = x.index_copy(1, torch.tensor([i], device=x.device), token[:, None])
            chance = gather(log_probs[:, -1], token).exp().float()
            confidence = confidence.index_copy(1, torch.tensor([i], device=x.device), chance[:, None])
            unread = token[:, None]
            yield Frame(1 - (i + 1) / length, x, confidence)
        if not free.any() or bool((~free[:, -1]).all()):
            yield Frame(0.0, x, confidence)
