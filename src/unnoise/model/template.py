"""A text with blanks: what is given, what is to be written, and where each token of the result belongs."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from unnoise.data import Codec
from unnoise.process.state import OPEN_GAP, TO_FILL

MASK = "[MASK]"  # one token
GAP = "[GAP]"  # any number of tokens
WORD = "[WORD]"  # a word of as many tokens as it takes
BLANKS = re.compile(rf"((?:{re.escape(MASK)}|{re.escape(GAP)})+)")
MARKS = re.compile("|".join(map(re.escape, (MASK, GAP, WORD))))


class Template(NamedTuple):
    """Raw pieces of text, the entries of `given` that stand between each and the next, and all of `given` (−1 is a token to
    be written, −2 any number of them). prepends_space: a blank before a run of blanks belongs to the first token of that, so
    `given` is without it."""

    pieces: list[str]
    spans: list[range]
    given: list[int]
    prepends_space: bool = False

    @staticmethod
    def parse(text: str, codec: Codec) -> "Template":
        """From a text with [MASK]s and [GAP]s."""
        if WORD in text:
            raise ValueError(
                f"{WORD} has no fixed number of tokens: fill in each {WORD} first with `unnoise fill`, then {MASK} and {GAP}"
            )
        runs = BLANKS.split(text)
        if len(runs) == 1:
            raise ValueError(f"nothing to fill in: mark each blank token with {MASK}, or a word with {WORD}")
        given: list[int] = []
        spans: list[range] = []
        for piece, marks in zip([codec.with_leading_space(runs[0]), *runs[2::2]], [*runs[1::2], ""], strict=True):
            given += (codec.encode_prefix(piece) if marks else codec.encode(piece)).tolist()
            blanks = [OPEN_GAP if mark == GAP else TO_FILL for mark in MARKS.findall(marks)]
            if blanks:
                spans.append(range(len(given), len(given) + len(blanks)))
            given += blanks
        return Template(separated(runs[::2], codec.separator), spans, given, codec.prepends_space)

    @staticmethod
    def between(prefix: str, blanks: list[int], suffix: str, codec: Codec) -> "Template":
        """One run of blanks between two texts."""
        before, after = given_sides(prefix, suffix, codec)
        span = range(len(before), len(before) + len(blanks))
        pieces = separated([prefix, as_suffix(suffix, codec)], codec.separator)
        return Template(pieces, [span], [*before, *blanks, *after], codec.prepends_space)

    def filled(self, places: Sequence[int]) -> list[list[int]]:
        """Which positions of a canvas each run of blanks has become; places: the entry of `given` that each belongs to."""
        return [[position for position, place in enumerate(places) if place in span] for span in self.spans]

    def between_pieces(self, texts: Sequence[str]) -> list[str]:
        """What came into each run of blanks as it stands there: a blank that was given beside it is not written twice."""
        if not self.prepends_space:
            return list(texts)
        found = []
        starts = any(self.pieces) and not self.pieces[0]  # a text that is given begins with what was written
        for i, (text, before, after) in enumerate(zip(texts, self.pieces[:-1], self.pieces[1:], strict=True)):
            begun = text.lstrip(" ") if before.endswith(" ") or (starts and not i) else text
            found.append(begun.rstrip(" ") if after.startswith(" ") else begun)
        return found

    def woven(self, texts: Sequence[str]) -> str:
        """The whole text, with these in the blanks and what was given as it was."""
        return "".join(itertools.chain(*itertools.zip_longest(self.pieces, self.between_pieces(texts), fillvalue="")))


def given_sides(prefix: str, suffix: str, codec: Codec) -> tuple[list[int], list[int]]:
    """The tokens of what is given before and after something that is to be written."""
    before = codec.encode_prefix(codec.with_leading_space(prefix)).tolist() if prefix else []
    return before, codec.encode(as_suffix(suffix, codec)).tolist() if suffix else []


def as_suffix(text: str, codec: Codec) -> str:
    """What comes after something that is to be written: a word after a blank, where blanks belong to the word after them."""
    return f" {text}" if codec.prepends_space and text[:1].isalnum() else text


def text_as_read(text: str, codec: Codec) -> str | None:
    """Return a text with its marks as the tokens stand for it, or None where that is the text itself (see `Codec.read_as`)."""
    pieces, marks = MARKS.split(text), MARKS.findall(text)
    read = [codec.read_as(piece) for piece in pieces]
    if all(piece is None for piece in read):
        return None
    kept = [piece if found is None else found for piece, found in zip(pieces, read, strict=True)]
    return "".join(itertools.chain(*itertools.zip_longest(kept, marks, fillvalue="")))


def separated(pieces: list[str], separator: str) -> list[str]:
    """The same pieces with what divides tokens from each other, where some are to be written between two of them."""
    if not separator:
        return pieces
    last = len(pieces) - 1
    after = [
        piece if i == last or piece.endswith(separator) else piece + separator * bool(piece) for i, piece in enumerate(pieces)
    ]
    return [piece if not i or piece.startswith(separator) else separator * bool(piece) + piece for i, piece in enumerate(after)]
