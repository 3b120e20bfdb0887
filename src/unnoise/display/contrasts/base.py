"""The common part of contrasts: settings, measurement, lines of text and a picture."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

Progress = Callable[[float], None]
Found = dict[str, Any]
"""Measured numbers, as JSON holds them."""


@dataclass(kw_only=True)
class Contrast(ABC):
    """One comparison. Its fields are settings, whole numbers ≥ 1.

    title: heading of the picture and of the lines.
    about: explanation of about ten lines, with the formulas.
    seed: decides random numbers.
    """

    title: ClassVar[str]
    about: ClassVar[str]
    seed: int = 0

    @abstractmethod
    def measure(self, progress: Progress) -> Found:
        """Return the numbers; progress(share) is called with the share of the work that is done, 0 to 1."""

    @abstractmethod
    def lines(self, found: Found) -> list[str]:
        """Return the numbers as lines for a terminal."""

    @abstractmethod
    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        """Draw the numbers."""
