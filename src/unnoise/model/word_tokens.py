"""The tokens of a codec that can begin or continue a word."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from unnoise.data import Codec

INSIDE = "'’-"  # characters of a word besides letters and digits
PART_OF_CHARACTER = "�"  # a single byte of a longer UTF-8 sequence
LONGEST = {False: 14, True: 4}  # by `Codec.joins_blanks`
REACH = {False: 4, True: 2}


@dataclass(frozen=True)
class WordTokens:
    """The word tokens among the K tokens of a codec, and limits of a search.

    inside: [K] bool, tokens that begin or continue a word; any other token ends it.
    after_blank: [K] bool, tokens that hold a blank and the beginning of a word.
    blank: the token that is a single blank, if any.
    longest: maximum number of tokens of a word.
    reach: number of tokens after a word that score its length.
    """

    inside: Tensor
    after_blank: Tensor
    blank: int | None
    longest: int
    reach: int

    def to(self, device: torch.device) -> "WordTokens":
        """Return a copy on a device."""
        return replace(self, inside=self.inside.to(device), after_blank=self.after_blank.to(device))

    def beginnings(self, after_blank: bool) -> Tensor:
        """Return the tokens that can begin a word, with or without a blank: [K] bool."""
        return self.after_blank if after_blank else self.inside


@lru_cache(maxsize=8)
def word_tokens(codec: Codec) -> WordTokens:
    """Return the word tokens of a codec."""
    texts = ["" if token == codec.end else codec.decode([token]) for token in range(codec.vocab)]
    inside = torch.tensor([is_piece(text) for text in texts])
    if not bool(inside.any()):
        raise ValueError(f"no token of this {codec.kind} codec is a letter or a digit, so there are no words to fill in")
    return WordTokens(
        inside=inside,
        after_blank=torch.tensor([text[:1] == " " and is_piece(text[1:]) for text in texts]),
        blank=texts.index(" ") if " " in texts else None,
        longest=LONGEST[codec.joins_blanks],
        reach=REACH[codec.joins_blanks],
    )


def is_piece(text: str) -> bool:
    """Return whether a text can be part of a word."""
    return bool(text) and all(c.isalnum() or c in INSIDE + PART_OF_CHARACTER or "\udc80" <= c <= "\udcff" for c in text)


def is_word(text: str) -> bool:
    """Return whether a text is a word: letters and digits, with apostrophes and hyphens only between them."""
    return bool(text) and all(c.isalnum() or c in INSIDE for c in text) and text[0].isalnum() and text[-1].isalnum()
