"""Words of a training text with their counts, without its misspellings, and their neighbours in letters and in sound."""

import gzip
import importlib.util
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unnoise.apps.spelling.english import ENDINGS, VOWELS, sound, within
from unnoise.data.texts import Source
from unnoise.process import Masked, Process, Uniform
from unnoise.training.callbacks import Callback

if TYPE_CHECKING:
    from unnoise.model.model import Model
    from unnoise.training.trainer import TrainingRun

FILE = "words.txt.gz"
LEXICON = "frequency_dictionary_en_82_765.txt"  # 82,765 English words of symspellpy (MIT license)
WORD = re.compile(r"(?<!\w)[A-Za-z]+(?:'[A-Za-z]+)*(?!\w)")
BLANK = re.compile(r"\s")
PIECE = 1 << 16  # characters counted at once, few enough for the processor's cache
KEPT = 20_000  # words whose neighbours are cached
LARGEST = 64 * 2**20  # bytes of an unpacked word list


class Words:
    """The words of a training text with their counts, which may be computed on first use.

    others: correct words that the training text does not have; they are never proposed.
    """

    def __init__(self, counts: dict[str, int] | Callable[[], dict[str, int]], others: frozenset[str] = frozenset()):
        self._counts, self.others = counts, others
        self._near: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}

    @staticmethod
    def from_texts(texts: Iterable[str], most: int = 60_000, least: int = 2) -> "Words":
        """Count the most frequent words that occur at least `least` times, in lower case, without probable misspellings."""

        def count() -> dict[str, int]:
            counts = count_words(texts).most_common(most)
            counts = {word: n for word, n in counts if n >= least} or dict(counts)
            wrong = misspellings(counts)
            return {word: n for word, n in counts.items() if word not in wrong}

        return Words(count)

    @staticmethod
    def from_bytes(content: bytes, name: str = FILE) -> "Words":
        """Read a gzipped list with a word and its count on each line."""

        def read() -> dict[str, int]:
            try:
                with gzip.open(io.BytesIO(content)) as file:
                    unpacked = file.read(LARGEST + 1)
                if len(unpacked) > LARGEST:
                    raise ValueError(f"it is larger than a word list may be ({LARGEST:,} bytes)")
                counts = {word: int(count) for word, count in (line.split() for line in unpacked.decode().splitlines())}
            except (OSError, EOFError, ValueError, zlib.error) as error:
                raise ValueError(f"{name} is not a word list: {error}") from error
            if not content or min(counts.values(), default=1) < 1:
                raise ValueError(f"{name} is not a word list: {'a count is below 1' if counts else 'it is empty'}")
            return counts

        return Words(read)

    def to_bytes(self) -> bytes:
        """Return the list as `from_bytes` reads it."""
        return gzip.compress("".join(f"{word} {count}\n" for word, count in self.counts.items()).encode(), mtime=0)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of occurrences of each word."""
        if callable(self._counts):
            self._counts = self._counts()  # releases the texts
        return self._counts

    def knows(self, word: str) -> bool:
        """Return whether this is a correct word."""
        return word in self.counts or word in self.others

    @cached_property
    def total(self) -> int:
        """Number of words in the training text, with repetitions."""
        return sum(self.counts.values())

    def log_p(self, word: str) -> float:
        """Return log p of a word by its count; an unseen word counts one half."""
        return math.log(self.counts.get(word, 0.5) / self.total)

    def parts(self, text: str) -> list[str]:
        """Return the words of a text; an unknown word with an apostrophe counts as two, as in a corpus of letters alone."""
        return [part for word in text.split() for part in ([word] if word in self.counts else word.split("'"))]

    @cached_property
    def in_order(self) -> list[str]:
        return list(self.counts)

    @cached_property
    def log_ps(self) -> np.ndarray:
        """log p of each word of the list."""
        return np.log(np.array([*self.counts.values()]) / self.total)

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.array([*map(len, self.in_order)])

    def near(self, word: str, distance: int) -> dict[str, int]:
        """Return the other words within an edit distance (insert, delete, replace or swap letters), each with its distance."""
        ((places, edits),) = self.near_each([word], distance)
        return {self.in_order[place]: int(n) for place, n in zip(places, edits, strict=True)}

    def near_each(self, words: Sequence[str], distance: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Return for each word the indices of its neighbours in the list and their distances; one batch is ten times faster."""
        found = {word: self._near.get((word, distance)) for word in words}
        new = [word for word, near in found.items() if near is None]
        if len(self._near) + len(new) > KEPT:
            self._near = {}
        for word, (places, edits) in zip(new, within(new, self.in_order, distance), strict=True):
            found[word] = self._near[word, distance] = places[edits > 0], edits[edits > 0]
        return (near for word in words if (near := found[word]) is not None)

    def same_sound(self, word: str) -> list[str]:
        """Return the other words that sound the same."""
        return [other for other in self._by_sound.get(sound(word), ()) if other != word]

    @cached_property
    def _by_sound(self) -> dict[str, list[str]]:
        by_sound: dict[str, list[str]] = {}
        for word in self.counts:
            by_sound.setdefault(sound(word), []).append(word)
        return by_sound


def model_words(model: "Model") -> Words | None:
    """Return the words of a model's training text, or None if the model was saved without them."""
    content = model.extra_files.get(FILE)
    return None if content is None else _from_bytes(content)


_from_bytes = lru_cache(maxsize=8)(Words.from_bytes)


class WordCounts(Callback):
    """Counts the words of the training documents and saves them with the model."""

    def before_save(self, run: "TrainingRun") -> None:
        source, extra = run.source, run.model.extra_files
        if FILE not in extra and isinstance(source, Source) and source.train_documents and can_correct(run.model.process):
            extra[FILE] = Words.from_texts(source.train_documents).to_bytes()


def can_correct(process: Process) -> bool:
    """Return whether a model of this process can correct spelling."""
    return isinstance(process, Masked | Uniform)


@cache
def lexicon() -> frozenset[str]:
    """Return the words in lower case, or none if symspellpy is not installed."""
    spec = importlib.util.find_spec("symspellpy")  # only its word list is used
    path = Path(spec.origin).with_name(LEXICON) if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        return frozenset()
    return frozenset(line.split()[0].lower() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip())


# ---- counting ------------------------------------------------------------------------------------------------------------


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Return the number of occurrences of each word, in lower case.

    Strings between blanks are counted first, and each distinct one is searched for words once.
    """
    tokens: Counter[str] = Counter()
    for text in texts:
        for piece in _pieces(text):
            tokens.update(piece.split())
    counts: Counter[str] = Counter()
    for token, count in tokens.items():
        if token.isascii() and token.isalpha():
            counts[token.lower()] += count
        else:
            for word in WORD.findall(token.lower()):
                counts[word] += count
    return counts


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that end at blanks."""
    start = 0
    while start < len(text):
        blank = BLANK.search(text, start + PIECE)
        stop = blank.start() if blank else len(text)
        yield text[start:stop]
        start = stop


# ---- misspellings --------------------------------------------------------------------------------------------------------


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
