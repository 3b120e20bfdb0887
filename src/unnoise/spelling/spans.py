"""The words of a text that may be corrected, and their positions."""

import itertools
import re
from collections.abc import Collection, Container, Iterator
from typing import NamedTuple

from unnoise.spelling.counting import WORD
from unnoise.spelling.english import CONTRACTIONS

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
        if word in keep or ("'" in word and not _is_contraction(word, known)):
            continue
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


def _is_contraction(word: str, known: Container[str]) -> bool:
    """Return whether a word is a known contraction such as it's or you're, which may be confused with other words."""
    return word in EXPANDED and all(part in known for part in word.split("'"))


def _words(text: str) -> Iterator["re.Match[str]"]:
    for token in TOKEN.finditer(text):
        if not any(mark in token.group() for mark in ADDRESS):
            yield from WORD.finditer(text, token.start(), token.end())
