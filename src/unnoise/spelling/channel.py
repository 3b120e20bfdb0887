"""How people misspell: what is known of what stands there and of what could be meant, and what each fact weighs."""

from collections.abc import Mapping
from dataclasses import dataclass

from unnoise.spelling.distance import edit_distance, edit_operations, sound, swaps
from unnoise.spelling.words import Words

VOWELS = frozenset("aeiouy")
ENDINGS = frozenset(("s", "es", "d", "ed", "ing", "e", "ly"))


@dataclass(frozen=True)
class Channel:
    """The weights of a log-linear model, in nats for each unit of evidence:

        log p(meant | standing, the rest) = Σ_k weight_k · evidence_k(standing, meant, the rest) + constant.

    Fitted by maximum likelihood to mistakes of school children (`benchmarks/spelling.py --fit`).
    """

    count: float = 0.46  # log p(meant) by its count
    context: float = 0.01  # log p_model(meant | the rest)
    letter: float = 0.59  # for each letter of what is meant: longer words are less likely one by one
    unknown: float = -1.22  # a word that the training text does not have
    vowel: float = -1.93  # an edit of a vowel
    consonant: float = -1.83
    double: float = -0.95  # a letter doubled, or not
    swap: float = -1.9  # two neighbours swapped
    first: float = -0.94  # another first letter
    sound: float = -1.56  # an edit of the sound
    name: float = -1.86  # changing a word with a capital inside a sentence
    opening: float = -1.31  # or at the start of one
    known: float = -1.39  # changing a word that the training text has
    frequent: float = -0.75  # and has often
    short: float = -0.86  # changing a word of three letters or fewer
    boundary: float = -0.66  # words run together or torn apart
    ending: float = 0.99  # a grammatical ending more or less

    def weigh(self, evidence: Mapping[str, float]) -> float:
        """log p up to a constant."""
        weights = vars(self)
        return sum(weights[name] * value for name, value in evidence.items())


def evidence(words: Words, standing: str, meant: str, name: bool = False, opening: bool = False) -> dict[str, float]:
    """What speaks for and against `meant` (one word, or two) where `standing` (one word, or two) is written; no context.

    name, opening: whether it has a capital inside a sentence, or at the start of one.
    """
    parts = meant.split()
    found = {
        "count": sum(map(words.log_p, parts)),
        "letter": float(len(meant)),
        "unknown": float(sum(part not in words.counts for part in parts)),
    }
    if standing == meant:
        return found
    known = all(part in words.counts for part in standing.split())
    found |= {
        "name": float(name),
        "opening": float(opening),
        "known": float(known),
        "frequent": float(known and min(words.counts[part] for part in standing.split()) > 20),
        "short": float(len(standing) < 4),
    }
    if standing.replace(" ", "") == meant.replace(" ", ""):
        return found | {"boundary": 1.0}
    longer, shorter = sorted((standing, meant), key=len, reverse=True)
    return (
        found
        | edits(standing, meant)
        | {
            "first": float(standing[0] != meant[0]),
            "sound": float(edit_distance(sound(standing), sound(meant))),
            "ending": float(longer.startswith(shorter) and longer[len(shorter) :] in ENDINGS),
        }
    )


def edits(standing: str, meant: str) -> dict[str, float]:
    """The edits from one word to another by their kind."""
    swapped = swaps(standing, meant)
    kinds = {"vowel": 0.0, "consonant": 0.0, "double": 0.0, "swap": float(swapped)}
    if swapped:
        kinds["consonant"] = float(edit_distance(standing, meant) - swapped)
        return kinds
    for edit in edit_operations(meant, standing):
        if edit.tag == "replace":
            kinds["vowel" if {meant[edit.src_pos], standing[edit.dest_pos]} <= VOWELS else "consonant"] += 1
            continue
        word, place = (meant, edit.src_pos) if edit.tag == "delete" else (standing, edit.dest_pos)
        letter = word[place]
        if letter in (word[place - 1 : place], word[place + 1 : place + 2]):
            kinds["double"] += 1
        else:
            kinds["vowel" if letter in VOWELS else "consonant"] += 1
    return kinds
