"""Metropolis–Hastings with ratios of probabilities: propose one token at one position, accept by the ratio."""

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

    This leaves p_t unchanged. By default y is uniform over all tokens, so q(x|x′) = q(x′|x). A masked model has no ratio
    between tokens: position i is masked and μ_y/μ_{x_i} taken, whose target is the model's own conditionals. Keeps the
    distribution of an exact model; one network call a step, and one to take away what noise there is at `level`.

    A text reaches only texts to which single changes lead through texts of positive probability. With p(x) = 0 unless
    x_3 = x_1 + x_2 every single change is impossible, and a masked model's text stays as it is. Noise at `level` connects all
    texts of the other processes, over bridges as rare as that noise.

    level: the small t at which the ratios are taken.
    before: the sampler whose result is corrected; without one the chain starts from noise, which needs many steps.
    neighbours: the neighbourhood N that y is drawn from, uniformly over N(x_i): line, ring, complete or a Neighbourhood over
        the K tokens. Then q(x|x′)/q(x′|x) = |N(x_i)|/|N(y)|, and 0 where x_i is no neighbour of y.
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
        """Half of the calls write, half correct; at least one each, and one for what is left of the noise."""
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
        """One proposal in each row that has a free position, accepted or not: [B, L] → [B, L]."""
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
        denoiser.forget()  # that was about a proposal, not about what stands there
        accept = uniform(x.shape, x.device, generator, where).log() < log_ratio
        return x.masked_scatter(where, torch.where(accept, y, x[where]))

    def neighbourhood(self, vocab: int) -> Neighbourhood | None:
        """Return the neighbourhood over K tokens that proposals are drawn from, None for all tokens alike."""
        near = self.neighbours
        if isinstance(near, str):
            return Neighbourhood.named(near, vocab)
        if near is not None and len(near) != vocab:
            raise ValueError(f"proposals need a neighbourhood over the {vocab} tokens, found one over {len(near)}")
        return near

    @staticmethod
    def log_ratio(process: Process, prediction: TokenPrediction, token: Tensor, y: Tensor, t: Tensor) -> Tensor:
        """log p(y at i)/p(token at i), from a score or mean asked at i (masked processes: with i masked): [n]."""
        if isinstance(process, Masked):
            masks = torch.full_like(token, process.mask)
            log_p = prediction.clean(process, masks, t)
            return (gather(log_p, y) - gather(log_p, token)).double()
        log_s = prediction.ratios(process, token, t).double()
        return torch.where(y == token, torch.zeros_like(t), gather(log_s, y))
