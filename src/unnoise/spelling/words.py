"""The words of a training text: how often each occurs, which look alike, and which sound alike."""

import gzip
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from unnoise.files import read_bytes, write_atomically
from unnoise.spelling.counting import count_words
from unnoise.spelling.distance import sound, within
from unnoise.spelling.misspellings import misspellings

FILE = "words.txt.gz"
KEPT = 20_000  # words of which those near to them are remembered
LARGEST = 64 * 2**20  # bytes of it, unpacked


class Words:
    """The words of a training text with their counts; a list that must still be counted is counted when it is first asked.

    others: words that the training text does not have and that are right all the same; they are not proposed.
    """

    def __init__(self, counts: dict[str, int] | Callable[[], dict[str, int]], others: frozenset[str] = frozenset()):
        self._counts, self.others = counts, others
        self._near: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}

    @cached_property
    def counts(self) -> dict[str, int]:
        """Each word and how often it occurs."""
        if callable(self._counts):
            self._counts = self._counts()  # which lets go of the texts
        return self._counts

    def knows(self, word: str) -> bool:
        """Whether this is a word."""
        return word in self.counts or word in self.others

    def with_others(self, others: frozenset[str]) -> "Words":
        """The same list, which knows these words too."""
        return Words(self.counts, others)

    @cached_property
    def total(self) -> int:
        """How many words the text has, each as often as it occurs."""
        return sum(self.counts.values())

    @staticmethod
    def of(texts: Iterable[str], most: int = 60_000, least: int = 2) -> "Words":
        """The most frequent words that occur at least `least` times, in lower case, without probable misspellings.

        They are counted when they are first asked for, at the latest when they are saved.
        """

        def count() -> dict[str, int]:
            counts = count_words(texts).most_common(most)
            kept = {word: n for word, n in counts if n >= least}
            return Words(kept or dict(counts)).without_misspellings().counts

        return Words(count)

    def without_misspellings(self) -> "Words":
        """The list without rare words that are a usual slip away from a word that is far more frequent."""
        wrong = misspellings(self.counts)
        return Words({word: count for word, count in self.counts.items() if word not in wrong})

    @staticmethod
    def load(path: Path) -> "Words":
        """From a gzipped file with a word and its count on each line, which is read when it is first asked for."""

        def read() -> dict[str, int]:
            try:
                lines = read_bytes(path, LARGEST, "word list").decode().splitlines()
                counts = {word: int(count) for word, count in (line.split() for line in lines)}
            except (OSError, ValueError) as error:
                raise ValueError(f"{path} is not a word list: {error}") from error
            if not path.stat().st_size or min(counts.values(), default=1) < 1:
                raise ValueError(f"{path} is not a word list: {'a count is below 1' if counts else 'it is empty'}")
            return counts

        return Words(read)

    def save(self, path: Path) -> None:
        """Write that file."""
        content = "".join(f"{word} {count}\n" for word, count in self.counts.items())
        write_atomically(path, gzip.compress(content.encode(), mtime=0))

    def log_p(self, word: str) -> float:
        """log p of a word by its count; a word that never occurred has half a count."""
        return math.log(self.counts.get(word, 0.5) / self.total)

    def parts(self, text: str) -> list[str]:
        """The words of a text; one with an apostrophe that the list lacks is two, as in a training text of letters alone."""
        return [part for word in text.split() for part in ([word] if word in self.counts else word.split("'"))]

    @cached_property
    def in_order(self) -> list[str]:
        """The words in their order."""
        return list(self.counts)

    @cached_property
    def log_ps(self) -> np.ndarray:
        """log p of each word of the list."""
        return np.log(np.array([*self.counts.values()]) / self.total)

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many letters each word of the list has."""
        return np.array([*map(len, self.in_order)])

    def near(self, word: str, distance: int) -> dict[str, int]:
        """Other words within so many edits (a letter more, less or other, two neighbours swapped), and how many these are."""
        ((places, edits),) = self.near_each([word], distance)
        return {self.in_order[place]: int(n) for place, n in zip(places, edits, strict=True)}

    def near_each(self, words: Sequence[str], distance: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same for many words, which takes a tenth of the time: for each the places of those in the list, and the edits.

        What was found is kept for the next text.
        """
        found = {word: self._near.get((word, distance)) for word in words}
        new = [word for word, near in found.items() if near is None]
        if len(self._near) + len(new) > KEPT:
            self._near = {}
        for word, (places, edits) in zip(new, within(new, self.in_order, distance), strict=True):
            found[word] = self._near[word, distance] = places[edits > 0], edits[edits > 0]
        return (near for word in words if (near := found[word]) is not None)

    def same_sound(self, word: str) -> list[str]:
        """Other words that sound the same."""
        return [other for other in self._by_sound.get(sound(word), ()) if other != word]

    @cached_property
    def _by_sound(self) -> dict[str, list[str]]:
        by_sound: dict[str, list[str]] = {}
        for word in self.counts:
            by_sound.setdefault(sound(word), []).append(word)
        return by_sound
