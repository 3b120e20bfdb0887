"""Training report and divergence check."""

import math
from dataclasses import dataclass, field

DIVERGED = 1e8  # nats per token, or bits per character, above which a run has diverged


@dataclass
class Report:
    """Result of a run.

    bits_before, bits: held-out bits per character before and after.
    stderr: Monte Carlo standard error of bits, 0 if the value is exact.
    text_stderr: standard error of bits over the population of sequences, from the spread of the measured ones; None if this
        call measured nothing.
    loss: paper, fast, or own (an objective passed by the caller).
    curve: (step, bits, stderr) of each evaluation.
    """

    steps: int
    seconds: float
    tokens: int
    bits_before: float
    bits: float
    stderr: float
    finished: bool
    loss: str = "paper"
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    text_stderr: float | None = None


class NotANumber(ValueError):
    """Error raised when the loss becomes infinite, NaN or huge."""


def is_sound(value: float) -> bool:
    """Return whether a loss or bound is finite and not huge."""
    return math.isfinite(value) and value <= DIVERGED
