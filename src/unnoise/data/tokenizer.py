"""Another model's tokenizer, as its tokenizer.json describes it, for HF tokenizers."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from unnoise.data.bpe import END, FILE, read_tokenizer
from unnoise.data.codec import Codec, Tokens, without_surrogates
from unnoise.files import write_atomically


class PretrainedTokenizer(Codec):
    """The tokenizer of a model that was trained elsewhere.

    vocab: rows of that model's embedding, which may be more than the tokenizer has tokens; those beyond stand for nothing. end:
    the token that ends a text. No token is put before a text (a begin token is the model's affair); control tokens that stand
    in a text, such as <|im_start|>, are read as such.

    Tokenizers of the SentencePiece kind put a space before a text, and decoding takes it away: a text that goes on another is
    decoded after it (`decode_after`).
    """

    kind = "tokenizer"

    def __init__(self, tokenizer: Tokenizer, vocab: int, end: int | None = None):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if highest >= vocab:
            raise ValueError(f"the tokenizer has a token of number {highest}, and the model knows only {vocab:,} tokens")
        if end is not None and not 0 <= end < vocab:
            raise ValueError(f"the end token must be one of 0…{vocab - 1}, found {end}")
        self.tokenizer, self.vocab, self.end = tokenizer, vocab, end
        self._anchor = self.encode("a").tolist()

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> Codec:
        raise ValueError("the tokenizer codec comes with a model: give the folder of a saved model that has it as the codec")

    def config(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "end": self.end}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "PretrainedTokenizer":
        if not (folder / FILE).exists():
            raise ValueError(f"{folder} lacks its codec file {FILE}")
        return cls(read_tokenizer(folder / FILE), **config)

    def identity(self) -> str:
        described = json.dumps([self.tokenizer.to_str(), self.config()])
        return hashlib.sha256(described.encode()).hexdigest()

    @property
    def divider(self) -> int | None:
        """The end token, or <|endoftext|> where texts have none: diffusion models learned windows in which it divides texts."""
        return self.tokenizer.token_to_id(END) if self.end is None else self.end

    def encode(self, text: str, strict: bool = False) -> Tokens:
        return np.array(self.tokenizer.encode(without_surrogates(text), add_special_tokens=False).ids, dtype=np.int64)

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return self.tokenizer.decode(self.until_end(tokens), skip_special_tokens=False)

    def decode_after(self, before: Sequence[int], tokens: Sequence[int] | Tokens) -> str:
        start = self.tokenizer.decode(list(before), skip_special_tokens=False)
        whole = self.tokenizer.decode([*before, *self.until_end(tokens)], skip_special_tokens=False)
        return whole[len(start) :] if whole.startswith(start) else self.decode(tokens)

    def show(self, token: int) -> str:
        return "¶" if token == self.end else self.decode_after(self._anchor, [token])

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, self.tokenizer.to_str(pretty=True).encode())
