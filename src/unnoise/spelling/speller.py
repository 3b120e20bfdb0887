"""Spell checking: a text is taken as a slightly noised one, and each word is compared with what else could be intended.

Alternatives are words that look or sound like it, two words written as one, and one written as two; so letters can be inserted
and deleted with a model of any kind of noise. The score of a candidate sums up what its letters, its count, and the model's own
conditional p(candidate | the rest) say (`Channel`).
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unnoise.spelling.alternatives import Alternatives
from unnoise.spelling.candidate import Candidate, candidate, matched_case
from unnoise.spelling.channel import Channel, channel_for
from unnoise.spelling.context import can_correct, context_scores, token_span
from unnoise.spelling.counting import WORD
from unnoise.spelling.distance import check_installed
from unnoise.spelling.lexicon import lexicon
from unnoise.spelling.spans import Span, find_spans
from unnoise.spelling.word_candidates import FLOOR, WordCandidates
from unnoise.spelling.word_context import WordContext, reads_words
from unnoise.spelling.words import FILE, Words

if TYPE_CHECKING:
    from unnoise.model.model import Model

MOST = 6  # alternatives considered in context
MOST_BY_WORDS = 24  # where one row of the network answers for all of them
MARGIN = 4.0  # nats before context: alternatives that are further behind what is written are not considered
CONTEXT_RANGE = 30.0  # nats by which context can prefer a candidate to what is written: twice the most that was seen
EXPONENT = 1.5  # of 1 − strength
EXPONENT_DOUBTFUL = 1.8  # with a model over word pieces, for an unknown word, or one that is often written for another
EXPONENT_KNOWN = 1.0  # and for all other words
EXPONENT_JOINED = 0.15  # for two known words that would become one: two words change, and both ways to write it are often right
DOUBT = 3  # how much more than what else could be meant counts whether what is written is meant


@dataclass(frozen=True)
class Edit:
    """One change: the character at which it starts, what stood there, what stands there now, how sure it is (0 to 1), and what
    else could be meant, each with its probability."""

    start: int
    before: str
    after: str
    confidence: float
    alternatives: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Correction:
    """The corrected text and its edits, in order; `start` counts in the original text."""

    text: str
    edits: list[Edit]


class Speller:
    """A model and a word list that correct together."""

    def __init__(self, model: "Model", words: Words | None, channel: Channel | None = None):
        if not can_correct(model.process):
            raise ValueError(
                f"spell checking needs a model of masked or uniform noise such as mdlm or udlm, found {model.method.name}"
            )
        if words is None:
            raise ValueError(f"this model has no list of words ({FILE}) beside it, so it cannot correct spelling")
        if not words.counts:
            raise ValueError("spell checking needs a list of words, and this one is empty: was the training text English?")
        check_installed()
        by_words = reads_words(model)
        self.words = words.with_others(lexicon()) if by_words else words
        self.model, self.channel = model, channel or channel_for(by_words)
        self.word_candidates = WordCandidates(WordContext(model), self.words, self.channel) if by_words else None
        self.alternatives = Alternatives(self.words, self.channel)
        self.doubt = DOUBT if by_words else 0
        self.decided = min(MARGIN, abs(self.channel.context) * CONTEXT_RANGE)  # nats before context that context cannot undo

    def correct(self, text: str, strength: float = 0.5, keep: Collection[str] = ()) -> Correction:
        """The text with its likeliest candidates, where it is likely enough that a word is not as it should be (`edits`).

        Who asks about one word alone wants to know how it is spelled: if it is unknown, it is not a candidate itself.
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
        """What changes: p of the likeliest candidate must be above (1 − strength)^1.5; with a model over word pieces p times
        (1 − p of what is written)³, above (1 − strength)^1.8 for a word that is unknown or often written for the other,
        above (1 − strength)^0.15 for two known words that would become one, and above 1 − strength for all others."""
        edits: list[Edit] = []
        covered = 0
        for candidates in sets:
            probabilities = softmax([self.channel.score(candidate.evidence) for candidate in candidates])
            ranked = sorted(zip(probabilities, candidates, strict=True), key=lambda pair: -pair[0])
            best, likeliest = ranked[0]
            before = text[likeliest.start : likeliest.stop]
            as_written = sum(p for p, candidate in ranked if candidate.text.lower() == before.lower())
            sure = best * (1 - as_written) ** self.doubt > (1 - strength) ** self._exponent(likeliest)
            if likeliest.text.lower() == before.lower() or not sure or likeliest.start < covered:
                continue
            before, after, *others = without_shared_end([before, *(other.text for _, other in ranked[:4])])
            alternatives = [(matched_case(before, other), p) for other, (p, _) in zip(others, ranked[1:], strict=False)]
            edits.append(Edit(likeliest.start, before, matched_case(before, after), best, alternatives))
            covered = likeliest.start + len(before)
        return edits

    def _exponent(self, likeliest: Candidate) -> float:
        """How the limit for a change falls with the strength."""
        if not self.word_candidates:
            return EXPONENT
        facts = likeliest.evidence
        if facts.get("known") and facts.get("join"):
            return EXPONENT_JOINED
        unknown = not facts.get("known") and not facts.get("name")  # a name need not be known
        return EXPONENT_DOUBTFUL if unknown or facts.get("confused") else EXPONENT_KNOWN

    def candidates(self, text: str, keep: Collection[str] = (), complete: bool = False) -> Iterator[list[Candidate]]:
        """For each word that may have to change its candidates, with all that speaks for them; the first is what is written.

        The model is asked only where context can decide: about candidates that are near the likeliest. The others of a word are
        taken to fit as well as the likeliest. complete: give all words that have alternatives, and ask about all candidates.
        """
        if self.word_candidates:
            yield from self.word_candidates.of(text, list(self._by_words(text, keep, complete)), complete)
            return
        sets = list(self._without_context(text, keep, complete))
        asked = [candidates if complete else self._undecided(candidates) for candidates in sets]
        values = iter(self.context(text, [candidate for candidates in asked for candidate in candidates]))
        for candidates, near in zip(sets, asked, strict=True):
            context = {candidate.text: next(values) for candidate in near}
            usual = next(iter(context.values()), 0.0)
            yield [c._replace(evidence=c.evidence | {"context": context.get(c.text, usual)}) for c in candidates]

    def _undecided(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those between which context can decide, likeliest first; none if one is far enough before all others."""
        scored = sorted(((self.channel.score(c.evidence), c) for c in candidates), key=lambda pair: -pair[0])
        near = [candidate for score, candidate in scored if scored[0][0] - score < self.decided]
        return near if len(near) > 1 else []

    def context(self, text: str, candidates: list[Candidate]) -> list[float]:
        """log p_model(candidate | the text around it) for each, in nats."""
        spans = [token_span(self.model, text, candidate.start, candidate.stop, candidate.text) for candidate in candidates]
        return context_scores(self.model, spans)

    def _without_context(self, text: str, keep: Collection[str], complete: bool) -> Iterator[list[Candidate]]:
        margin, decided = (math.inf, math.inf) if complete else (MARGIN, self.decided)
        spans = list(find_spans(text, self.words.counts, keep))
        alternatives = self.alternatives.of({(span.word, span.rest.lower()) for span in spans}, margin, decided, MOST)
        for span in spans:
            found = alternatives.get((span.word, span.rest.lower()), [])
            capital = self.channel.name * span.name + self.channel.opening * span.opening
            near = [other for behind, other in found if behind - capital < margin]
            if near and found[0][0] - capital < decided:
                yield [candidate(self.words, span, other) for other in (span.word + span.rest.lower(), *near)]

    def _by_words(self, text: str, keep: Collection[str], complete: bool) -> Iterator[tuple[Span, list[str]]]:
        """The same for a model over word pieces: two words that may be one are a case of their own, before the first alone."""
        spans = list(find_spans(text, self.words.counts, keep))
        margin = math.inf if complete else MARGIN + (self.channel.context + self.channel.known_context) * -FLOOR
        alternatives = self.alternatives.of({(span.word, "") for span in spans}, margin, margin, MOST_BY_WORDS)
        for span in spans:
            if span.rest:
                yield span, [span.word + span.rest.strip().lower()]
            alone = span._replace(stop=span.start + len(span.word), rest="")
            others = alternatives.get((span.word, ""), [])
            yield alone, [other for _, other in (others[:MOST] if self.words.knows(span.word) else others)]


def softmax(scores: list[float]) -> list[float]:
    """Probabilities from scores in nats."""
    highest = max(scores)
    parts = [math.exp(score - highest) for score in scores]
    return [part / sum(parts) for part in parts]


def without_shared_end(texts: list[str]) -> list[str]:
    """Without the last word of each, if it is the same in all and not all of any: an edit need not cover it."""
    shared = {text.rpartition(" ")[2] for text in texts}
    return [text.rpartition(" ")[0] for text in texts] if len(shared) == 1 and all(" " in text for text in texts) else texts
