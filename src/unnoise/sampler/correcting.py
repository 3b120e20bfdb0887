"""Predictor–corrector: after each step towards data, some noise again and the same step again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.sampler.base import Asker, Sampler
from unnoise.sampler.leaping import TweedieLeaping


@dataclass(frozen=True)
class PredictorCorrector(TweedieLeaping):
    """From t to s by p(x_s | x_t); then, `corrections` times, x_t ~ q(x_t | x_s) forward and x_s ~ p(x_s | x_t) back.

    Forward and back leave p_s as it is where the model is exact (Campbell et al. arXiv:2205.14987), so tokens that were
    revealed together and do not fit get another chance. Keeps the model's law as steps grow, and comes nearer to it with more
    corrections; a step costs 1 + corrections network calls, the first only one: there is nothing yet to correct. Given tokens
    stay.
    """

    corrections: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.corrections, bool) or not isinstance(self.corrections, int) or self.corrections < 0:
            raise ValueError(f"corrections must be a whole number ≥ 0, found {self.corrections!r}")

    @classmethod
    def make(cls, steps: int, temperature: float = 1.0, top_p: float = 1.0) -> "Sampler":
        """One correction after each of half as many steps: as many network calls in all."""
        return cls((steps + 1) // 2, temperature=temperature, top_p=top_p)

    def step(self, asker: Asker, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: torch.Generator) -> Tensor:
        x = super().step(asker, x, s, t, free, generator)
        from_s, to_t = (None if time is None else time[:, None].expand(x.shape) for time in (s, t))
        assert to_t is not None
        for _ in range(self.corrections if bool((t < self.begin(asker.process)).all()) else 0):
            noised = asker.process.noised(x, from_s, to_t, generator)
            x = super().step(asker, torch.where(free, noised, x), s, t, free, generator)
        return x
