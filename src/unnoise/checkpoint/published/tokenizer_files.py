"""Codecs of published models: their tokenizer files, tokenizers from lists of tokens, and a codec chosen by the user.

A folder has tokenizer.json, or GPT-2's vocab.json and merges.txt. GGUF and llama2.c store lists of tokens.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from unnoise.checkpoint.published.reader import Published
from unnoise.data import Codec, codec as codec_named, codec_kind
from unnoise.data.codec import Characters, Text8
from unnoise.data.codec_names import Numbers
from unnoise.data.tokenizer import END, FILE, Bpe, Bytes, PretrainedTokenizer, read_tokenizer
from unnoise.files import read_bytes

GPT2_FILES = ("vocab.json", "merges.txt")
MASK = "[MASK]"
MAX_CONFIG_BYTES = 64 * 2**20


def find_tokenizer(folder: Path, gpt2: bool = True) -> Tokenizer | None:
    """Load the tokenizer of a folder, or return None if there is none. gpt2: accept vocab.json and merges.txt as GPT-2's."""
    if (folder / FILE).exists():
        return read_tokenizer(folder / FILE)
    if gpt2 and all((folder / name).exists() for name in GPT2_FILES):
        return Bpe.gpt2(folder).tokenizer
    return None


def codec_for(tokenizer: Tokenizer | None, vocab: int, end: int | None = None, *, drop_added: bool = False) -> Codec:
    """Return the codec of a model with tokens 0…vocab − 1: its tokenizer, or plain numbers without one.

    end: the EOS token. Diffusion models trained on windows of a stream have none.
    drop_added: remove added tokens ≥ vocab (a mask, padding) from the tokenizer, since no text contains them.
    """
    if tokenizer is None:
        return Numbers(vocab, end)
    return PretrainedTokenizer(_without_added(tokenizer, vocab) if drop_added else tokenizer, vocab, end)


def _without_added(tokenizer: Tokenizer, vocab: int) -> Tokenizer:
    described = json.loads(tokenizer.to_str())
    added = described.get("added_tokens") or []
    kept = [token for token in added if token["id"] < vocab]
    if len(kept) == len(added):
        return tokenizer
    try:
        return Tokenizer.from_str(json.dumps(described | {"added_tokens": kept}))
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"the tokens ≥ {vocab} cannot be removed from its tokenizer ({error})") from error


def special_token(folder: Path, tokenizer: Tokenizer, kind: str) -> int | None:
    """Return the id of a token such as `mask_token`, if tokenizer_config.json or special_tokens_map.json names it."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        if not (folder / file).exists():
            continue
        try:
            named = json.loads(read_bytes(folder / file, MAX_CONFIG_BYTES, "configuration"))[kind]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        text = named.get("content") if isinstance(named, Mapping) else named
        if isinstance(text, str) and tokenizer.token_to_id(text) is not None:
            return tokenizer.token_to_id(text)
    return None


def codec_tokenizer(codec: Codec) -> Tokenizer | None:
    """Return a codec of ours as a tokenizer.json, or None if it does not encode text. It drops unknown characters."""
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
    if codec.eos is not None:
        tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return tokenizer


def _byte_symbols() -> list[str]:
    """Return the symbol of each byte in byte-level BPE: printable bytes stand for themselves, others start at 256 (GPT-2)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return [chr(byte) if byte in printed else chr(256 + others.index(byte)) for byte in range(256)]


def with_codec(model: Published, chosen: str | Path | Codec) -> Published:
    """Return the model with a different codec; raise ValueError if it has a tokenizer or a different number of tokens.

    chosen: a codec, its name, a tokenizer.json, or a folder with one or with GPT-2's vocab.json and merges.txt.
    """
    vocab, end = model.codec.vocab, model.codec.eos
    if not isinstance(model.codec, Numbers):
        raise ValueError(f"this model has a tokenizer ({codec_kind(model.codec)}): leave the codec out")
    path = None if isinstance(chosen, Codec) else Path(chosen)
    tokenizer = None
    if path is not None and path.is_dir():
        tokenizer = find_tokenizer(path)
    elif path is not None and path.is_file():
        tokenizer = read_tokenizer(path)
    if tokenizer is not None:
        found = codec_for(tokenizer, vocab, end, drop_added=True)
    else:
        found = chosen if isinstance(chosen, Codec) else codec_named(str(chosen))
    if found.vocab != vocab:
        name = codec_kind(chosen) if isinstance(chosen, Codec) else chosen
        raise ValueError(
            f"the codec {name} has {found.vocab:,} tokens, and the model {vocab:,}; if the mask is one of the tokens, "
            "give it as mask_token"
        )
    return replace(model, codec=found)


SPACE = "▁"  # SentencePiece's symbol for a space
BYTE = re.compile("<0x[0-9A-F]{2}>")
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
PRE_TOKENIZERS = ("gpt-2", "smollm", "qwen2", "llama-bpe")  # names in GGUF files


def byte_level(tokens: Sequence[str], merges: Sequence[str], kind: str) -> Tokenizer:
    """Return byte-level BPE with a list of merges "a b". kind: the pre-tokenizer, one of `PRE_TOKENIZERS`."""
    if kind not in PRE_TOKENIZERS:
        raise ValueError(f"its pre-tokenizer {kind!r} is unknown: use one of {', '.join(PRE_TOKENIZERS)}")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(numbered(tokens), pairs, ignore_merges=kind == "llama-bpe"))
    by_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind in ("gpt-2", "smollm"):
        digits = [pre_tokenizers.Digits(individual_digits=True)] if kind == "smollm" else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, by_words])
    else:
        cut = pre_tokenizers.Split(Regex(QWEN2 if kind == "qwen2" else LLAMA3), "isolated")
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece(tokens: Sequence[str], scores: Sequence[float], unknown: str, control: set[str], prefix: bool) -> Tokenizer:
    """Return SentencePiece's BPE: neighbours whose union has the highest score merge first; unknown characters are bytes.

    control: tokens that do not take part in merges.
    prefix: whether a space is put before a text.
    """
    vocab = numbered(tokens)
    pairs = []
    for token, score in zip(tokens, scores, strict=True):
        if token in control or BYTE.fullmatch(token):
            continue
        for i in range(1, len(token)):
            if token[:i] in vocab and token[i:] in vocab:
                pairs.append((-score, -i, token[:i], token[i:]))
    pairs.sort()
    model = models.BPE(
        vocab, [(left, right) for _, _, left, right in pairs], unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    put_first = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*put_first, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return tokenizer


def numbered(tokens: Sequence[str]) -> dict[str, int]:
    """Return the number of each token; raise ValueError if a token occurs twice."""
    found = {token: i for i, token in enumerate(tokens)}
    if len(found) < len(tokens):
        twice = next(token for i, token in enumerate(tokens) if found[token] != i)
        raise ValueError(f"its tokenizer has the token {twice!r} twice")
    return found


def add_control_tokens(tokenizer: Tokenizer, control: Sequence[str], defined: Sequence[str] = ()) -> None:
    """Add tokens that are matched in a text as a whole: control tokens, and user-defined ones."""
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in defined])
