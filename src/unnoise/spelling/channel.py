"""How people misspell: what speaks for and against a correction, and how much each fact counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from unnoise.spelling.distance import edit_distance, edit_operations, sound, swaps
from unnoise.spelling.english import CONFUSED, CONTRACTIONS, VOWELS, differ_by_ending
from unnoise.spelling.words import Words

FREQUENT = 20  # a word that occurs more often is frequent


@dataclass(frozen=True)
class Channel:
    """The weights of a log-linear model, in nats for each unit of evidence:

        log p(intended | written, the rest) = Σ_k weight_k · evidence_k(written, intended, the rest) + constant.

    Fitted by maximum likelihood to mistakes of school children (`benchmarks/spelling.py --fit`).
    """

    count: float = 0.46  # log p(intended) by its count
    context: float = 0.01  # log p_model(intended | the rest)
    letter: float = 0.59  # for each letter of what is intended: longer words are less likely one by one
    unknown: float = -1.22  # a word that the training text does not have
    vowel: float = -1.93  # an edit of a vowel
    consonant: float = -1.83
    double: float = -0.95  # a letter doubled, or not
    swap: float = -1.9  # two neighbours swapped
    first: float = -0.94  # another first letter
    sound: float = -1.56  # an edit of the sound
    name: float = -1.86  # changing a word with a capital inside a sentence
    opening: float = -1.31  # or at the start of one
    contraction: float = 0.0  # don't without its apostrophe
    genitive: float = 0.0  # a genitive without it
    pieces: float = 0.0  # for each token of what is intended beyond the first
    known_context: float = 0.0  # the same as context, where what is written is a word that the training text has
    lower: float = 0.0  # changing an unknown word without a capital, which is hardly a name
    known: float = -1.39  # changing a word that the training text has
    frequent: float = -0.75  # and has often
    short: float = -0.86  # changing a word of three letters or fewer
    split: float = -0.66  # two words written as one
    join: float = -0.66  # one word written as two
    ending: float = 0.99  # a grammatical ending more or less
    confused: float = 0.0  # words that are often written for each other, however they differ

    def score(self, evidence: Mapping[str, float]) -> float:
        """log p up to a constant."""
        weights = vars(self)
        return sum([weights[name] * value for name, value in evidence.items()])

    def limits(self) -> tuple[float, float]:
        """The most that each edit, and that all else about how two words differ, can add to a score."""
        edit = max(self.vowel, self.consonant, self.double, self.swap)
        rest = sum(max(0.0, weight) for weight in (self.first, self.ending))
        return edit, rest if edit <= 0 and self.sound <= 0 else math.inf


WORD_CHANNEL = Channel(  # with the context of a masked model over word pieces
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
    """What speaks for and against `intended` (one word, or two) where `written` (one word, or two) is written; no context.

    name, opening: whether it has a capital inside a sentence, or at the start of one.
    """
    if written == intended:
        return of_word(words, intended)
    return of_word(words, intended) | of_change(words, written, name, opening) | of_difference(written, intended)


def of_word(words: Words, intended: str) -> dict[str, float]:
    """What speaks for and against a word, or two, whatever is written."""
    parts = words.parts(intended)
    return {
        "count": sum(map(words.log_p, parts)),
        "letter": float(len(intended)),
        "unknown": float(sum(not words.knows(part) for part in parts)),
    }


def of_change(words: Words, written: str, name: bool = False, opening: bool = False) -> dict[str, float]:
    """What speaks for and against changing what is written, whatever is intended."""
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
def of_difference(written: str, intended: str) -> dict[str, float]:
    """How the two differ."""
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
    """The edits from one word to another by their kind."""
    swapped = swaps(written, intended)
    kinds = {"vowel": 0.0, "consonant": 0.0, "double": 0.0, "swap": float(swapped)}
    if swapped:
        kinds["consonant"] = float(edit_distance(written, intended) - swapped)
        return kinds
    for edit in edit_operations(intended, written):
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
