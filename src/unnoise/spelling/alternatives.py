"""What else could be intended by a word: words that look or sound like it, two words written as one, one written as two."""

import bisect
from collections.abc import Collection, Iterator

import numpy as np

from unnoise.spelling.channel import FREQUENT, Channel, evidence, of_change, of_word
from unnoise.spelling.distance import edit_distance
from unnoise.spelling.english import CONFUSED, CONTRACTED, CONTRACTIONS, ONE_LETTER_WORDS, are_variants
from unnoise.spelling.words import KEPT, Words

PART = 50  # a word is split into words that occur more often
Found = dict[tuple[str, str], list[tuple[float, str]]]
EDITS = 2  # between what is written and what looks like it; one more between words that sound the same


class Alternatives:
    """The alternatives to words, from a word list, as a channel scores them.

    Most words need no search: from the best word of each length it is known that none can come near. Of the words that a search
    finds, those that can score most by their counts and their number of edits are compared first, until no other can do better.
    """

    def __init__(self, words: Words, channel: Channel):
        self.words, self.channel = words, channel
        self.edit_limit, self.other_limit = channel.limits()
        self.scores = channel.count * words.log_ps + channel.letter * words.lengths  # of each word by itself
        self.longest = int(words.lengths.max())
        self.best = np.full(self.longest + 1, -np.inf)  # score of each length
        np.maximum.at(self.best, words.lengths, self.scores)
        self._kept: dict[tuple[str, str, float, int], list[tuple[float, str]]] = {}

    def of(self, written: Collection[tuple[str, str]], margin: float, decided: float, most: int) -> Found:
        """For words, each with what comes after it, what could be intended by both: how many nats it is behind what is written,
        before context, and what it is. At most so many, less than `margin` behind, nearest first; a word of which all
        alternatives are at least `decided` behind may be left out."""
        searched = sorted({word for word, rest in written if rest or self._may_be_near(word, decided)})
        near: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for reach in range(1, EDITS + 1):
            some = [word for word in searched if self._reach(word) == reach]
            near |= zip(some, self.words.near_each(some, reach), strict=True)
        return {(word, rest): self._remembered(word, rest, *near[word], margin, most) for word, rest in written if word in near}

    def _remembered(
        self, word: str, rest: str, places: np.ndarray, edits: np.ndarray, margin: float, most: int
    ) -> list[tuple[float, str]]:
        """The nearest; what was found is kept for the next text."""
        key = (word, rest, margin, most)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT:
                self._kept = {}
            found = self._kept[key] = self._nearest(word, rest, places, edits, margin, most)
        return found

    def _nearest(
        self, word: str, rest: str, places: np.ndarray, edits: np.ndarray, margin: float, most: int
    ) -> list[tuple[float, str]]:
        written = word + rest
        own = self.channel.score(of_word(self.words, written))

        def behind(other: str) -> tuple[float, str]:
            return own - self.channel.score(evidence(self.words, written, other)), other

        special = (*self._same_sound(word), *self._split(word), *self._apostrophe(word), *self._confused(word))
        others = {other + rest for other in special if not self._is_variant(word, other)}
        if rest:
            others.add(word + rest.strip())
        found = sorted(map(behind, others))
        least = self._least_behind(word, written, self.scores[places] + self.edit_limit * edits)
        for place in np.argsort(least, kind="stable"):
            if least[place] >= (found[most - 1][0] if len(found) >= most else margin):
                break
            other = self.words.in_order[places[place]] + rest
            if other not in others and not self._is_variant(word, self.words.in_order[places[place]]):
                bisect.insort(found, behind(other))
        return [pair for pair in found[:most] if pair[0] < margin]

    def _is_variant(self, word: str, other: str) -> bool:
        """Whether a word that the list has is the other in another spelling."""
        return self.words.knows(word) and are_variants(word, other)

    def _least_behind(self, word: str, written: str, scores: np.ndarray) -> np.ndarray:
        """How far words are behind at least, from what each scores by itself and for its edits: if all else speaks for it."""
        own, change = of_word(self.words, word), of_change(self.words, written)
        return self.channel.score(own) - self.channel.score(change) - self.other_limit - scores

    def _may_be_near(self, word: str, margin: float) -> bool:
        """Whether an alternative may be less than so far behind, as the best word of each length tells."""
        if word not in self.words.counts:
            return len(word) <= 2 * self.longest  # no more than two words
        shortest = max(0, len(word) - EDITS - 1)
        best = self.best[shortest : len(word) + EDITS + 2]
        edits = np.maximum(1, np.abs(np.arange(shortest, shortest + len(best)) - len(word)))
        return bool(self._least_behind(word, word, best + self.edit_limit * edits).min() < margin)

    def _reach(self, word: str) -> int:
        return 1 if self.words.counts.get(word, 0) > FREQUENT or len(word) < 3 else EDITS

    def _same_sound(self, word: str) -> list[str]:
        return [other for other in self.words.same_sound(word) if edit_distance(word, other) <= self._reach(word) + 1]

    def _apostrophe(self, word: str) -> Iterator[str]:
        """The word with an apostrophe that may have been left out: a contraction, or a genitive."""
        if word in CONTRACTIONS:
            yield CONTRACTIONS[word]
        elif word.endswith("s") and not word.endswith("ss") and len(word) > 3 and word[:-1] in self.words.counts:
            yield f"{word[:-1]}'s"

    def _confused(self, word: str) -> Iterator[str]:
        return (other for other in CONFUSED.get(word, ()) if all(part in self.words.counts for part in self.words.parts(other)))

    def _split(self, word: str) -> Iterator[str]:
        """Two words that may have been written as this one, if it is unknown."""
        for cut in range(1, 0 if self.words.knows(word) else len(word)):
            parts = (word[:cut], word[cut:])
            words = all(part in ONE_LETTER_WORDS or (len(part) > 1 and part not in CONTRACTED) for part in parts)
            if words and min(self.words.counts.get(part, 0) for part in parts) > PART:
                yield " ".join(parts)
