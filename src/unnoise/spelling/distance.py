"""Distances between words in letters and in sound (rapidfuzz and jellyfish, from the extra `spelling`)."""

import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rapidfuzz.distance import Editops

AT_ONCE = 64  # words compared with all others at once


def check_installed() -> None:
    """Raise ValueError unless the libraries are installed."""
    if any(importlib.util.find_spec(name) is None for name in ("rapidfuzz", "jellyfish", "symspellpy")):
        raise ValueError("spell checking needs rapidfuzz, jellyfish and symspellpy: pip install 'unnoise[spelling]'")


def edit_distance(one: str, other: str) -> int:
    """Return the optimal string alignment distance: letters inserted, deleted or replaced, and neighbours swapped."""
    from rapidfuzz.distance import OSA

    return OSA.distance(one, other)


def swaps(one: str, other: str) -> int:
    """Return how many of these edits are swaps, each of which counts as two edits in the Levenshtein distance."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(one, other) - edit_distance(one, other)


def edit_operations(one: str, other: str) -> "Editops":
    """Return the Levenshtein edits from one word to the other."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.editops(one, other)


def within(words: Sequence[str], others: Sequence[str], distance: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each word the indices of the other words within a distance, and the distance of each."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    for first in range(0, len(words), AT_ONCE):
        some = words[first : first + AT_ONCE]
        for edits in process.cdist(some, others, scorer=OSA.distance, score_cutoff=distance, dtype=np.uint8):
            (places,) = np.nonzero(edits <= distance)
            yield places, edits[places]


@cache
def sound(word: str) -> str:
    """Return the Metaphone of a word, its approximate English sound."""
    from jellyfish import metaphone

    return metaphone(word)
