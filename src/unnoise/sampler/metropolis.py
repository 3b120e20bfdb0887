"""Metropolis–Hastings sampling with probability ratios: propose one token at one position, accept by the ratio."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import MeanPrediction, Prediction, TokenPrediction
from unnoise.process.base import Process, gather
from unnoise.process.masked import Masked
from unnoise.process.neighbourhood import SHAPES, Neighbourhood
from unnoise.process.state import StateSpace
from unnoise.rng import Generator, integers, uniform
from unnoise.sampler.base import Frame, Sampler, SteppedSampler
from unnoise.sampler.tau_leaping import TweedieLeaping


@dataclass(frozen=True)
class Metropolis(SteppedSampler):
    """Propose x′, x with a token y at a uniformly chosen free position i; accept it with probability
    min(1, p_t(x′) q(x|x′) / (p_t(x) q(x′|x))) (concrete score matching, arXiv:2211.00802).

    This leaves p_t unchanged. By default y is uniform over all tokens, so q(x|x′) = q(x′|x). Masked models have no ratio
    between tokens; position i is masked and the ratio is μ_y/μ_{x_i}, which targets the model's conditionals. Keeps the
    distribution of an exact model. Each step needs one network call, and one more call removes the noise at `level`.

    The chain only reaches sequences that single changes connect through sequences of positive probability. If p(x) = 0 unless
    x_3 = x_1 + x_2, every single change is impossible, and samples of a masked model do not change. For other processes the
    noise at `level` connects all sequences, through states as rare as that noise.

    level: small time t of the ratios.
    before: sampler whose samples are corrected; without it the chain starts from noise and needs many steps.
    neighbours: neighbourhood N of the proposals, y uniform over N(x_i): line, ring, complete or a Neighbourhood over the K
        tokens. Then q(x|x′)/q(x′|x) = |N(x_i)|/|N(y)|, and 0 if x_i is no neighbour of y.
    """

    steps: int = 256
    level: float = 0.02
    before: Sampler | None = None
    neighbours: Literal["line", "ring", "complete"] | Neighbourhood | None = None
    requires: ClassVar[str] = (
        "a process over tokens and, to correct a masked model's text, the sampler that writes it as `before`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1, found {self.level}")
        if isinstance(self.neighbours, str) and self.neighbours not in SHAPES:
            raise ValueError(f"neighbours must be one of {', '.join(SHAPES)}, found {self.neighbours!r}")

    @property
    def keeps_distribution(self) -> bool:
        return False

    @property
    def distribution(self) -> str:
        return "keeps the distribution of a model that is exact, as steps grow, where single changes connect all texts"

    def with_nfe(self, nfe: int) -> Self:
        """Use half of the calls for `before` and half for corrections, at least one each, and one to remove the noise."""
        if self.before is None:
            return replace(self, steps=max(1, nfe - 1))
        return replace(self, steps=max(1, nfe - nfe // 2 - 1), before=self.before.with_nfe(max(1, nfe // 2)))

    def serves(self, process: StateSpace, prediction: type[Prediction] = MeanPrediction) -> bool:
        if isinstance(process, Masked) and self.before is None:
            return False
        return super().serves(process, prediction) and (self.before is None or self.before.serves(process, prediction))

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        confidence = torch.zeros(x.shape, device=x.device)
        if self.before is not None:
            for frame in self.before.frames(denoiser, x, free, generator):
                x, confidence = frame.x, frame.confidence
                if frame.t > 0:
                    yield frame
        t = torch.full((len(x),), self.level, dtype=torch.float64, device=x.device)
        movable = free.any(1)
        for _ in range(self.steps):
            if movable.any():
                x = self.move(denoiser, x, free, t, generator)
            yield Frame(self.level, x, confidence)
        yield Frame(0.0, TweedieLeaping().step(denoiser, x, None, t, free, generator), confidence)

    def move(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, t: Tensor, generator: Generator) -> Tensor:
        """Propose and accept or reject one change in each row with a free position: [B, L] → [B, L]."""
        vocab = denoiser.process.vocab
        chance = uniform(x.shape, x.device, generator).masked_fill(~free, -1.0)
        where = free & torch.zeros_like(free).scatter(1, chance.argmax(1, keepdim=True), True)
        near = self.neighbourhood(vocab)
        if near is None:
            y = integers(vocab, x.shape, x.device, generator)[where]
        else:
            y = near.propose(x[where], uniform(x.shape, x.device, generator, where))
        hidden = isinstance(denoiser.process, Masked)
        context = x.masked_fill(where, vocab) if hidden else x
        log_ratio = self.log_ratio(denoiser.process, denoiser.predict(context, t, where), x[where], y, t[where.any(1)])
        if near is not None:
            log_ratio = log_ratio + near.log_proposal_ratio(x[where], y)
        denoiser.forget()  # it was evaluated for a proposal
        accept = uniform(x.shape, x.device, generator, where).log() < log_ratio
        return x.masked_scatter(where, torch.where(accept, y, x[where]))

    def neighbourhood(self, vocab: int) -> Neighbourhood | None:
        """Return the neighbourhood of the proposals over K tokens, or None for uniform proposals."""
        near = self.neighbours
        if isinstance(near, str):
            return Neighbourhood.named(near, vocab)
        if near is not None and len(near) != vocab:
            raise ValueError(f"proposals need a neighbourhood over the {vocab} tokens, found one over {len(near)}")
        return near

    @staticmethod
    def log_ratio(process: Process, prediction: TokenPrediction, token: Tensor, y: Tensor, t: Tensor) -> Tensor:
        """Compute log p(y at i)/p(token at i) from a prediction at i (with i masked for masked processes): [n]."""
        if isinstance(process, Masked):
            masks = torch.full_like(token, process.mask)
            log_p = prediction.clean(process, masks, t)
            return (gather(log_p, y) - gather(log_p, token)).double()
        log_s = prediction.ratios(process, token, t).double()
        return torch.where(y == token, torch.zeros_like(t), gather(log_s, y))
