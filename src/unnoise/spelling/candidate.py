"""A candidate: what could be intended by a part of a text."""

from typing import NamedTuple

from unnoise.spelling.channel import evidence
from unnoise.spelling.spans import Span
from unnoise.spelling.words import Words


class Candidate(NamedTuple):
    """What could be intended by a part of the text: the characters it covers, what would be there, what speaks for it."""

    start: int
    stop: int
    text: str
    evidence: dict[str, float]


def candidate(words: Words, span: Span, intended: str) -> Candidate:
    """What is intended, with the capitals of what comes after the word if that stays; no context."""
    found = evidence(words, span.word + span.rest.lower(), intended, span.name, span.opening)
    stays = intended.endswith(span.rest.lower())
    text = intended[: len(intended) - len(span.rest)] + span.rest if stays else intended
    return Candidate(span.start, span.stop, text, found)


def matched_case(before: str, after: str) -> str:
    """`after` written as `before` was: CAPITALS, Title, or as it is; but I'm and I've have their capital."""
    if len(before) > 1 and before.isupper():
        return after.upper()
    return after[:1].upper() + after[1:] if before[:1].isupper() or after.startswith("i'") else after
