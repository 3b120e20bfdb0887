"""Codecs by name, and the codecs of token numbers, of text8 with special tokens, and of images.

The names are text8, bytes, chars, bpe-4096, gpt2:FOLDER, auto, registered codecs, and folders of models or token shards.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.codec import BLANK, Characters, Codec, Text8, Tokens, check_texts
from unnoise.data.tokenizer import Bpe, Bytes, Gpt2, PretrainedTokenizer, Text8Bpe
from unnoise.files import BUNDLED, read_bytes
from unnoise.registry import find, register_builtin, registered

AUTO = "auto"
DESCRIBED_IN = ("config.json", "index.json")  # of a model, of token shards
MAX_DESCRIPTION_BYTES = 2**28
SPECIALS = ("[CLS]", "[SEP]", "[BOS]", "[EOS]", "[MASK]", "[PAD]", "[RESERVED]", "[UNK]")


class Numbers(Codec):
    """Token numbers separated by spaces: "17 4 4 92" ↔ [17, 4, 4, 92]. Bits are counted per token.

    vocab: K.
    end: the EOS token, if there is one.
    """

    kind = "numbers"
    unit = "token"
    separator = " "

    def __init__(self, vocab: int, end: int | None = None):
        if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 1:
            raise ValueError(f"a numbers codec needs a number of tokens ≥ 1, found {vocab!r}")
        if end is not None and (isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < vocab):
            raise ValueError(f"the end token must be one of 0…{vocab - 1}, found {end!r}")
        self.vocab, self.eos = vocab, end

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> Codec:
        if not detail.isdigit():
            raise ValueError(f"the codec numbers takes the number of tokens, as in numbers-512, found {detail!r}")
        return cls(int(detail) + end, int(detail) if end else None)

    def config(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "end": self.eos}

    def encode(self, text: str, strict: bool = False) -> Tokens:
        words = text.split()
        for word in words:
            if not (word.isascii() and word.isdigit() and int(word) < self.vocab):
                raise ValueError(
                    f"this model has no tokenizer: its texts are numbers of tokens, 0 to {self.vocab - 1}, with blanks between "
                    f"them, found {word[:40]!r} (put its tokenizer.json next to its weights to use words)"
                )
        return np.array([int(word) for word in words], dtype=np.int64)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return " ".join(map(str, self.until_end(tokens)))

    def count(self, text: str) -> int:
        return len(text.split())

    def show(self, token: int) -> str:
        return "¶ " if token == self.eos else f"{token} "

    def show_states(self, states: Sequence[int]) -> list[str]:
        return [self.show(state) if state < self.vocab else f"{BLANK} " for state in states]


class Text8Specials(Codec):
    """Tokens 0–7 are special, 8–34 are the symbols a…z and space. Some protocols put [BOS] before and [EOS] after a text.
    Decoding drops special tokens."""

    kind = "text8-35"
    vocab = len(SPECIALS) + 27
    bos = SPECIALS.index("[BOS]")

    def __init__(self, end: bool = True):
        self.eos = SPECIALS.index("[EOS]") if end else None
        self._symbols = Text8()

    def encode(self, text: str, strict: bool = False) -> Tokens:
        return self._symbols.encode(text, strict) + len(SPECIALS)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        symbols = [token - len(SPECIALS) for token in self.until_end(tokens)]
        return self._symbols.decode([symbol for symbol in symbols if symbol >= 0])

    def show(self, token: int) -> str:
        return "¶" if token == self.eos else self._symbols.show(token - len(SPECIALS)) if token >= len(SPECIALS) else "▯"


class Pixels(Codec):
    """Mapping between uint8 images of one shape and tokens [H·W·C] with `levels` values; lossless for 256 levels."""

    kind = "pixels"
    unit = "dimension"

    def __init__(self, shape: Sequence[int], levels: int = 256):
        if not 2 <= levels <= 256:
            raise ValueError(f"pixels must have 2 to 256 levels, found {levels}")
        self.shape, self.levels = tuple(int(n) for n in shape), levels
        self.vocab = levels
        self.length = math.prod(self.shape)
        self.grid = self.shape[0], self.length // self.shape[0]
        self.channels = math.prod(self.shape[2:])

    def encode_image(self, image: np.ndarray) -> Tokens:
        """Return the tokens [n] of a uint8 image [H, W] or [H, W, C]."""
        if tuple(image.shape) != self.shape or image.dtype != np.uint8:
            raise ValueError(f"expected a uint8 image of shape {list(self.shape)}, found {image.dtype} {list(image.shape)}")
        return np.rint(image.reshape(-1) * ((self.levels - 1) / 255)).astype(np.int64)

    def decode_image(self, tokens: Sequence[int] | Tokens) -> np.ndarray:
        """Return the uint8 image of tokens [n]."""
        return np.rint(np.asarray(tokens) * (255 / (self.levels - 1))).astype(np.uint8).reshape(self.shape)

    def encode(self, text: str, strict: bool = False) -> Tokens:
        raise ValueError("this is a model of images, which cannot encode text")

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return " ".join(str(int(token)) for token in tokens)

    def show(self, token: int) -> str:
        return " ░▒▓█"[round(4 * token / (self.levels - 1))]

    def show_states(self, states: Sequence[int]) -> list[str]:
        """Return a picture of characters with square pixels and one line for each row."""
        wide = 2 if self.channels == 1 else 1
        shown = [(self.show(state) if state < self.vocab else BLANK) * wide for state in states]
        return [pixel + "\n" * ((i + 1) % self.grid[1] == 0) for i, pixel in enumerate(shown)]

    def config(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "levels": self.levels}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Pixels":
        return Pixels(config["shape"], config["levels"])


def coloured(pictures: np.ndarray, axes: int) -> np.ndarray:
    """Convert grey pictures, with or without a channel axis of length 1, to RGB. axes: number of axes of the result."""
    last = pictures if pictures.ndim == axes else pictures[..., None]
    return np.repeat(last, 3, -1) if last.shape[-1] == 1 else last


register_builtin("codec", {"text8": Text8, "bytes": Bytes, "chars": Characters, "bpe": Bpe, "gpt2": Gpt2})
register_builtin("codec", {"numbers": Numbers, "text8-35": Text8Specials, "text8bpe": Text8Bpe})
register_builtin("codec", {"pixels": Pixels, "tokenizer": PretrainedTokenizer})  # used by images and by published models


def codec_names() -> list[str]:
    """Return the values that `codec` and `--codec` accept."""
    words = {
        "bpe": ["bpe", "bpe-N (N tokens)"],
        "text8bpe": ["text8bpe-N"],
        "gpt2": ["gpt2:FOLDER"],
        "numbers": ["numbers-N"],
        "pixels": [],
        "tokenizer": [],
    }
    return [shown for name in registered("codec") for shown in words.get(name, [name])] + [
        AUTO,
        "FOLDER (of a model or shards)",
        "a bundled model",
    ]


def codec(name: str = "text8", texts: Iterable[str] | None = None, end: bool = False) -> Codec:
    """Return a codec by name. Some, such as `chars`, `bpe` and `auto`, are made from `texts`. end: add an EOS token.

    auto: text8 if its symbols suffice, else the characters of the texts if there are at most 256, else bytes; also bytes for
    texts that are not UTF-8. A folder with a saved model or token shards, or a bundled model's name, gives its codec.
    """
    if name == AUTO:
        return _auto(check_texts(AUTO, texts), end)
    known = registered("codec")
    kind, detail = name, ""
    if name not in known:
        kind, _, detail = name.partition(":" if ":" in name else "-")
    if kind not in known:
        for folder in (Path(name), BUNDLED / name):
            if any((folder / file).is_file() for file in DESCRIBED_IN):
                return _codec_of_folder(folder)
    if kind not in known or known[kind] is Pixels:
        raise ValueError(f"unknown codec {name!r}: use one of {', '.join(codec_names())}")
    return known[kind].build(texts, end=end, detail=detail)


def _codec_of_folder(folder: Path) -> Codec:
    file = next(file for file in DESCRIBED_IN if (folder / file).is_file())
    try:
        config = json.loads(read_bytes(folder / file, MAX_DESCRIPTION_BYTES))["codec"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder / file} does not describe a codec ({error})") from error
    return codec_from(config, folder)


def _auto(texts: Iterable[str], end: bool) -> Codec:
    found: set[str] = set()
    for text in texts:
        fresh = set(text) - found
        found |= fresh
        if len(found) > 256 or any("\udc80" <= symbol <= "\udcff" for symbol in fresh):  # stands for a byte that is not UTF-8
            return Bytes(end)
    return Text8(end) if found <= set(Text8().symbols) else Characters("".join(sorted(found)), end)


def codec_kind(codec: Codec) -> str:
    """Return the registered name of a codec's class; raise ValueError if there is none, since loading needs it."""
    for name, known in registered("codec").items():
        if known is type(codec):
            return name
    raise ValueError(
        f"the codec {type(codec).__name__} is not registered, so a saved model could not be loaded again: "
        'put @unnoise.register("codec", "a-name") before the class'
    )


def codec_from(config: dict[str, Any], folder: Path) -> Codec:
    """Load the codec described by the configuration of a saved model or of token shards."""
    fields = dict(config) if isinstance(config, dict) else {}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError(f"{folder} has no codec in its configuration")
    try:
        return find("codec", kind).from_config(fields, folder)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the codec {kind} in {folder} has a wrong configuration ({error})") from error
