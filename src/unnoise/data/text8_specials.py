"""text8 with the special tokens that MDLM and UDLM give it: 35 numbers, of which 27 are symbols."""

from collections.abc import Iterable, Sequence
from typing import Any

from unnoise.data.codec import Codec, Text8, Tokens, check_no_detail

SPECIALS = ("[CLS]", "[SEP]", "[BOS]", "[EOS]", "[MASK]", "[PAD]", "[RESERVED]", "[UNK]")


class Text8Specials(Codec):
    """Numbers 0–7 are special tokens, 8–34 the symbols a…z and space. A text begins with [BOS] and ends with [EOS], where a
    protocol says so; decoding leaves special tokens out."""

    kind = "text8-35"
    vocab = len(SPECIALS) + 27
    begin = SPECIALS.index("[BOS]")

    def __init__(self, end: bool = True):
        self.end = SPECIALS.index("[EOS]") if end else None
        self._symbols = Text8()

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Text8Specials":
        check_no_detail(cls.kind, detail)
        return cls()

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Any) -> "Text8Specials":
        return cls(**config)

    def encode(self, text: str, strict: bool = False) -> Tokens:
        return self._symbols.encode(text, strict) + len(SPECIALS)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        symbols = [token - len(SPECIALS) for token in self.until_end(tokens)]
        return self._symbols.decode([symbol for symbol in symbols if symbol >= 0])

    def show(self, token: int) -> str:
        return "¶" if token == self.end else self._symbols.show(token - len(SPECIALS)) if token >= len(SPECIALS) else "▯"
