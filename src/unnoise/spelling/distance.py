"""How far two words are apart in letters and in sound (rapidfuzz and jellyfish, of the extra `spelling`)."""

import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rapidfuzz.distance import Editops

AT_ONCE = 64  # words compared with all others at once


def check_installed() -> None:
    """ValueError, with what to do, unless the libraries are there."""
    if any(importlib.util.find_spec(name) is None for name in ("rapidfuzz", "jellyfish", "symspellpy")):
        raise ValueError("spell checking needs rapidfuzz, jellyfish and symspellpy: pip install 'unnoise[spelling]'")


def edit_distance(one: str, other: str) -> int:
    """The edits between two words: a letter more, less or other, two neighbours swapped (optimal string alignment)."""
    from rapidfuzz.distance import OSA

    return OSA.distance(one, other)


def swaps(one: str, other: str) -> int:
    """How many of these edits are swaps: each would be two edits otherwise (Levenshtein)."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(one, other) - edit_distance(one, other)


def edit_operations(one: str, other: str) -> "Editops":
    """The edits without swaps, one by one."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.editops(one, other)


def within(words: Sequence[str], others: Sequence[str], distance: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each word which of the others are at most so many edits away, by their places, and how many edits each is."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    for first in range(0, len(words), AT_ONCE):
        some = words[first : first + AT_ONCE]
        for edits in process.cdist(some, others, scorer=OSA.distance, score_cutoff=distance, dtype=np.uint8):
            (places,) = np.nonzero(edits <= distance)
            yield places, edits[places]


@cache
def sound(word: str) -> str:
    """How a word sounds in English, roughly: its Metaphone."""
    from jellyfish import metaphone

    return metaphone(word)
