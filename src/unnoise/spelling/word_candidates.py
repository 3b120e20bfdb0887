"""Candidates scored by a model over word pieces: alternatives from a word list, and proposals of the model."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from unnoise.spelling.candidate import Candidate, candidate, matched_case
from unnoise.spelling.channel import Channel
from unnoise.spelling.distance import edit_distance, sound
from unnoise.spelling.english import are_variants, differ_by_ending
from unnoise.spelling.spans import Span
from unnoise.spelling.word_context import Answer, Reading, WordContext
from unnoise.spelling.words import Words

FLOOR = -12.0  # nats: lower bound on context scores, and the score of unknown words
GAIN = 3.0  # nats that context is expected to add to a candidate of several tokens
DOUBTFUL = 5  # words with fewer occurrences are masked in the context of other words
LIKELY = 0.5  # probability above which a correction replaces a masked word in the context of others
NEIGHBOURS = 8  # words on either side that see the correction
SAME_SOUND = 4  # maximum number of edits between known words that sound the same
PIECED = 3  # maximum number of candidates of several tokens that are scored at a place
NEAR = 1.5  # nats behind the likeliest candidate within which others are scored exactly


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
        values = [
            answer.asked.get(tokens[0], likely.get(tokens[0], FLOOR)) if len(tokens) == 1 else self._by_count(one.text)
            for tokens, one in zip(case.tokens, case.candidates, strict=True)
        ]
        return values if case.known else [-math.inf, *values[1:]]

    def _by_count(self, text: str) -> float:
        return max(FLOOR, GAIN + sum(map(self.words.log_p, self.words.parts(text.lower()))))

    def _undecided(self, case: Case, values: list[float]) -> list[int]:
        """Return the candidates of several tokens that may be the likeliest and need an exact score."""
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
