"""Codecs between raw text and tokens 0…K−1. A codec is saved with its model.

A codec built with `end=True` has an EOS token, the last one, which separates documents and ends a generated text.
"""

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

Tokens = np.ndarray
LETTERS = "abcdefghijklmnopqrstuvwxyz "
BLANK = "·"  # shown for a mask
SAMPLE = 20_000  # characters of a text that test whether a codec is lossless
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Codec(ABC):
    """Mapping between text and tokens 0…K−1.

    kind: name of this type of codec.
    vocab: K, including the EOS token.
    eos: index of the EOS token, or None.
    bos: index of the BOS token, or None if the EOS token of the previous text takes its place.
    unit: unit that bits are counted per.
    length: number of tokens of each text, if it is fixed.
    grid: rows and columns of the tokens, for images.
    channels: number of tokens per pixel.
    prepends_space: whether a space and the following word form one token, as in byte-level BPE.
    leading_space: whether every word of the training text has a space before it.
    separator: text between any two tokens.
    unused: tokens that no encoded text holds, which models never predict.

    A new codec implements `vocab`, `encode`, `decode` and `show`, and `build` if it is made from texts. To be saved
    with a model it needs `config` and `from_config`, and `save` for data outside the configuration.
    """

    kind: ClassVar[str]
    vocab: int
    eos: int | None = None
    bos: int | None = None
    unit: str = "character"
    length: int | None = None
    grid: tuple[int, ...] = ()
    channels: int = 1
    prepends_space: bool = False
    leading_space: bool = False
    separator: str = ""
    unused: Sequence[int] = ()

    @abstractmethod
    def encode(self, text: str, strict: bool = False) -> Tokens:
        """Return the tokens [n] of a text. Unknown characters are normalized, or raise ValueError if strict."""

    def encode_prefix(self, text: str) -> Tokens:
        """Encode a prefix of a text. A space at its end is dropped if it belongs to the token of the following word."""
        return self.encode(text.removesuffix(" ") if self.prepends_space else text)

    def with_leading_space(self, text: str) -> str:
        """Return the beginning of a text, with a leading space if every word of the training text has one."""
        return f" {text}" if self.leading_space and not text.startswith(" ") else text

    @abstractmethod
    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        """Return the text of tokens [n], up to the EOS token."""

    def decode_after(self, before: Sequence[int], tokens: Sequence[int] | Tokens) -> str:
        """Return the text that tokens [n] add after other tokens. By default it does not depend on these."""
        return self.decode(tokens)

    @abstractmethod
    def show(self, token: int) -> str:
        """Return one token in readable form."""

    def show_states(self, states: Sequence[int]) -> list[str]:
        """Return each state of a sequence in readable form; masks start with ·."""
        return [self.show(state) if state < self.vocab else BLANK for state in states]

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Codec":
        """Build a codec of this type.

        texts: training texts.
        end: add an EOS token.
        detail: the part after the name in `name-detail` or `name:detail`.
        """
        check_no_detail(cls.kind, detail)
        return cls()

    def config(self) -> dict[str, Any]:
        """Return the arguments of `from_config` for config.json."""
        return {"end": self.eos is not None}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Codec":
        """Load the codec that was saved with this configuration in this folder."""
        return cls(**config)

    def __repr__(self) -> str:
        fields = {name: value for name, value in self.config().items() if value is not False and name != "vocab"}
        shown = "".join(f", {name}={_short(value)}" for name, value in fields.items())
        return f"{type(self).__name__}(vocab={self.vocab}{shown})"

    def save(self, folder: Path) -> None:
        """Write data that is not part of the configuration."""
        return

    @property
    def divider(self) -> int | None:
        """Token between documents in evaluations: EOS, or None."""
        return self.eos

    def count(self, text: str) -> int:
        """Return the length of a text in `unit`s."""
        return len(text)

    def read_as(self, text: str) -> str | None:
        """Return the text after encoding and decoding, or None if it is unchanged."""
        read = self.decode(self.encode(text))
        return None if read == text else read

    def identity(self) -> str:
        """Return a string that is equal for two codecs only if they encode every text alike."""
        return json.dumps([type(self).__name__, self.config()], sort_keys=True, ensure_ascii=True)

    def until_end(self, tokens: Sequence[int] | Tokens) -> list[int]:
        """Return the tokens before the first EOS token."""
        listed = [int(token) for token in tokens]
        return listed[: listed.index(self.eos)] if self.eos in listed else listed


def check_end(codec: Codec) -> None:
    """Raise ValueError unless a codec has an EOS token."""
    if codec.eos is None:
        raise ValueError(f"whole texts need a codec with an EOS token, but this {codec.kind} codec has none")


class _Table(Codec):
    """Codec with one token per symbol."""

    symbols: str

    def _prepare(self, symbols: str, end: bool) -> None:
        self.symbols = symbols
        self.vocab = len(symbols) + end
        self.eos = len(symbols) if end else None
        self._number = {symbol: i for i, symbol in enumerate(symbols)}
        codes = _code_points(symbols)
        self._numbers = np.full(int(codes.max()) + 2, -1)  # by code point; the last entry is for all larger ones
        self._numbers[codes] = np.arange(len(codes))

    def normalize(self, text: str) -> str:
        """Replace unknown characters by the nearest known ones."""
        raise NotImplementedError

    def encode(self, text: str, strict: bool = False) -> Tokens:
        tokens = self._look_up(text)
        unknown = tokens < 0
        if not unknown.any():
            return tokens
        if strict:
            place = int(unknown.argmax())
            raise ValueError(
                f"{text[place]!r} at character {place + 1} is not among the {len(self.symbols)} symbols of this "
                f"{self.kind} codec"
            )
        return self._look_up(self.normalize(text))

    def _look_up(self, text: str) -> Tokens:
        """Return the token of each character, −1 for unknown ones: [n]."""
        return self._numbers[np.minimum(_code_points(text), len(self._numbers) - 1)]

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return "".join(self.symbols[token] for token in self.until_end(tokens))

    def show(self, token: int) -> str:
        return "¶" if token == self.eos else self.symbols[token]


class Text8(_Table):
    """The 27 symbols of text8: a…z and space. Normalization lower-cases, spells out digits and maps the rest to one space."""

    kind = "text8"

    def __init__(self, end: bool = False):
        self._prepare(LETTERS, end)

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Text8":
        check_no_detail(cls.kind, detail)
        return Text8(end)

    def normalize(self, text: str) -> str:
        if text.isascii() and not text.strip(LETTERS):
            return text
        return re.sub("  +", " ", _unaccented(text).lower().translate(_SPELLED_OUT))


class Characters(_Table):
    """The characters of a corpus. Normalization drops accents, then case; the rest becomes a space or nothing."""

    kind = "chars"

    def __init__(self, symbols: str, end: bool = False):
        if len(set(symbols)) != len(symbols) or not symbols:
            raise ValueError("a chars codec needs distinct symbols, at least one")
        self._prepare(symbols, end)

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Characters":
        check_no_detail(cls.kind, detail)
        return Characters.from_texts(check_texts(cls.kind, texts), end)

    @staticmethod
    def from_texts(texts: Iterable[str], end: bool = False) -> "Characters":
        """Return the codec of all characters in the texts, in the order of their code points, without lone surrogates."""
        found: set[str] = set()
        for text in texts:
            found |= set(text)
        return Characters("".join(sorted(symbol for symbol in found if not "\ud800" <= symbol <= "\udfff")), end)

    def normalize(self, text: str) -> str:
        return "".join(symbol if symbol in self._number else self._nearest(symbol) for symbol in text)

    def _nearest(self, symbol: str) -> str:
        for candidate in (_unaccented(symbol), symbol.lower(), symbol.upper(), _unaccented(symbol).lower(), " "):
            if candidate and all(c in self._number for c in candidate):
                return candidate
        return ""

    def config(self) -> dict[str, Any]:
        return super().config() | {"symbols": self.symbols}


def check_no_detail(kind: str, detail: str) -> None:
    """Raise ValueError if a codec's name has a detail that it does not take."""
    if detail:
        raise ValueError(f"the codec {kind} takes no detail, found {detail!r}")


def check_texts(kind: str, texts: Iterable[str] | None) -> Iterable[str]:
    """Return `texts`, or raise ValueError if none were passed to a codec that is built from texts."""
    if texts is None:
        raise ValueError(f"the {kind} codec is built from texts, but none were passed")
    return texts


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:38]}…{shown[-1]}"


class _SpellingTable(dict[int, str]):
    """text8's replacement of each character: letters stay, digits become words, the rest becomes a space."""

    def __missing__(self, code: int) -> str:
        return " "


_SPELLED_OUT = _SpellingTable(
    {ord(letter): letter for letter in LETTERS} | {ord("0") + i: f" {word} " for i, word in enumerate(DIGITS)}
)


def without_surrogates(text: str) -> str:
    """Return the text with � for lone surrogates and for bytes that were not UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def token_dtype(vocab: int) -> np.dtype[Any]:
    """Return the smallest integer type for tokens 0…vocab − 1 in files."""
    return np.dtype(np.uint8 if vocab <= 256 else np.uint16 if vocab <= 65_536 else np.int32)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _unaccented(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
