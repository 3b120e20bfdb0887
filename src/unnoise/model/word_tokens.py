"""Which tokens make words: those that may begin one, and those that may go on with it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unnoise.data import Codec

INSIDE = "'’-"  # besides letters and digits
PART_OF_CHARACTER = "�"  # how a codec of bytes shows a byte that is no character by itself
LONGEST = {False: 14, True: 4}  # tokens of a word, by whether blanks belong to the word after them
REACH = {False: 4, True: 2}  # tokens after a word by which its length is judged


@dataclass(frozen=True)
class WordTokens:
    """Over the K tokens of a codec, and how long words are.

    inside: [K] bool, what may begin a word or go on with it; a word has ended where anything else stands.
    after_blank: [K] bool, a blank and the beginning of a word in one. blank: the token that is a blank alone.
    longest: tokens of a word, at most. reach: tokens after a word by which its length is judged.
    """

    inside: Tensor
    after_blank: Tensor
    blank: int | None
    longest: int
    reach: int

    @staticmethod
    def of(codec: Codec) -> "WordTokens":
        """Those of a codec, by what each token is as a text."""
        texts = ["" if token == codec.end else codec.decode([token]) for token in range(codec.vocab)]
        inside = torch.tensor([is_piece(text) for text in texts])
        if not bool(inside.any()):
            raise ValueError(f"no token of this {codec.kind} codec is a letter or a digit, so there are no words to fill in")
        after_blank = torch.tensor([text[:1] == " " and is_piece(text[1:]) for text in texts])
        blank = texts.index(" ") if " " in texts else None
        return WordTokens(inside, after_blank, blank, LONGEST[codec.joins_blanks], REACH[codec.joins_blanks])

    def to(self, device: torch.device) -> "WordTokens":
        """The same, moved."""
        return replace(self, inside=self.inside.to(device), after_blank=self.after_blank.to(device))

    def beginnings(self, after_blank: bool) -> Tensor:
        """What may begin a word that brings a blank with it, or one that does not: [K] bool."""
        return self.after_blank if after_blank else self.inside


def is_piece(text: str) -> bool:
    """Whether a text can be part of a word."""
    return bool(text) and all(c.isalnum() or c in INSIDE + PART_OF_CHARACTER or "\udc80" <= c <= "\udcff" for c in text)


def is_word(text: str) -> bool:
    """Whether a text is a word: letters and digits, with ' and - between them."""
    return bool(text) and all(c.isalnum() or c in INSIDE for c in text) and text[0].isalnum() and text[-1].isalnum()
