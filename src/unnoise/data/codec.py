"""Codecs: raw text ↔ tokens 0…K−1, exactly. A codec is saved with its model, so that a model explains itself.

A codec made with `end=True` has one more token, the last, that stands between documents and ends a generated text.
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
BLANK = "·"  # how a mask is shown
SAMPLE = 20_000  # characters of a text by which it is seen whether a codec gives it back
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Codec(ABC):
    """Text ↔ tokens 0…K−1.

    kind: the name of this kind of codec. vocab: K, the end token included. end: its index, or None. begin: the token that
    stands before a text, where that is not the end token of the one before. unit: what bits are counted per. length: how many
    tokens each text has, where that is fixed. grid: how these lie in rows and columns, where they do. prepends_space: whether a
    blank and the word after it are one token, as in byte-level BPE. separator: what stands between any two tokens, where
    something does. unused: tokens that no encoded text holds, so that models never predict them.

    A codec of your own gives `vocab`, `encode`, `decode` and `show`; `build` where it is made from texts; `config` and
    `from_config` where it must be saved with its model, and `save` for what does not fit into a configuration.
    """

    kind: ClassVar[str]
    vocab: int
    end: int | None = None
    begin: int | None = None
    unit: str = "character"
    length: int | None = None
    grid: tuple[int, ...] = ()
    channels: int = 1  # tokens that make one pixel
    prepends_space: bool = False
    leading_space: bool = False
    separator: str = ""
    unused: Sequence[int] = ()

    @abstractmethod
    def encode(self, text: str, strict: bool = False) -> Tokens:
        """Text → tokens [n]. What the alphabet lacks is normalised, or refused with ValueError if strict."""

    def encode_prefix(self, text: str) -> Tokens:
        """The tokens of what stands before something that is to be written: a blank at its end is left to that, where blanks
        belong to the word after them."""
        return self.encode(text.removesuffix(" ") if self.prepends_space else text)

    def begun(self, text: str) -> str:
        """The beginning of a text as it is read: with a blank before it, where every word of the training text has one."""
        return f" {text}" if self.leading_space and not text.startswith(" ") else text

    @abstractmethod
    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        """Tokens [n] → text, up to the end token if there is one."""

    def decode_after(self, before: Sequence[int], tokens: Sequence[int] | Tokens) -> str:
        """What tokens [n] add to a text that begins with others; the same as by themselves, unless the codec says otherwise."""
        return self.decode(tokens)

    @abstractmethod
    def show(self, token: int) -> str:
        """One token as a person reads it in a chain."""

    def show_states(self, states: Sequence[int]) -> list[str]:
        """Each state of a text as a person reads it; masks begin with ·."""
        return [self.show(state) if state < self.vocab else BLANK for state in states]

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Codec":
        """A codec of this kind for some texts. end: add a token that ends documents. detail: what follows the name in
        `name-detail` or `name:detail`."""
        check_no_detail(cls.kind, detail)
        return cls()

    def config(self) -> dict[str, Any]:
        """What `from_config` needs to make this codec again, for config.json."""
        return {"end": self.end is not None}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Codec":
        """The codec that was saved with this configuration in this folder."""
        return cls(**config)

    def __repr__(self) -> str:
        fields = {name: value for name, value in self.config().items() if value is not False and name != "vocab"}
        shown = "".join(f", {name}={_short(value)}" for name, value in fields.items())
        return f"{type(self).__name__}(vocab={self.vocab}{shown})"

    def save(self, folder: Path) -> None:
        """Write whatever does not fit into the configuration."""
        return

    @property
    def divider(self) -> int | None:
        """The token between documents in evaluations: the end token, or None."""
        return self.end

    def count(self, text: str) -> int:
        """How many of `unit`, which bits are counted per, a text has."""
        return len(text)

    def read_as(self, text: str) -> str | None:
        """Return the text that the tokens stand for, or None where that is the text itself; models work on that text."""
        read = self.decode(self.encode(text))
        return None if read == text else read

    def identity(self) -> str:
        """What tells this codec from every other: two with the same identity read every text alike."""
        return json.dumps([type(self).__name__, self.config()], sort_keys=True, ensure_ascii=True)

    def until_end(self, tokens: Sequence[int] | Tokens) -> list[int]:
        """The tokens before the first end token."""
        listed = [int(token) for token in tokens]
        return listed[: listed.index(self.end)] if self.end in listed else listed


def check_end(codec: Codec) -> None:
    """ValueError unless a codec has an end token."""
    if codec.end is None:
        raise ValueError(f"whole texts need a codec with an end token, and {codec.kind} has none here")


class _Table(Codec):
    """One token a symbol, by a table."""

    symbols: str

    def _prepare(self, symbols: str, end: bool) -> None:
        self.symbols = symbols
        self.vocab = len(symbols) + end
        self.end = len(symbols) if end else None
        self._number = {symbol: i for i, symbol in enumerate(symbols)}
        codes = _code_points(symbols)
        self._numbers = np.full(int(codes.max()) + 2, -1)  # of each code point; the last stands for all beyond
        self._numbers[codes] = np.arange(len(codes))

    def normalise(self, text: str) -> str:
        """The nearest text within the alphabet."""
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
        return self._look_up(self.normalise(text))

    def _look_up(self, text: str) -> Tokens:
        """The token of each character, −1 where it is none of the symbols: [n]."""
        return self._numbers[np.minimum(_code_points(text), len(self._numbers) - 1)]

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return "".join(self.symbols[token] for token in self.until_end(tokens))

    def show(self, token: int) -> str:
        return "¶" if token == self.end else self.symbols[token]


class Text8(_Table):
    """The 27 symbols of text8: a…z and space. Normalising lower-cases, spells digits out and makes one space of the rest."""

    kind = "text8"

    def __init__(self, end: bool = False):
        self._prepare(LETTERS, end)

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Text8":
        check_no_detail(cls.kind, detail)
        return Text8(end)

    def normalise(self, text: str) -> str:
        if text.isascii() and not text.strip(LETTERS):
            return text
        return re.sub("  +", " ", _unaccented(text).lower().translate(_SPELLED_OUT))


class Characters(_Table):
    """The characters of a corpus. Normalising drops accents, then case, then puts a space (or nothing) for the unknown."""

    kind = "chars"

    def __init__(self, symbols: str, end: bool = False):
        if len(set(symbols)) != len(symbols) or not symbols:
            raise ValueError("a chars codec needs distinct symbols, at least one")
        self._prepare(symbols, end)

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Characters":
        check_no_detail(cls.kind, detail)
        return Characters.of(check_texts(cls.kind, texts), end)

    @staticmethod
    def of(texts: Iterable[str], end: bool = False) -> "Characters":
        """The codec of all characters that occur, in the order of their code points; half a surrogate pair is none."""
        found: set[str] = set()
        for text in texts:
            found |= set(text)
        return Characters("".join(sorted(symbol for symbol in found if not "\ud800" <= symbol <= "\udfff")), end)

    def normalise(self, text: str) -> str:
        return "".join(symbol if symbol in self._number else self._nearest(symbol) for symbol in text)

    def _nearest(self, symbol: str) -> str:
        for candidate in (_unaccented(symbol), symbol.lower(), symbol.upper(), _unaccented(symbol).lower(), " "):
            if candidate and all(c in self._number for c in candidate):
                return candidate
        return ""

    def config(self) -> dict[str, Any]:
        return super().config() | {"symbols": self.symbols}


def check_no_detail(kind: str, detail: str) -> None:
    """ValueError if a codec's name was followed by something that it has no use for."""
    if detail:
        raise ValueError(f"the codec {kind} takes no detail, found {detail!r}")


def check_texts(kind: str, texts: Iterable[str] | None) -> Iterable[str]:
    """The texts that a codec is made from, or ValueError."""
    if texts is None:
        raise ValueError(f"the {kind} codec is made from texts: give some")
    return texts


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:38]}…{shown[-1]}"


class _SpellingTable(dict[int, str]):
    """What text8 has for each character: letters as they are, digits as words, a space for the rest."""

    def __missing__(self, code: int) -> str:
        return " "


_SPELLED_OUT = _SpellingTable(
    {ord(letter): letter for letter in LETTERS} | {ord("0") + i: f" {word} " for i, word in enumerate(DIGITS)}
)


def without_surrogates(text: str) -> str:
    """The text with � for what is no character: half a surrogate pair, or a byte that was not UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def token_dtype(vocab: int) -> np.dtype[Any]:
    """The smallest kind of number that tokens 0…vocab − 1 are kept as in files."""
    return np.dtype(np.uint8 if vocab <= 256 else np.uint16 if vocab <= 65_536 else np.int32)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _unaccented(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
