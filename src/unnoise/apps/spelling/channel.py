"""A log-linear model of spelling mistakes: the words that may change, the evidence for a correction, and its weights."""

import itertools
import math
import re
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from unnoise.apps.spelling.english import (
    CONFUSED,
    CONTRACTIONS,
    VOWELS,
    differ_by_ending,
    edit_distance,
    sound,
)
from unnoise.apps.spelling.words import WORD, Words

TOKEN = re.compile(r"\S+")
ADDRESS = ("@", "://", "www.")  # a string with one of these is never changed
EXPANDED = frozenset(CONTRACTIONS.values())
OPENERS = '.!?:"“'  # a word after these, with a capital, begins a sentence


class Span(NamedTuple):
    """A word, or two words that may be one: their characters, the first word, and the text after it as written."""

    start: int
    stop: int
    word: str  # in lower case
    rest: str
    name: bool  # a capital inside a sentence
    opening: bool  # a capital at the start of one


def find_spans(text: str, known: Container[str], keep: Collection[str] = ()) -> Iterator[Span]:
    """Yield the words of a text in order, without those to keep; two words that join to a known one share a span.

    Addresses are skipped, and so are letters inside longer strings (sha256, matinée).
    """
    last = 0
    for match, following in itertools.pairwise(itertools.chain(_words(text), [None])):
        assert match is not None
        between = text[last : match.start()]
        sign = between.rstrip()[-1:]
        opens = between.endswith("\n") or (sign in OPENERS if sign else last == 0)
        last = match.end()
        word = match.group().lower()
        if word in keep:
            continue
        if "'" in word and not (word in EXPANDED and all(part in known for part in word.split("'"))):
            continue  # contractions such as it's and you're may be confused with other words
        stop = match.end()
        if following and text[stop : following.start()] == " " and following.group().lower() not in keep:
            stop = following.end() if word + following.group().lower() in known else stop
        capital = match.group()[0].isupper()
        yield Span(
            start=match.start(),
            stop=stop,
            word=word,
            rest=text[match.end() : stop],
            name=capital and not opens,
            opening=capital and opens,
        )


def _words(text: str) -> Iterator["re.Match[str]"]:
    for token in TOKEN.finditer(text):
        if not any(mark in token.group() for mark in ADDRESS):
            yield from WORD.finditer(text, token.start(), token.end())


FREQUENT = 20  # words that occur more often are frequent


@dataclass(frozen=True)
class Channel:
    """The weights of a log-linear model, in nats for each unit of evidence:

        log p(intended | written, context) = Σ_k weight_k · evidence_k(written, intended, context) + constant.

    The weights are maximum likelihood estimates from mistakes of school children (`benchmarks/spelling.py --fit`).
    """

    count: float = 0.46  # log p(intended) by its count
    context: float = 0.01  # log p_model(intended | context)
    letter: float = 0.59  # per intended letter: each long word is rarer
    unknown: float = -1.22  # the intended word is not in the training text
    vowel: float = -1.93  # an edit of a vowel
    consonant: float = -1.83
    double: float = -0.95  # a doubled letter, or a missing one of two
    swap: float = -1.9  # two neighbours swapped
    first: float = -0.94  # a different first letter
    sound: float = -1.56  # an edit of the sound
    name: float = -1.86  # changing a capitalised word inside a sentence
    opening: float = -1.31  # or at its start
    contraction: float = 0.0  # a contraction without its apostrophe
    genitive: float = 0.0  # a genitive without its apostrophe
    pieces: float = 0.0  # per token of the intended word after the first
    known_context: float = 0.0  # added to context if the written word is known
    lower: float = 0.0  # changing an unknown lower-case word, rarely a name
    known: float = -1.39  # changing a word of the training text
    frequent: float = -0.75  # changing a frequent word
    short: float = -0.86  # changing a word of three letters or fewer
    split: float = -0.66  # two words written as one
    join: float = -0.66  # one word written as two
    ending: float = 0.99  # a difference in a grammatical ending
    confused: float = 0.0  # words that are often confused, whatever their edits

    def score(self, evidence: Mapping[str, float]) -> float:
        """Return log p up to a constant."""
        weights = vars(self)
        return sum([weights[name] * value for name, value in evidence.items()])

    def limits(self) -> tuple[float, float]:
        """Return upper bounds on the score of one edit, and of all other differences between two words."""
        edit = max(self.vowel, self.consonant, self.double, self.swap)
        rest = sum(max(0.0, weight) for weight in (self.first, self.ending))
        return edit, rest if edit <= 0 and self.sound <= 0 else math.inf


WORD_CHANNEL = Channel(  # fitted with the context of a masked model over word pieces
    count=0.14,
    context=0.48,
    letter=1.08,
    unknown=-3.31,
    vowel=-2.03,
    consonant=-2.08,
    double=-1.67,
    swap=-1.79,
    first=-0.54,
    sound=-1.66,
    name=-0.88,
    opening=-1.26,
    contraction=1.16,
    genitive=-0.42,
    pieces=-0.52,
    known_context=0.22,
    lower=0.77,
    known=-1.73,
    frequent=-0.34,
    short=-0.59,
    split=-4.21,
    join=1.92,
    ending=1.39,
    confused=0.39,
)


def evidence(words: Words, written: str, intended: str, name: bool = False, opening: bool = False) -> dict[str, float]:
    """Return the evidence for `intended` where `written` is written, without context; each is one word, or two.

    name: whether the written word has a capital inside a sentence.
    opening: whether it has one at the start of a sentence.
    """
    if written == intended:
        return word_evidence(words, intended)
    change = change_evidence(words, written, name=name, opening=opening)
    return word_evidence(words, intended) | change | difference_evidence(written, intended)


def word_evidence(words: Words, intended: str) -> dict[str, float]:
    """Return the evidence for one or two words, whatever is written."""
    parts = words.parts(intended)
    return {
        "count": sum(map(words.log_p, parts)),
        "letter": float(len(intended)),
        "unknown": float(sum(not words.knows(part) for part in parts)),
    }


def change_evidence(words: Words, written: str, name: bool = False, opening: bool = False) -> dict[str, float]:
    """Return the evidence for changing the written word, whatever is intended."""
    fewest = min(words.counts.get(part, 0) for part in words.parts(written))
    known = all(map(words.knows, words.parts(written)))
    return {
        "name": float(name),
        "opening": float(opening),
        "lower": float(not known and not name and not opening),
        "known": float(known),
        "frequent": float(fewest > FREQUENT),
        "short": float(len(written) < 4),
    }


@lru_cache(maxsize=1 << 16)
def difference_evidence(written: str, intended: str) -> dict[str, float]:
    """Return the evidence in the difference between the written and the intended word."""
    if written.replace(" ", "") == intended.replace(" ", ""):
        return {"join" if " " in written else "split": 1.0}
    if written == intended.replace("'", ""):
        return {"contraction" if written in CONTRACTIONS else "genitive": 1.0}
    if intended in CONFUSED.get(written, ()):
        return {"confused": 1.0}
    return edits(written, intended) | {
        "first": float(written[0] != intended[0]),
        "sound": float(edit_distance(sound(written), sound(intended))),
        "ending": float(differ_by_ending(written, intended)),
    }


def edits(written: str, intended: str) -> dict[str, float]:
    """Return the number of edits of each kind from one word to another."""
    from rapidfuzz.distance import Levenshtein

    distance = edit_distance(written, intended)
    swapped = Levenshtein.distance(written, intended) - distance  # a swap is one edit here, and two for Levenshtein
    kinds = {"vowel": 0.0, "consonant": 0.0, "double": 0.0, "swap": float(swapped)}
    if swapped:
        kinds["consonant"] = float(distance - swapped)
        return kinds
    for edit in Levenshtein.editops(intended, written):
        if edit.tag == "replace":
            kinds["vowel" if {intended[edit.src_pos], written[edit.dest_pos]} <= VOWELS else "consonant"] += 1
            continue
        word, place = (intended, edit.src_pos) if edit.tag == "delete" else (written, edit.dest_pos)
        letter = word[place]
        if letter in (word[place - 1 : place], word[place + 1 : place + 2]):
            kinds["double"] += 1
        else:
            kinds["vowel" if letter in VOWELS else "consonant"] += 1
    return kinds


class Candidate(NamedTuple):
    """A candidate: the characters that it replaces, its text, and its evidence for `Channel`."""

    start: int
    stop: int
    text: str
    evidence: dict[str, float]


def candidate(words: Words, span: Span, intended: str) -> Candidate:
    """Return the candidate for a span, without context; unchanged text after the word keeps its capitals."""
    found = evidence(words, span.word + span.rest.lower(), intended, name=span.name, opening=span.opening)
    stays = intended.endswith(span.rest.lower())
    text = intended[: len(intended) - len(span.rest)] + span.rest if stays else intended
    return Candidate(span.start, span.stop, text, found)


def matched_case(before: str, after: str) -> str:
    """Return `after` in the case of `before` (CAPITALS, Title or unchanged); I'm and I've always get their capital."""
    if len(before) > 1 and before.isupper():
        return after.upper()
    return after[:1].upper() + after[1:] if before[:1].isupper() or after.startswith("i'") else after
