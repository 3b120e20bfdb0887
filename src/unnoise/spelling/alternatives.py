"""Alternatives to a word: words that look or sound alike, two words written as one, one word written as two."""

import bisect
from collections.abc import Collection, Iterator

import numpy as np

from unnoise.spelling.channel import FREQUENT, Channel, change_evidence, evidence, word_evidence
from unnoise.spelling.distance import edit_distance
from unnoise.spelling.english import CONFUSED, CONTRACTED, CONTRACTIONS, ONE_LETTER_WORDS, are_variants
from unnoise.spelling.words import KEPT, Words

PART = 50  # a word is split only into words that occur more often
Found = dict[tuple[str, str], list[tuple[float, str]]]
EDITS = 2  # between words that look alike; words that sound the same may have one more


class Alternatives:
    """The alternatives to words in a word list, ranked by a channel.

    Most words need no search, because the best word of each length bounds the score of all alternatives. Words that a search
    finds are scored in the order of their upper bound, from count and number of edits, until no other word can score higher.
    """

    def __init__(self, words: Words, channel: Channel):
        self.words, self.channel = words, channel
        self.edit_limit, self.other_limit = channel.limits()
        self.scores = channel.count * words.log_ps + channel.letter * words.lengths  # of each word, without edits
        self.longest = int(words.lengths.max())
        self.best = np.full(self.longest + 1, -np.inf)  # highest score of each length
        np.maximum.at(self.best, words.lengths, self.scores)
        self._kept: dict[tuple[str, str, float, int], list[tuple[float, str]]] = {}

    def find(self, written: Collection[tuple[str, str]], margin: float, decided: float, most: int) -> Found:
        """Return the alternatives to words, each given with the text after it that may belong to it.

        An alternative is a pair (nats behind the written word, before context; text). Each word has at most `most`, nearest
        first, all less than `margin` behind. A word whose alternatives are all at least `decided` behind may be missing.
        """
        searched = sorted({word for word, rest in written if rest or self._may_be_near(word, decided)})
        near: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for reach in range(1, EDITS + 1):
            some = [word for word in searched if self._reach(word) == reach]
            near |= zip(some, self.words.near_each(some, reach), strict=True)
        return {
            (word, rest): self._nearest(word, rest, near[word], margin=margin, most=most)
            for word, rest in written
            if word in near
        }

    def _nearest(
        self, word: str, rest: str, near: tuple[np.ndarray, np.ndarray], *, margin: float, most: int
    ) -> list[tuple[float, str]]:
        key = (word, rest, margin, most)
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept = {}
            self._kept[key] = self._search(word, rest, near, margin=margin, most=most)
        return self._kept[key]

    def _search(
        self, word: str, rest: str, near: tuple[np.ndarray, np.ndarray], *, margin: float, most: int
    ) -> list[tuple[float, str]]:
        places, edits = near
        written = word + rest
        own = self.channel.score(word_evidence(self.words, written))

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
        """Return whether two words, the first of them known, are British and American spellings of one word."""
        return self.words.knows(word) and are_variants(word, other)

    def _least_behind(self, word: str, written: str, scores: np.ndarray) -> np.ndarray:
        """Return lower bounds on how far words with these scores are behind the written word."""
        own, change = word_evidence(self.words, word), change_evidence(self.words, written)
        return self.channel.score(own) - self.channel.score(change) - self.other_limit - scores

    def _may_be_near(self, word: str, margin: float) -> bool:
        """Return whether an alternative may be less than `margin` behind, judging by the best word of each length."""
        if word not in self.words.counts:
            return len(word) <= 2 * self.longest  # at most two words
        shortest = max(0, len(word) - EDITS - 1)
        best = self.best[shortest : len(word) + EDITS + 2]
        edits = np.maximum(1, np.abs(np.arange(shortest, shortest + len(best)) - len(word)))
        return bool(self._least_behind(word, word, best + self.edit_limit * edits).min() < margin)

    def _reach(self, word: str) -> int:
        return 1 if self.words.counts.get(word, 0) > FREQUENT or len(word) < 3 else EDITS

    def _same_sound(self, word: str) -> list[str]:
        return [other for other in self.words.same_sound(word) if edit_distance(word, other) <= self._reach(word) + 1]

    def _apostrophe(self, word: str) -> Iterator[str]:
        """Yield the word with a missing apostrophe: a contraction, or a genitive."""
        if word in CONTRACTIONS:
            yield CONTRACTIONS[word]
        elif word.endswith("s") and not word.endswith("ss") and len(word) > 3 and word[:-1] in self.words.counts:
            yield f"{word[:-1]}'s"

    def _confused(self, word: str) -> Iterator[str]:
        return (other for other in CONFUSED.get(word, ()) if all(part in self.words.counts for part in self.words.parts(other)))

    def _split(self, word: str) -> Iterator[str]:
        """Yield pairs of words that an unknown word may be made of."""
        for cut in range(1, 0 if self.words.knows(word) else len(word)):
            parts = (word[:cut], word[cut:])
            words = all(part in ONE_LETTER_WORDS or (len(part) > 1 and part not in CONTRACTED) for part in parts)
            if words and min(self.words.counts.get(part, 0) for part in parts) > PART:
                yield " ".join(parts)
