"""Metropolis–Hastings sampling with probability ratios, and Gibbs sampling of a sequence with random errors.

For the latter, a sequence y comes from x by a channel that keeps each token with probability 1 − ε and otherwise replaces it by
one of the K tokens at random, q(y^i | k) = (1 − ε)·1[y^i = k] + ε/K. Masked noise never changes one token into another, so its
own posterior would keep every token. A masked model gives μ_i(k) = p(x^i = k | x^{≠i}) with position i masked, so

    p(x^i = k | x^{≠i}, y) ∝ μ_i(k)·q(y^i | k).

Sampling the positions one after another from it converges to the posterior p(x | y) ∝ p(x)·Π_i q(y^i | x^i) if μ is exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser, predict_clean
from unnoise.prediction import MeanPrediction, Prediction, TokenPrediction
from unnoise.process.masked import Masked
from unnoise.process.process_base import Process, gather
from unnoise.process.state import ProcessBase
from unnoise.process.uniform import SHAPES, Neighbourhood
from unnoise.rng import Generator, draw, integers, uniform
from unnoise.sampler.leaping import TweedieLeaping
from unnoise.sampler.sampler_base import Frame, Sampler, SteppedSampler


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

    def serves(self, process: ProcessBase, prediction: type[Prediction] = MeanPrediction) -> bool:
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
        yield Frame(0.0, TweedieLeaping().step(denoiser, x, None, t, free, generator=generator), confidence)

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


def log_channel(process: Masked, observed: Tensor, rate: float) -> Tensor:
    """Compute log q(y | k) for every token k: observed [*P], ε = rate → [*P, K] float64."""
    other = torch.full((*observed.shape, process.vocab), rate / process.vocab, dtype=torch.float64, device=observed.device)
    kept = torch.full((*observed.shape, 1), 1 - rate, dtype=torch.float64, device=observed.device)
    return other.scatter_add(-1, observed[..., None], kept).log()


def conditionals(denoiser: Denoiser, process: Masked, x: Tensor, observed: Tensor, where: Tensor, rate: float) -> Tensor:
    """Compute log p(x^i = k | x^{≠i}, y) at one position i of each row: x, observed [B, L], where [B, L] bool → [B, K] float64.

    A network that conditions on the time gets t = 1/L, at which one position in L is masked with a linear schedule. With one
    schedule per token a mask tells something about its token, and q(mask | k) is divided out.
    """
    masked = x.masked_fill(where, process.mask)
    t = torch.full((len(x),), 1 / x.shape[1], dtype=torch.float64, device=x.device)
    log_mean = predict_clean(denoiser, process, masked, t, where).double()
    if process.per_token:
        log_mean = log_mean - process.column(masked[where], None, t)[..., : process.vocab].log()
    return torch.log_softmax(log_mean + log_channel(process, observed[where], rate), -1)


def site_posteriors(denoiser: Denoiser, process: Masked, observed: Tensor, rate: float, rows: int) -> Iterator[Tensor]:
    """Yield log p(x^i = k | x^{≠i} = y^{≠i}, y^i) for i = 0…L−1, some positions at a time: observed [L] → [≤ rows, K] each.

    All other tokens are taken as they are in y, so this is exact where they have no errors, or do not matter.
    """
    each = torch.eye(len(observed), dtype=torch.bool, device=observed.device)
    for where in each.split(rows):
        texts = observed.expand(len(where), -1)
        yield conditionals(denoiser, process, texts, texts, where, rate=rate)


def gibbs_sweeps(
    denoiser: Denoiser, process: Masked, observed: Tensor, rate: float, sweeps: int, generator: Generator
) -> Iterator[Tensor]:
    """Yield the state after each update of Gibbs sampling from p(x | y): observed [B, L] → [B, L], `sweeps`·L times.

    A sweep updates each position once, from left to right. The chain starts at y.
    """
    x = observed
    for _ in range(sweeps):
        for i in range(observed.shape[1]):
            where = torch.zeros_like(observed, dtype=torch.bool)
            where[:, i] = True
            log_p = conditionals(denoiser, process, x, observed, where, rate=rate)
            x = x.masked_scatter(where, draw(log_p.exp(), generator, where))
            yield x
