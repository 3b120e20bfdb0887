"""HF tokenizers from lists of tokens, as stored by GGUF and llama2.c."""

import re
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

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
