"""The words of a training text: how often each occurs, which look alike, and which sound alike."""

import gzip
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from unnoise.files import write_atomically
from unnoise.spelling.distance import sound, within

WORD = re.compile(r"(?<!\w)[A-Za-z]+(?:'[A-Za-z]+)*(?!\w)")
FILE = "words.txt.gz"


class Words:
    """The words of a training text with their counts."""

    def __init__(self, counts: dict[str, int]):
        if not counts:
            raise ValueError("a word list needs at least one word")
        self.counts = counts
        self.total = sum(counts.values())

    @staticmethod
    def of(texts: Iterable[str], most: int = 60_000, least: int = 2) -> "Words":
        """The most frequent words that occur at least `least` times, in lower case."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(WORD.findall(text.lower()))
        kept = {word: n for word, n in counts.most_common(most) if n >= least}
        return Words(kept or dict(counts.most_common(most)))

    @staticmethod
    def load(path: Path) -> "Words":
        """From a gzipped file with a word and its count on each line."""
        try:
            lines = gzip.decompress(path.read_bytes()).decode().splitlines()
            return Words({word: int(count) for word, count in (line.split() for line in lines)})
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a word list: {error}") from error

    def save(self, path: Path) -> None:
        """Write that file."""
        content = "".join(f"{word} {count}\n" for word, count in self.counts.items())
        write_atomically(path, gzip.compress(content.encode(), mtime=0))

    @cached_property
    def _list(self) -> list[str]:
        return list(self.counts)

    def log_p(self, word: str) -> float:
        """log p of a word by its count; a word that never occurred has half a count."""
        return math.log(self.counts.get(word, 0.5) / self.total)

    def near(self, word: str, distance: int) -> dict[str, int]:
        """Other words within so many edits (a letter more, less or other, two neighbours swapped), and how many these are."""
        return {other: edits for other, edits in within(word, self._list, distance).items() if other != word}

    def alike(self, word: str) -> list[str]:
        """Other words that sound the same."""
        return [other for other in self._by_sound.get(sound(word), ()) if other != word]

    @cached_property
    def _by_sound(self) -> dict[str, list[str]]:
        by_sound: dict[str, list[str]] = {}
        for word in self.counts:
            by_sound.setdefault(sound(word), []).append(word)
        return by_sound
