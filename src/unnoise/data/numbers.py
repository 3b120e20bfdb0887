"""Tokens as numbers, for a model that came without its tokenizer: "464 3290 318"."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unnoise.data.codec import Codec, Tokens

WHOLE = re.compile("[0-9]+")


class Numbers(Codec):
    """Texts are the numbers of their tokens, with blanks between them; bits are counted per token."""

    kind = "numbers"
    unit = "token"
    separator = " "

    def __init__(self, vocab: int):
        if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 1:
            raise ValueError(f"a numbers codec needs a vocabulary of at least one token, found {vocab!r}")
        self.vocab = vocab

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Numbers":
        """`numbers-61`: tokens 0…60."""
        if not WHOLE.fullmatch(detail):
            raise ValueError(f"the codec numbers takes a number of tokens, as numbers-50257, found {detail!r}")
        return Numbers(int(detail))

    def config(self) -> dict[str, Any]:
        return {"vocab": self.vocab}

    def encode(self, text: str, strict: bool = False) -> Tokens:
        words = text.split()
        for word in words:
            if not WHOLE.fullmatch(word) or len(word) > 9 or int(word) >= self.vocab:
                raise ValueError(
                    f"this model has no tokenizer: texts are the numbers of tokens, 0 to {self.vocab - 1} with blanks between "
                    f"them, found {word[:40]!r} (put its tokenizer.json beside its weights to write words)"
                )
        return np.array([int(word) for word in words], dtype=np.int64)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return " ".join(str(int(token)) for token in tokens)

    def show(self, token: int) -> str:
        return f"{token} "

    def count(self, text: str) -> int:
        return len(text.split())
