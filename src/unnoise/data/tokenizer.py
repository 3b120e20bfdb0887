"""Codecs of bytes, of byte-pair encoding (trained on texts or loaded from GPT-2's files), and of published tokenizers."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from unnoise.data.codec import LETTERS, Codec, Text8, Tokens, check_no_detail, check_texts, without_surrogates
from unnoise.files import read_bytes, write_atomically

FILE = "tokenizer.json"
END = "<|endoftext|>"
MOST_TOKENS = 1_000_000
BYTE_LEVEL_BLANK = "Ġ"  # a space inside a token of byte-level BPE
MAX_TOKENIZER_BYTES = 256 * 2**20


class _HfCodec(Codec):
    """Codec with a tokenizer of the library tokenizers."""

    tokenizer: Tokenizer

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return self.tokenizer.decode(self.until_end(tokens), skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.tokenizer.to_str(pretty=True).encode())

    @staticmethod
    def read_saved(folder: Path) -> Tokenizer:
        """Load the tokenizer that `save` wrote."""
        if not (folder / FILE).exists():
            raise ValueError(f"{folder} lacks its codec file {FILE}")
        return read_tokenizer(folder / FILE)


class Bpe(_HfCodec):
    """Byte-level BPE. It encodes every text and decodes it exactly, except that bytes that were not UTF-8 become �."""

    kind = "bpe"
    prepends_space = True

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.vocab = tokenizer.get_vocab_size()
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if highest != self.vocab - 1:  # the library allocates memory for every number in between
            raise ValueError(f"a tokenizer of {self.vocab} tokens must number them 0 to {self.vocab - 1}, found {highest}")
        self.eos = tokenizer.token_to_id(END)

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Bpe":
        """Train `bpe` with 2,048 tokens, or `bpe-4096` with 4,096."""
        return Bpe.train(check_texts(cls.kind, texts), cls.size(detail), end)

    @classmethod
    def size(cls, detail: str) -> int:
        """Return the number of tokens in the detail of a codec's name."""
        if detail and not detail.isdigit():
            raise ValueError(f"the codec {cls.kind} takes a number of tokens, as {cls.kind}-4096, found {detail!r}")
        return int(detail or 2048)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Bpe":
        return Bpe(cls.read_saved(folder))

    @staticmethod
    def train(texts: Iterable[str], vocab: int = 2048, end: bool = False) -> "Bpe":
        """Train on texts. The `vocab` tokens include the 256 bytes."""
        if vocab > MOST_TOKENS:
            raise ValueError(f"a vocabulary must have at most {MOST_TOKENS:,} tokens, found {vocab:,}")
        if vocab < 256 + end:
            raise ValueError(f"byte-level BPE needs a vocabulary of at least {256 + end}, found {vocab}")
        tokenizer = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[END] if end else [],
            show_progress=False,
        )
        tokenizer.train_from_iterator(map(without_surrogates, texts), trainer)
        return Bpe(tokenizer)

    @staticmethod
    def gpt2(folder: Path) -> "Bpe":
        """Load GPT-2's vocabulary from `vocab.json` and `merges.txt`, or from `tokenizer.json`, in a folder."""
        if (folder / FILE).exists():
            return Bpe(read_tokenizer(folder / FILE))
        vocab, merges = folder / "vocab.json", folder / "merges.txt"
        if not (vocab.exists() and merges.exists()):
            raise ValueError(f"GPT-2's vocabulary needs vocab.json and merges.txt, or tokenizer.json, in {folder}")
        for path in (vocab, merges):
            read_bytes(path, MAX_TOKENIZER_BYTES, "tokenizer")  # raises ValueError for a pipe and for huge files
        try:
            tokenizer = _byte_level(models.BPE.from_file(str(vocab), str(merges)))
        except Exception as error:  # the library raises bare exceptions
            raise ValueError(f"the vocabulary in {folder} cannot be read: {error}") from error
        if tokenizer.token_to_id(END) is not None:
            tokenizer.add_special_tokens([END])
        return Bpe(tokenizer)

    def identity(self) -> str:
        return hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()

    def encode(self, text: str, strict: bool = False) -> Tokens:
        return np.array(self.tokenizer.encode(without_surrogates(text)).ids, dtype=np.int64)

    def show(self, token: int) -> str:
        return "¶" if token == self.eos else self.tokenizer.decode([token], skip_special_tokens=False)


class Text8Bpe(Bpe):
    """Byte pairs over the 27 symbols of text8, `text8bpe` or `text8bpe-8192`. Texts are normalized as by the codec text8.

    The tokens include the 256 bytes; bytes that are not symbols of text8 are unused.
    """

    kind = "text8bpe"
    leading_space = True

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer)
        self.letters = Text8()
        symbols = set(LETTERS.replace(" ", BYTE_LEVEL_BLANK))
        pieces = tokenizer.get_vocab().items()
        self.unused = sorted(token for piece, token in pieces if not symbols.issuperset(piece) and token != self.eos)

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Bpe":
        plain = map(Text8().normalize, check_texts(cls.kind, texts))
        return Text8Bpe(Bpe.train(plain, cls.size(detail), end).tokenizer)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Bpe":
        return Text8Bpe(Bpe.from_config(config, folder).tokenizer)

    def encode(self, text: str, strict: bool = False) -> Tokens:
        if strict:
            self.letters.encode(text, strict=True)
        return super().encode(self.letters.normalize(text))


def read_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer.json."""
    content = read_bytes(path, MAX_TOKENIZER_BYTES, "tokenizer")
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"{path} is not a tokenizer, or damaged: {error}") from error
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= MOST_TOKENS:  # the library allocates memory for every number below it
        raise ValueError(f"{path} has a token with the number {highest:,}: at most {MOST_TOKENS:,} tokens are supported")
    return tokenizer


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


class Gpt2(Bpe):
    """GPT-2's tokenizer from a folder: `gpt2:FOLDER`."""

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "Bpe":
        return Bpe.gpt2(Path(detail or "."))


class PretrainedTokenizer(_HfCodec):
    """The tokenizer of a published model.

    vocab: number of rows of the model's embedding; rows beyond the tokenizer's tokens are unused.
    end: the EOS token.

    Encoding adds no BOS token, and a control token in a text, such as <|im_start|>, stays one token. SentencePiece adds
    a space before a text and removes it when decoding, so a continuation is decoded after its prefix (`decode_after`).
    """

    kind = "tokenizer"

    def __init__(self, tokenizer: Tokenizer, vocab: int, end: int | None = None):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if highest >= vocab:
            raise ValueError(f"the tokenizer has a token with the number {highest}, and the model has only {vocab:,} tokens")
        if end is not None and not 0 <= end < vocab:
            raise ValueError(f"the end token must be one of 0…{vocab - 1}, found {end}")
        self.tokenizer, self.vocab, self.eos = tokenizer, vocab, end
        self._anchor = self.encode("a").tolist()

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> Codec:
        raise ValueError("the tokenizer codec comes with a model: give the folder of a saved model that has it as the codec")

    def config(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "end": self.eos}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "PretrainedTokenizer":
        return cls(cls.read_saved(folder), **config)

    def identity(self) -> str:
        described = json.dumps([self.tokenizer.to_str(), self.config()])
        return hashlib.sha256(described.encode()).hexdigest()

    @property
    def divider(self) -> int | None:
        """EOS, or else <|endoftext|>, which separates texts in the training windows of diffusion models."""
        return self.tokenizer.token_to_id(END) if self.eos is None else self.eos

    def encode(self, text: str, strict: bool = False) -> Tokens:
        return np.array(self.tokenizer.encode(without_surrogates(text), add_special_tokens=False).ids, dtype=np.int64)

    def decode_after(self, before: Sequence[int], tokens: Sequence[int] | Tokens) -> str:
        start = self.tokenizer.decode(list(before), skip_special_tokens=False)
        whole = self.tokenizer.decode([*before, *self.until_end(tokens)], skip_special_tokens=False)
        return whole[len(start) :] if whole.startswith(start) else self.decode(tokens)

    def show(self, token: int) -> str:
        return "¶" if token == self.eos else self.decode_after(self._anchor, [token])


class Bytes(Codec):
    """The 256 bytes of UTF-8, which encode every text exactly."""

    kind = "bytes"
    unit = "byte"

    def __init__(self, end: bool = False):
        self.vocab = 256 + end
        self.eos = 256 if end else None

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
        return "¶" if token == self.eos else chr(token) if 32 <= token < 127 else "↵" if token == 10 else "▯"


def byte_count(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(_encoded(text))


def _encoded(text: str) -> bytes:
    """Return the bytes of a text, including bytes that were not UTF-8 when it was read."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, as JSON may have it
        return without_surrogates(text).encode()
