"""The tokenizer that lies beside published weights: tokenizer.json, or GPT-2's vocab.json and merges.txt."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from unnoise.data.bpe import END, FILE, Bpe, read_tokenizer
from unnoise.data.bytes import Bytes
from unnoise.data.codec import Characters, Codec, Text8
from unnoise.data.numbers import Numbers
from unnoise.data.tokenizer import PretrainedTokenizer

GPT2_FILES = ("vocab.json", "merges.txt")
MASK = "[MASK]"


def tokenizer_beside(folder: Path) -> Tokenizer | None:
    """The tokenizer in a folder, None where there is none."""
    if (folder / FILE).exists():
        return read_tokenizer(folder / FILE)
    if all((folder / name).exists() for name in GPT2_FILES):
        return Bpe.gpt2(folder).tokenizer
    return None


def codec_beside(folder: Path, vocab: int, masked: bool, end: int | None = None) -> Codec:
    """The codec of a model that knows tokens 0…vocab − 1: its tokenizer, or plain numbers where there is none.

    masked: whether its mask is the token after these. What was added to the tokenizer from there on, the mask or padding, is no
    part of texts. end: the token that ends a text, None for diffusion models: the windows that they learned from go over ends,
    and begin with one.
    """
    tokenizer = tokenizer_beside(folder)
    if tokenizer is None:
        return Numbers(vocab, end)
    mask = tokenizer.token_to_id(MASK)
    if masked and mask is not None and mask < vocab:
        raise ValueError(f"its tokenizer has {MASK} as token {mask}, and not behind the {vocab:,} tokens of texts")
    return codec_of_tokenizer(tokenizer, vocab, end)


def codec_of_tokenizer(tokenizer: Tokenizer, vocab: int, end: int | None = None) -> Codec:
    """Return the codec of a model of tokens 0…vocab − 1, without what was added to its tokenizer from there on."""
    return PretrainedTokenizer(_first_tokens(tokenizer, vocab), vocab, end)


def _first_tokens(tokenizer: Tokenizer, vocab: int) -> Tokenizer:
    """The same tokenizer without the added tokens of a number ≥ vocab."""
    described = json.loads(tokenizer.to_str())
    added = described.get("added_tokens") or []
    kept = [token for token in added if token["id"] < vocab]
    if len(kept) == len(added):
        return tokenizer
    try:
        return Tokenizer.from_str(json.dumps(described | {"added_tokens": kept}))
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"its tokenizer cannot do without its tokens from {vocab} on ({error})") from error


def tokenizer_of_codec(codec: Codec) -> Tokenizer | None:
    """The tokenizer.json of a codec of ours; None for what is no text. Characters that it lacks are left out of a text."""
    match codec:
        case Bpe() | PretrainedTokenizer():
            return codec.tokenizer
        case Text8() | Characters():
            tokenizer = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(codec.symbols)}, []))
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            tokenizer.decoder = decoders.Fuse()
        case Bytes():
            alphabet = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
            tokenizer = Tokenizer(models.BPE(alphabet, []))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.decoder = decoders.ByteLevel()
        case _:
            return None
    if codec.end is not None:
        tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return tokenizer


def _byte_symbols() -> list[str]:
    """How byte-level tokenizers write each byte: those that can be printed as they are, the others from 256 on (GPT-2)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return [chr(byte) if byte in printed else chr(256 + others.index(byte)) for byte in range(256)]
