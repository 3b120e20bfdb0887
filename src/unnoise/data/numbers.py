"""Tokens as plain numbers, for a model that comes without its tokenizer."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unnoise.data.codec import BLANK, Codec, Tokens


class Numbers(Codec):
    """The numbers of the tokens themselves, with blanks between them: "17 4 4 92" ↔ [17, 4, 4, 92].

    vocab: K. end: the token that ends a text, if there is one. A model whose tokenizer is not at hand is opened with it: tokens
    made elsewhere go in and come out, and bits are counted per token.
    """

    kind = "numbers"
    unit = "token"
    separator = " "

    def __init__(self, vocab: int, end: int | None = None):
        if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 1:
            raise ValueError(f"a numbers codec needs a number of tokens ≥ 1, found {vocab!r}")
        if end is not None and (isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < vocab):
            raise ValueError(f"the end token must be one of 0…{vocab - 1}, found {end!r}")
        self.vocab, self.end = vocab, end

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> Codec:
        if not detail.isdigit():
            raise ValueError(f"the codec numbers takes how many there are, as numbers-512, found {detail!r}")
        return cls(int(detail) + end, int(detail) if end else None)

    def config(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "end": self.end}

    def encode(self, text: str, strict: bool = False) -> Tokens:
        words = text.split()
        for word in words:
            if not (word.isascii() and word.isdigit() and int(word) < self.vocab):
                raise ValueError(
                    f"this model has no tokenizer: its texts are numbers of tokens, 0 to {self.vocab - 1}, with blanks between "
                    f"them, found {word[:40]!r} (its tokenizer.json beside its weights makes them words)"
                )
        return np.array([int(word) for word in words], dtype=np.int64)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return " ".join(map(str, self.until_end(tokens)))

    def count(self, text: str) -> int:
        return len(text.split())

    def show(self, token: int) -> str:
        return "¶ " if token == self.end else f"{token} "

    def show_states(self, states: Sequence[int]) -> list[str]:
        return [self.show(state) if state < self.vocab else f"{BLANK} " for state in states]
