"""Spell checking by a noisy channel: each word is compared with the words that its author may have intended.

Alternatives are words that look or sound alike, two words written as one, and one written as two, so corrections insert and
delete letters with a model of any kind of noise. The score of a candidate combines its letters, its count and the model's own
conditional p(candidate | context) (`Channel`).
"""

import importlib.util
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from unnoise.apps.spelling.candidates import FLOOR, Alternatives, WordCandidates
from unnoise.apps.spelling.channel import WORD_CHANNEL, Candidate, Channel, Span, candidate, find_spans, matched_case
from unnoise.apps.spelling.context import WordContext, in_letters, letter_scores, reads_words
from unnoise.apps.spelling.words import FILE, WORD, Words, can_correct, lexicon

if TYPE_CHECKING:
    from unnoise.model.model import Model

MOST = 6  # alternatives scored in context
MOST_BY_WORDS = 24  # limit for a model over word pieces, which scores all candidates in one row
MARGIN = 4.0  # nats before context: alternatives further behind the written word are dropped
CONTEXT_RANGE = 30.0  # nats that context can add to a candidate: twice the largest observed value
EXPONENT = 1.5  # exponent of 1 − strength
EXPONENT_DOUBTFUL = 1.8  # for a model over word pieces: unknown words and often confused words
EXPONENT_KNOWN = 1.0  # for all other words
EXPONENT_JOINED = 0.15  # for joining two known words: both spellings are often correct
DOUBT = 3  # exponent of 1 − p(as written)


@dataclass(frozen=True)
class Edit:
    """One change of a text.

    start: the first character, counted in the original text.
    before, after: the original and the corrected characters.
    confidence: probability of the correction, from 0 to 1.
    alternatives: other candidates, each with its probability.
    """

    start: int
    before: str
    after: str
    confidence: float
    alternatives: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Correction:
    """A corrected text and its edits, in order."""

    text: str
    edits: list[Edit]


@lru_cache(maxsize=4)
def find_alternatives(words: Words, channel: Channel, accept_lexicon: bool) -> Alternatives:
    """Return the alternatives to words of a list; they remember what they found for earlier texts."""
    return Alternatives(Words(words.counts, lexicon()) if accept_lexicon else words, channel)


class Speller:
    """Spell checker with a model and a word list."""

    def __init__(self, model: "Model", words: Words | None, channel: Channel | None = None):
        if not can_correct(model.process):
            raise ValueError(
                f"spell checking needs a model of masked or uniform noise such as mdlm or udlm, found {model.method.name}"
            )
        if words is None:
            raise ValueError(f"this model has no list of words ({FILE}), so it cannot correct spelling: train it on documents")
        if not words.counts:
            raise ValueError("spell checking needs a list of words, and this one is empty: train the model on English text")
        if any(importlib.util.find_spec(name) is None for name in ("rapidfuzz", "jellyfish", "symspellpy")):
            raise ValueError("spell checking needs rapidfuzz, jellyfish and symspellpy: pip install 'unnoise[spelling]'")
        by_words = reads_words(model)
        self.model, self.channel = model, channel or (WORD_CHANNEL if by_words else Channel())
        self.alternatives = find_alternatives(words, self.channel, by_words)
        self.words = self.alternatives.words
        self.word_candidates = WordCandidates(WordContext(model), self.words, self.channel) if by_words else None
        self.doubt = DOUBT if by_words else 0
        self.decided = min(MARGIN, abs(self.channel.context) * CONTEXT_RANGE)  # nats before context that decide alone

    def correct(self, text: str, strength: float = 0.5, keep: Collection[str] = ()) -> Correction:
        """Return the text with each word replaced by its most probable candidate if `edits` finds that likely enough.

        An unknown word that is the whole text is not a candidate itself: the question is how to spell it.
        """
        if not 0 <= strength <= 1:
            raise ValueError(f"strength must lie in [0, 1], found {strength}")
        alone = len(WORD.findall(text)) == 1
        sets = self.candidates(text, {word.lower() for word in keep}, complete=alone)
        if alone:
            sets = [some[1:] if some[1:] and not self.words.knows(some[0].text) else some for some in sets]
        edits = self.edits(text, sets, strength)
        pieces: list[str] = []
        last = 0
        for edit in edits:
            pieces += [text[last : edit.start], edit.after]
            last = edit.start + len(edit.before)
        return Correction("".join([*pieces, text[last:]]), edits)

    def edits(self, text: str, sets: Iterable[list[Candidate]], strength: float) -> list[Edit]:
        """Return the edits whose most probable candidate has a probability p > (1 − strength)^1.5.

        With a model over word pieces, p · (1 − p(as written))³ must exceed (1 − strength)^γ, where γ = 1.8 for a word that is
        unknown or often confused with the candidate, 0.15 for joining two known words, and 1 for all other words.
        """
        edits: list[Edit] = []
        covered = 0
        for candidates in sets:
            scores = [self.channel.score(candidate.evidence) for candidate in candidates]
            weights = [math.exp(score - max(scores)) for score in scores]
            probabilities = [weight / sum(weights) for weight in weights]
            ranked = sorted(zip(probabilities, candidates, strict=True), key=lambda pair: -pair[0])
            best, likeliest = ranked[0]
            before = text[likeliest.start : likeliest.stop]
            as_written = sum(p for p, candidate in ranked if candidate.text.lower() == before.lower())
            sure = best * (1 - as_written) ** self.doubt > (1 - strength) ** self._exponent(likeliest)
            if likeliest.text.lower() == before.lower() or not sure or likeliest.start < covered:
                continue
            texts = [before, *(other.text for _, other in ranked[:4])]
            if len({text.rpartition(" ")[2] for text in texts}) == 1 and all(" " in text for text in texts):
                texts = [text.rpartition(" ")[0] for text in texts]  # the edit does not cover a last word that all share
            before, after, *others = texts
            alternatives = [(matched_case(before, other), p) for other, (p, _) in zip(others, ranked[1:], strict=False)]
            edits.append(Edit(likeliest.start, before, matched_case(before, after), confidence=best, alternatives=alternatives))
            covered = likeliest.start + len(before)
        return edits

    def _exponent(self, likeliest: Candidate) -> float:
        if not self.word_candidates:
            return EXPONENT
        facts = likeliest.evidence
        if facts.get("known") and facts.get("join"):
            return EXPONENT_JOINED
        unknown = not facts.get("known") and not facts.get("name")  # names are often unknown
        return EXPONENT_DOUBTFUL if unknown or facts.get("confused") else EXPONENT_KNOWN

    def candidates(self, text: str, keep: Collection[str] = (), complete: bool = False) -> Iterator[list[Candidate]]:
        """Yield the candidates of each word that may change, with their evidence; the first is the written word.

        The model scores only candidates near the likeliest, where context can decide. The others get the context score of the
        likeliest. complete: yield all words that have alternatives, and score all candidates.
        """
        if self.word_candidates:
            yield from self.word_candidates.score(text, list(self._by_words(text, keep, complete)), complete)
            return
        sets = list(self._without_context(text, keep, complete))
        asked = [candidates if complete else self._undecided(candidates) for candidates in sets]
        values = iter(self.context(text, [candidate for candidates in asked for candidate in candidates]))
        for candidates, near in zip(sets, asked, strict=True):
            context = {candidate.text: next(values) for candidate in near}
            usual = next(iter(context.values()), 0.0)
            yield [c._replace(evidence=c.evidence | {"context": context.get(c.text, usual)}) for c in candidates]

    def _undecided(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates that context can decide between, most probable first.

        The list is empty if one candidate is far more probable than the others."""
        scored = sorted(((self.channel.score(c.evidence), c) for c in candidates), key=lambda pair: -pair[0])
        near = [candidate for score, candidate in scored if scored[0][0] - score < self.decided]
        return near if len(near) > 1 else []

    def context(self, text: str, candidates: list[Candidate]) -> list[float]:
        """Return log p_model(candidate | context) of each candidate, in nats."""
        return letter_scores(self.model, [in_letters(self.model, text, one.start, one.stop, one.text) for one in candidates])

    def _without_context(self, text: str, keep: Collection[str], complete: bool) -> Iterator[list[Candidate]]:
        margin, decided = (math.inf, math.inf) if complete else (MARGIN, self.decided)
        spans = list(find_spans(text, self.words.counts, keep))
        alternatives = self.alternatives.find(
            {(span.word, span.rest.lower()) for span in spans}, margin, decided=decided, most=MOST
        )
        for span in spans:
            found = alternatives.get((span.word, span.rest.lower()), [])
            capital = self.channel.name * span.name + self.channel.opening * span.opening
            near = [other for behind, other in found if behind - capital < margin]
            if near and found[0][0] - capital < decided:
                yield [candidate(self.words, span, other) for other in (span.word + span.rest.lower(), *near)]

    def _by_words(self, text: str, keep: Collection[str], complete: bool) -> Iterator[tuple[Span, list[str]]]:
        """Yield alternatives for a model over word pieces; a pair of words that may be one comes before its first word."""
        spans = list(find_spans(text, self.words.counts, keep))
        margin = math.inf if complete else MARGIN + (self.channel.context + self.channel.known_context) * -FLOOR
        alternatives = self.alternatives.find({(span.word, "") for span in spans}, margin, decided=margin, most=MOST_BY_WORDS)
        for span in spans:
            if span.rest:
                yield span, [span.word + span.rest.strip().lower()]
            alone = span._replace(stop=span.start + len(span.word), rest="")
            others = alternatives.get((span.word, ""), [])
            yield alone, [other for _, other in (others[:MOST] if self.words.knows(span.word) else others)]
