"""Candidates and what a model over word pieces says of them: those of a word list, and those that the model proposes."""

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

FLOOR = -12.0  # nats: what fits less is taken to fit so much, as is a word that the training text does not have
GAIN = 3.0  # nats by which a candidate of several tokens is expected to be likelier in its context than by its count
DOUBTFUL = 5  # a word that the training text has less often is hidden from those around it
LIKELY = 0.5  # probability of a word that is read in place of one that may be misspelled
NEIGHBOURS = 8  # words that it is read by
SAME_SOUND = 4  # edits between known words that sound the same
PIECED = 3  # candidates of several tokens that are asked about at a place
NEAR = 1.5  # nats behind the likeliest candidate within which another may turn out to be likelier


class Case(NamedTuple):
    """A part of a text with its candidates and their tokens; the first is what is written."""

    span: Span
    candidates: list[Candidate]
    tokens: list[list[int]]
    known: bool  # whether what is written is a word that the training text has
    values: list[float]  # log p of each


class WordCandidates:
    """Adds to candidates what the model says of them, and words that it finds likely and that are like what is written."""

    def __init__(self, context: WordContext, words: Words, channel: Channel):
        self.context, self.words, self.channel = context, words, channel

    def of(self, text: str, sets: list[tuple[Span, list[str]]], complete: bool = False) -> Iterator[list[Candidate]]:
        """The candidates of each place that have to be compared; with `complete` also where what is written is the only one.

        Words that may be misspelled say nothing about each other at first. Where one of them is probably another word, that is
        read in its place, and those that may be misspelled near it are asked about again.
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
        """The cases with log p of their candidates, and with those that the model proposes."""
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
        """The tokens of another word that is likelier than not to be meant."""
        scores = self._scores(case, case.values)
        best = max(range(len(scores)), key=scores.__getitem__)
        surely = sum(math.exp(score - scores[best]) for score in scores) < 1 / LIKELY
        return case.tokens[best] if best and surely else None

    def _is_doubtful(self, word: str) -> bool:
        """Whether a word may be misspelled, or is so rare that the model has not learned what it says about others."""
        return min(self.words.counts.get(part, 0) for part in self.words.parts(word)) < DOUBTFUL

    def _case(self, text: str, span: Span, others: list[str]) -> Case:
        blank = self.context.plain is not None or text[span.start - 1 : span.start] == " "
        written = span.word + span.rest.lower()
        candidates = [candidate(self.words, span, other) for other in (written, *others)]
        before = text[span.start : span.stop]
        tokens = [self.context.encode(matched_case(before, one.text), blank) for one in candidates]
        known = all(map(self.words.knows, self.words.parts(written)))
        return Case(span, candidates, tokens, known, [])

    def _with_proposals(self, case: Case, answer: Answer) -> Case:
        """With words that are likely at the place and like what is written."""
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
        """log p of the candidates: of one token as the model says, of several as their counts tell; none of an unknown word."""
        likely = dict(answer.likeliest)
        values = [
            answer.asked.get(tokens[0], likely.get(tokens[0], FLOOR)) if len(tokens) == 1 else self._by_count(one.text)
            for tokens, one in zip(case.tokens, case.candidates, strict=True)
        ]
        return values if case.known else [-math.inf, *values[1:]]

    def _by_count(self, text: str) -> float:
        return max(FLOOR, GAIN + sum(map(self.words.log_p, self.words.parts(text.lower()))))

    def _undecided(self, case: Case, values: list[float]) -> list[int]:
        """The candidates of several tokens that the model has to be asked about, since they may be the likeliest."""
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
        """The evidence of its context for the i-th candidate."""
        value = math.log(math.exp(log_p) + math.exp(FLOOR))
        pieces = float(len(case.tokens[i]) - 1) if i or case.known else 0.0
        return {"context": value, "known_context": value * case.known, "pieces": pieces}


def alike(written: str, other: str, known: bool) -> bool:
    """Whether a word that fits may be meant by what is written: by a known word only what sounds the same, or is nearest."""
    edits = edit_distance(written, other)
    if known:
        near = edits == 1 or (edits <= SAME_SOUND and sound(written) == sound(other)) or differ_by_ending(written, other)
        return near and not are_variants(written, other)
    if differ_by_ending(written, other):
        return True
    same_start = written[0] == other[0] or sound(written)[:1] == sound(other)[:1]
    return same_start and edits <= max(2, max(len(written), len(other)) // 2)
