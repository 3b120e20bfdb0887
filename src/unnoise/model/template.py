"""A text with blanks: what is given, what is to be written, and where each token of the result belongs."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from unnoise.data import Codec
from unnoise.process.state import FREE, OPEN

MASK = "[MASK]"  # one token
GAP = "[GAP]"  # any number of tokens
BLANKS = re.compile(rf"((?:{re.escape(MASK)}|{re.escape(GAP)})+)")


class Template(NamedTuple):
    """Raw pieces of text, the entries of `given` that stand between each and the next, and all of `given` (−1 is a token to
    be written, −2 any number of them)."""

    pieces: list[str]
    spans: list[range]
    given: list[int]

    @staticmethod
    def parse(text: str, codec: Codec) -> "Template":
        """From a text with [MASK]s and [GAP]s."""
        runs = BLANKS.split(text)
        if len(runs) == 1:
            raise ValueError(f"nothing to fill in: mark each blank token with {MASK}")
        given: list[int] = []
        spans: list[range] = []
        for piece, marks in zip(runs[::2], [*runs[1::2], ""], strict=True):
            given += codec.encode(piece).tolist()
            blanks = [OPEN if mark == GAP else FREE for mark in re.findall(r"\[\w+\]", marks)]
            if blanks:
                spans.append(range(len(given), len(given) + len(blanks)))
            given += blanks
        return Template(runs[::2], spans, given)

    @staticmethod
    def between(prefix: str, blanks: list[int], suffix: str, codec: Codec) -> "Template":
        """One run of blanks between two texts."""
        before, after = (codec.encode(text).tolist() if text else [] for text in (prefix, suffix))
        span = range(len(before), len(before) + len(blanks))
        return Template([prefix, suffix], [span], [*before, *blanks, *after])

    def filled(self, places: Sequence[int]) -> list[list[int]]:
        """Which positions of a canvas each run of blanks has become; places: the entry of `given` that each belongs to."""
        return [[position for position, place in enumerate(places) if place in span] for span in self.spans]

    def woven(self, texts: Sequence[str]) -> str:
        """The whole text, with these in the blanks and what was given as it was."""
        return "".join(itertools.chain(*itertools.zip_longest(self.pieces, texts, fillvalue="")))
