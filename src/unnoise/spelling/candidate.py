"""A candidate for the intended text at one place."""

from typing import NamedTuple

from unnoise.spelling.channel import evidence
from unnoise.spelling.spans import Span
from unnoise.spelling.words import Words


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
