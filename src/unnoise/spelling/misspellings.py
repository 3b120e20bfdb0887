"""Misspellings in a training text: rare words that are one common slip away from a far more frequent word."""

import math
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from unnoise.spelling.english import ENDINGS, VOWELS


class Slip(NamedTuple):
    """A common misspelling of words with at least `shortest` letters.

    The word must be 2^(bits − letters) times as frequent as the misspelling, because two long words are seldom so similar.
    """

    bits: int
    shortest: int


CONSONANT_DOUBLED = Slip(13, 5)  # or the reverse
LETTER_LEFT_OUT = Slip(15, 6)
LETTERS_SWAPPED = Slip(14, 6)
A_FOR_E = Slip(14, 6)  # or the reverse
LEAST_RATIO = 10
REGULAR = (*ENDINGS, "er")


def misspellings(counts: Mapping[str, int]) -> set[str]:
    """Return the words of a list that are probably misspellings of others.

    A word plus a regular ending (payer, celled) is correct unless the consonant before it should be doubled (refered).
    """
    found: dict[str, Slip] = {}
    for word, count in counts.items():
        for wrong, slip in slips(word):
            ratio = count / counts.get(wrong, math.inf)
            if len(word) >= slip.shortest and ratio >= max(LEAST_RATIO, 2.0 ** (slip.bits - len(word))):
                found[wrong] = min(slip, found.get(wrong, slip))
    return {word for word, slip in found.items() if slip == CONSONANT_DOUBLED or not _is_regular(word, counts, found)}


def slips(word: str) -> Iterator[tuple[str, Slip]]:
    """Yield common misspellings of a word; its first letter never changes."""
    for i in range(1, len(word)):
        before, letter, after = word[:i], word[i], word[i + 1 :]
        if letter not in VOWELS:
            yield before + letter + letter + after, CONSONANT_DOUBLED
            if letter == word[i - 1]:
                yield before + after, CONSONANT_DOUBLED
        if after:
            yield before + after, LETTER_LEFT_OUT
            if letter in "ae":
                yield before + ("a" if letter == "e" else "e") + after, A_FOR_E
        if len(after) > 1:
            yield before + after[0] + letter + after[1:], LETTERS_SWAPPED


def _is_regular(word: str, counts: Container[str], misspelled: Container[str]) -> bool:
    """Return whether this is another word of the list plus a regular ending."""
    stems = (word.removesuffix(ending) for ending in REGULAR if word.endswith(ending))
    return any(stem in counts and stem not in misspelled for stem in stems)
