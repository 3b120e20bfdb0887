"""Bytes as tokens, and how many of them a text has."""

from collections.abc import Iterable, Sequence

import numpy as np

from unnoise.data.codec import Codec, Tokens, check_no_detail, without_surrogates


class Bytes(Codec):
    """The 256 bytes of UTF-8: every text, exactly."""

    kind = "bytes"
    unit = "byte"

    def __init__(self, end: bool = False):
        self.vocab = 256 + end
        self.end = 256 if end else None

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Bytes":
        check_no_detail(cls.kind, detail)
        return Bytes(end)

    def encode(self, text: str, strict: bool = False) -> Tokens:
        return np.frombuffer(_encoded(text), dtype=np.uint8).astype(np.int64)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return bytes(self.until_end(tokens)).decode("utf-8", "surrogateescape")

    def count(self, text: str) -> int:
        return byte_count(text)

    def show(self, token: int) -> str:
        return "¶" if token == self.end else chr(token) if 32 <= token < 127 else "↵" if token == 10 else "▯"


def byte_count(text: str) -> int:
    """Return how many bytes a text has in UTF-8."""
    return len(text) if text.isascii() else len(_encoded(text))


def _encoded(text: str) -> bytes:
    """Return the bytes of a text, those that were not UTF-8 when it was read included."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, as JSON may have it
        return without_surrogates(text).encode()
