"""Which tokens make words: those that may begin one, those that may go on with it, and those that come after it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.data import Codec

INSIDE = "'’-"  # besides letters and digits
PART_OF_CHARACTER = "�"  # how a codec of bytes shows a byte that is no character by itself
LONGEST = {False: 14, True: 4}  # tokens of a word, by whether blanks belong to the word after them
REACH = {False: 4, True: 2}  # tokens after a word by which its length is judged


@dataclass(frozen=True)
class WordTokens:
    """Over the K tokens of a codec, [K] bool each, and how long words are.

    first: may begin a word that has no blank before it. after_blank: a blank and the beginning of a word in one.
    inside: may go on with a word. beyond: cannot, so a word has ended where it stands. blank: the token that is a blank alone.
    longest: tokens of a word, at most. reach: tokens after a word by which its length is judged.
    """

    first: Tensor
    after_blank: Tensor
    inside: Tensor
    beyond: Tensor
    blank: int | None
    longest: int
    reach: int

    @staticmethod
    def of(codec: Codec) -> "WordTokens":
        """Those of a codec, by what each token is as a text."""
        texts = ["" if token == codec.end else codec.decode([token]) for token in range(codec.vocab)]
        inside = torch.tensor([is_piece(text) for text in texts])
        joined = torch.tensor([text[:1] == " " and is_piece(text[1:]) for text in texts])
        blank = texts.index(" ") if " " in texts else None
        if not bool(inside.any()):
            raise ValueError(f"no token of this {codec.kind} codec is a letter or a digit, so there are no words to fill in")
        return WordTokens(
            inside, joined, inside, ~inside, blank, LONGEST[codec.joins_blanks], REACH[codec.joins_blanks]
        )

    def to(self, device: torch.device) -> "WordTokens":
        """The same, moved."""
        moved = (mask.to(device) for mask in (self.first, self.after_blank, self.inside, self.beyond))
        return WordTokens(*moved, self.blank, self.longest, self.reach)


def is_piece(text: str) -> bool:
    """Whether a text can be part of a word."""
    return bool(text) and all(c.isalnum() or c in INSIDE + PART_OF_CHARACTER or "\udc80" <= c <= "\udcff" for c in text)


def is_word(text: str) -> bool:
    """Whether a text is a word: letters and digits, with ' and - between them."""
    return bool(text) and all(c.isalnum() or c in INSIDE for c in text) and text[0].isalnum() and text[-1].isalnum()
