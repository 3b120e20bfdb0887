"""Names of tokenizers in results. Perplexities are comparable only for the same tokens."""

import hashlib
from dataclasses import dataclass

from unnoise.data import Codec, codec_kind
from unnoise.published_tables import GPT2, GPT2_TOKENS

UNUSED_ROWS = 64  # largest number of extra tokens, for a mask, padding or a round number
HELLO_WORLD = [15496, 995]  # "Hello world" in GPT-2's tokens


@dataclass(frozen=True)
class Tokenizer:
    """Description of a model's tokens.

    name: the kind of codec, or "GPT-2" for its tokens.
    vocab: number of tokens.
    key: hash of the tokens.
    """

    name: str
    vocab: int
    key: str

    @staticmethod
    def of(codec: Codec) -> "Tokenizer":
        """Return the name of a codec's tokens."""
        if is_gpt2(codec):
            return Tokenizer(GPT2, GPT2_TOKENS, GPT2)
        return Tokenizer(codec_kind(codec), codec.vocab, hashlib.sha1(codec.identity().encode()).hexdigest()[:8])


def is_gpt2(codec: Codec) -> bool:
    """Return whether a codec has GPT-2's tokens, judged by their number and by two of them."""
    if not GPT2_TOKENS <= codec.vocab <= GPT2_TOKENS + UNUSED_ROWS or codec.unit != "character":
        return False
    return codec.encode("Hello world").tolist() == HELLO_WORLD
