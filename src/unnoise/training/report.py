"""What came of a run, and whether it came apart."""

import math
from dataclasses import dataclass, field

DIVERGED = 1e8  # nats a token, or bits a character, beyond which a run has come apart


@dataclass
class Report:
    """What came of a run; bits are per character, of the bound on held-out text, with standard errors."""

    steps: int
    seconds: float
    tokens: int
    bits_before: float
    bits: float
    stderr: float
    finished: bool
    loss: str = "fast"
    curve: list[tuple[int, float, float]] = field(default_factory=list)


class NotANumber(ValueError):
    """The loss became infinite or NaN."""


def is_sound(value: float) -> bool:
    """Whether a loss or a bound is one of a run that has not come apart."""
    return math.isfinite(value) and value <= DIVERGED
