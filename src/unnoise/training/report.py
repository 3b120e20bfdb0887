"""What came of a run, and whether it came apart."""

import math
from dataclasses import dataclass, field

DIVERGED = 1e8  # nats a token, or bits a character, beyond which a run has come apart


@dataclass
class Report:
    """Result of a run.

    bits_before, bits: per character, of the bound on held-out text. stderr: standard error of the latter by drawing, 0 where
    nothing was drawn. text_stderr: its standard error for all such text, from the spread over the texts that were measured;
    None if they were not measured in this call.
    """

    steps: int
    seconds: float
    tokens: int
    bits_before: float
    bits: float
    stderr: float
    finished: bool
    loss: str = "fast"
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    text_stderr: float | None = None


class NotANumber(ValueError):
    """The loss became infinite or NaN."""


def is_sound(value: float) -> bool:
    """Whether a loss or a bound is one of a run that has not come apart."""
    return math.isfinite(value) and value <= DIVERGED
