"""Metropolis–Hastings with ratios of probabilities: propose one token at one position, accept by the ratio."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.categorical import uniform
from unnoise.prediction import Prediction
from unnoise.process.base import Process, gather
from unnoise.process.canvas import Canvas
from unnoise.process.masked import Masked
from unnoise.sampler.base import Asker, Frame, Sampler, Stepped
from unnoise.sampler.leaping import TweedieLeaping


@dataclass(frozen=True)
class Metropolis(Stepped):
    """Propose a uniformly chosen free position i and token y, accept with probability min(1, p_t(x with y at i)/p_t(x)).

    The proposal is symmetric, so p_t is left as it is (concrete score matching, arXiv:2211.00802); `level` is the small t at
    which the ratios are asked, and what noise there is at that level is taken away by one last call. A masked model has no
    ratio between tokens: position i is masked and μ_y/μ_{x_i} taken, whose target is the model's own conditionals. `before`
    is the sampler whose result is corrected; without one the chain starts from noise, which needs many steps (by name,
    Tweedie leaping writes first). Keeps the law of an exact model; one network call a step.
    """

    steps: int = 256
    level: float = 0.02
    before: Sampler | None = None
    keeps_law: ClassVar[bool] = False
    law: ClassVar[str] = "keeps the law of a model that is exact, as steps grow"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1, found {self.level}")

    @classmethod
    def make(cls, steps: int, temperature: float = 1.0, top_p: float = 1.0) -> "Sampler":
        """Half of the calls write, half correct; at least one each, and one for what is left of the noise."""
        first = TweedieLeaping(max(1, steps // 2), temperature=temperature, top_p=top_p)
        return cls(max(1, steps - steps // 2 - 1), before=first, temperature=temperature, top_p=top_p)

    def check(self, process: Canvas) -> None:
        super().check(process)
        if isinstance(process, Masked) and self.before is None:
            raise ValueError("Metropolis corrects a masked model's text: give the sampler that writes it as `before`")
        if self.before is not None:
            self.before.check(process)

    def chain(self, asker: Asker, x: Tensor, free: Tensor, generator: torch.Generator) -> Iterator[Frame]:
        confidence = torch.zeros(x.shape, device=x.device)
        if self.before is not None:
            for frame in self.before.chain(asker, x, free, generator):
                x, confidence = frame.x, frame.confidence
                if frame.t > 0:
                    yield frame
        t = torch.full((len(x),), self.level, dtype=torch.float64, device=x.device)
        movable = free.any(1)
        for _ in range(self.steps):
            if movable.any():
                x = self.move(asker, x, free, t, generator)
            yield Frame(self.level, x, confidence)
        yield Frame(0.0, TweedieLeaping().step(asker, x, None, t, free, generator), confidence)

    def move(self, asker: Asker, x: Tensor, free: Tensor, t: Tensor, generator: torch.Generator) -> Tensor:
        """One proposal in each row that has a free position, accepted or not: [B, L] → [B, L]."""
        vocab = asker.process.vocab
        chance = uniform(x.shape, x.device, generator).masked_fill(~free, -1.0)
        where = free & torch.zeros_like(free).scatter(1, chance.argmax(1, keepdim=True), True)
        y = torch.randint(vocab, (int(where.sum()),), generator=generator, device=x.device)
        hidden = isinstance(asker.process, Masked)
        asked = x.masked_fill(where, vocab) if hidden else x
        log_ratio = self.log_ratio(asker.process, asker(asked, t, where), x[where], y, t[where.any(1)])
        asker.last = None  # the answer is about a proposal, not about what stands there
        accept = uniform(y.shape, x.device, generator).log() < log_ratio
        return x.masked_scatter(where, torch.where(accept, y, x[where]))

    @staticmethod
    def log_ratio(process: Process, prediction: Prediction, token: Tensor, y: Tensor, t: Tensor) -> Tensor:
        """log p(y at i)/p(token at i), from a score or mean asked at i (masked processes: with i masked): [n]."""
        if isinstance(process, Masked):
            masks = torch.full_like(token, process.mask)
            log_p = prediction.clean(process, masks, t)
            return (gather(log_p, y) - gather(log_p, token)).double()
        log_s = prediction.ratios(process, token, t).double()
        return torch.where(y == token, torch.zeros_like(t), gather(log_s, y))
