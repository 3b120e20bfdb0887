"""Candidates for a word: similar words, two words written as one, one word written as two, and proposals of the model."""

import bisect
import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from unnoise.apps.spelling.channel import (
    FREQUENT,
    Candidate,
    Channel,
    Span,
    candidate,
    change_evidence,
    evidence,
    matched_case,
    word_evidence,
)
from unnoise.apps.spelling.context import Answer, Reading, WordContext
from unnoise.apps.spelling.english import (
    CONFUSED,
    CONTRACTED,
    CONTRACTIONS,
    ONE_LETTER_WORDS,
    are_variants,
    differ_by_ending,
    edit_distance,
    sound,
)
from unnoise.apps.spelling.words import KEPT, Words

PART = 50  # a word is split only into words that occur more often
EDITS = 2  # between words that look alike; words that sound the same may have one more
FLOOR = -12.0  # nats: lower bound on context scores, and the score of unknown words
GAIN = 3.0  # nats that context is expected to add to a candidate of several tokens
DOUBTFUL = 5  # words with fewer occurrences are masked in the context of other words
LIKELY = 0.5  # probability above which a correction replaces a masked word in the context of others
NEIGHBOURS = 8  # words on either side that see the correction
SAME_SOUND = 4  # maximum number of edits between known words that sound the same
PIECED = 3  # maximum number of candidates of several tokens that are scored at a place
NEAR = 1.5  # candidates within this many nats of the most probable one are scored exactly
Found = dict[tuple[str, str], list[tuple[float, str]]]


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
        found: Found = {}
        for word, rest in written:
            if word not in near:
                continue
            key = (word, rest, margin, most)
            if key not in self._kept:
                if len(self._kept) >= KEPT:
                    self._kept = {}
                self._kept[key] = self._search(word, rest, near[word], margin=margin, most=most)
            found[word, rest] = self._kept[key]
        return found

    def _search(
        self, word: str, rest: str, near: tuple[np.ndarray, np.ndarray], *, margin: float, most: int
    ) -> list[tuple[float, str]]:
        places, edits = near
        written = word + rest
        own = self.channel.score(word_evidence(self.words, written))

        def behind(other: str) -> tuple[float, str]:
            return own - self.channel.score(evidence(self.words, written, other)), other

        confused = (one for one in CONFUSED.get(word, ()) if all(part in self.words.counts for part in self.words.parts(one)))
        special = (*self._same_sound(word), *self._split(word), *self._apostrophe(word), *confused)
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

    def _split(self, word: str) -> Iterator[str]:
        """Yield pairs of words that an unknown word may be made of."""
        for cut in range(1, 0 if self.words.knows(word) else len(word)):
            parts = (word[:cut], word[cut:])
            words = all(part in ONE_LETTER_WORDS or (len(part) > 1 and part not in CONTRACTED) for part in parts)
            if words and min(self.words.counts.get(part, 0) for part in parts) > PART:
                yield " ".join(parts)


class Case(NamedTuple):
    """A part of a text with its candidates and their tokens; the first candidate is the written text."""

    span: Span
    candidates: list[Candidate]
    tokens: list[list[int]]
    known: bool  # whether the written text is in the training text
    values: list[float]  # log p of each


class WordCandidates:
    """Adds context scores to candidates, and adds similar words that the model finds likely."""

    def __init__(self, context: WordContext, words: Words, channel: Channel):
        self.context, self.words, self.channel = context, words, channel

    def score(self, text: str, sets: list[tuple[Span, list[str]]], complete: bool = False) -> Iterator[list[Candidate]]:
        """Yield the candidates of each place that has a choice, or of every place if `complete`.

        Words that may be misspelled are masked in each other's context at first. The probable correction of a word then
        takes its place, and the other doubtful words near it are scored again.
        """
        reading = self.context.read(text, self._is_doubtful)
        cases = self._answered(reading, [self._case(text, span, others) for span, others in sets])
        doubtful = [i for i, case in enumerate(cases) if not case.span.rest and self._is_doubtful(case.span.word)]
        mended = {reading.unit_at[cases[i].span.start]: tokens for i in doubtful if (tokens := self._mended(cases[i]))}
        neighbours = Counter(unit + d for unit in mended for d in range(-NEIGHBOURS, NEIGHBOURS + 1) if d)
        near = [i for i in doubtful if neighbours[reading.unit_at[cases[i].span.start]]]
        if near:
            again = self._answered(reading.with_words(mended), [cases[i] for i in near])
            for i, case in zip(near, again, strict=True):
                cases[i] = case
        for case in cases:
            if complete or len(case.values) > 1:
                yield [
                    one._replace(evidence=one.evidence | self._context(case, i, value))
                    for i, (one, value) in enumerate(zip(case.candidates, case.values, strict=True))
                ]

    def _answered(self, reading: Reading, cases: list[Case]) -> list[Case]:
        """Return the cases with the proposals of the model and log p of all candidates."""
        places = [self.context.place(reading, case.span.start, 1 + bool(case.span.rest)) for case in cases]
        asked = [[tokens[0] for tokens in case.tokens if len(tokens) == 1] for case in cases]
        answers = self.context.one_token(reading, places, asked)
        cases = [self._with_proposals(case, answer) for case, answer in zip(cases, answers, strict=True)]
        first = [self._expected(case, answer) for case, answer in zip(cases, answers, strict=True)]
        wanted = [self._undecided(case, values) for case, values in zip(cases, first, strict=True)]
        pairs = [(place, case.tokens[i]) for place, case, some in zip(places, cases, wanted, strict=True) for i in some]
        found = iter(self.context.chain(reading, pairs))
        for values, some in zip(first, wanted, strict=True):
            for i in some:
                values[i] = next(found)
        return [case._replace(values=values) for case, values in zip(cases, first, strict=True)]

    def _mended(self, case: Case) -> list[int] | None:
        """Return the tokens of a correction that is likelier than not, if there is one."""
        scores = self._scores(case, case.values)
        best = max(range(len(scores)), key=scores.__getitem__)
        surely = sum(math.exp(score - scores[best]) for score in scores) < 1 / LIKELY
        return case.tokens[best] if best and surely else None

    def _is_doubtful(self, word: str) -> bool:
        """Return whether a word may be misspelled, or is too rare to be useful context."""
        return min(self.words.counts.get(part, 0) for part in self.words.parts(word)) < DOUBTFUL

    def _case(self, text: str, span: Span, others: list[str]) -> Case:
        blank = self.context.plain is not None or text[span.start - 1 : span.start] == " "
        written = span.word + span.rest.lower()
        candidates = [candidate(self.words, span, other) for other in (written, *others)]
        before = text[span.start : span.stop]
        tokens = [self.context.encode(matched_case(before, one.text), blank) for one in candidates]
        known = all(map(self.words.knows, self.words.parts(written)))
        return Case(span, candidates, tokens, known=known, values=[])

    def _with_proposals(self, case: Case, answer: Answer) -> Case:
        """Add words that are likely in this context and similar to the written word."""
        word = case.span.word
        if case.span.rest or len(word) < 2:
            return case
        there = {candidate.text.lower() for candidate in case.candidates}
        proposals, tokens = [], []
        for token, _ in answer.likeliest:
            other = self.context.words.get(token, "").lower()
            if other and other not in there and other in self.words.counts and alike(word, other, case.known):
                proposals.append(candidate(self.words, case.span, other))
                tokens.append([token])
                there.add(other)
        return case._replace(candidates=[*case.candidates, *proposals], tokens=[*case.tokens, *tokens])

    def _expected(self, case: Case, answer: Answer) -> list[float]:
        """Return log p of the candidates: from the model for one token, estimated by counts for several, −∞ if unknown."""
        likely = dict(answer.likeliest)
        values = []
        for tokens, one in zip(case.tokens, case.candidates, strict=True):
            if len(tokens) == 1:
                values.append(answer.asked.get(tokens[0], likely.get(tokens[0], FLOOR)))
            else:
                values.append(max(FLOOR, GAIN + sum(map(self.words.log_p, self.words.parts(one.text.lower())))))
        return values if case.known else [-math.inf, *values[1:]]

    def _undecided(self, case: Case, values: list[float]) -> list[int]:
        """Return the candidates of several tokens that may be the most probable and need an exact score."""
        scores = self._scores(case, values)
        best = max(scores)
        if scores[0] - NEAR > max(scores[1:], default=-math.inf):
            return []
        several = [i for i, tokens in enumerate(case.tokens) if len(tokens) > 1 and (i or case.known)]
        near = sorted((i for i in several if scores[i] > best - NEAR), key=lambda i: -scores[i])[:PIECED]
        return near if 0 in near or 0 not in several else [0, *near]

    def _scores(self, case: Case, values: list[float]) -> list[float]:
        return [
            self.channel.score(one.evidence) + self.channel.score(self._context(case, i, value))
            for i, (one, value) in enumerate(zip(case.candidates, values, strict=True))
        ]

    def _context(self, case: Case, i: int, log_p: float) -> dict[str, float]:
        """Return the context evidence of the i-th candidate."""
        value = math.log(math.exp(log_p) + math.exp(FLOOR))
        pieces = float(len(case.tokens[i]) - 1) if i or case.known else 0.0
        return {"context": value, "known_context": value * case.known, "pieces": pieces}


def alike(written: str, other: str, known: bool) -> bool:
    """Return whether a likely word is similar enough to the written one; for a known word it must sound alike or be nearest."""
    edits = edit_distance(written, other)
    if known:
        near = edits == 1 or (edits <= SAME_SOUND and sound(written) == sound(other)) or differ_by_ending(written, other)
        return near and not are_variants(written, other)
    if differ_by_ending(written, other):
        return True
    same_start = written[0] == other[0] or sound(written)[:1] == sound(other)[:1]
    return same_start and edits <= max(2, max(len(written), len(other)) // 2)
