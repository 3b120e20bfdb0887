"""Causal language models in Hugging Face folders (Llama, Mistral, Qwen, GPT-2), and weights of networks of the Llama type.

A folder holds config.json, safetensors files (or pytorch_model.bin for GPT-2) and a tokenizer. All of them use the method `ar`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.reader import (
    Choices,
    Published,
    expect,
    read_bool,
    read_int,
    read_number,
    read_table,
    read_token,
    type_reader,
)
from unnoise.checkpoint.published.tensor_files import Tensors, folder_tensors, load_safetensors, tensor_names
from unnoise.checkpoint.published.tokenizer_files import codec_for, find_tokenizer
from unnoise.data.tokenizer import FILE as TOKENIZER
from unnoise.network.network_base import LARGEST

WEIGHT, BIAS = ".weight", ".bias"
INV_FREQ = "rotary_emb.inv_freq"  # a buffer of older files


@dataclass(frozen=True)
class Names:
    """The tensor names of a format, with {} for the index of the layer.

    interleaved: rotary positions rotate the features (2i, 2i + 1) of a head, instead of (i, i + D/2) as in our network.
    """

    embed: str
    head: str
    norm: str
    attention_norm: str
    q: str
    k: str
    v: str
    out: str
    mlp_norm: str
    gate: str
    up: str
    down: str
    q_norm: str = ""
    k_norm: str = ""
    interleaved: bool = False


def llama_weights(found: Mapping[str, Tensor], names: Names, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of our network. Its embedding has one row for each of the K = `outputs` tokens."""
    tensors = Tensors(found)
    width, outputs = config["width"], config["outputs"]
    weights = {"embed.weight": tensors.take(names.embed, outputs, width), "norm.weight": tensors.take(names.norm, width)}
    if not config["tied"]:
        weights["head.weight"] = tensors.take(names.head, outputs, width)
    for layer in range(config["depth"]):
        weights |= {f"blocks.{layer}.{name}": tensor for name, tensor in _block(tensors, names, config, layer).items()}
    tensors.check_all_taken("a network of the Llama type")
    return weights


def _block(tensors: Tensors, names: Names, config: Mapping[str, Any], layer: int) -> dict[str, Tensor]:
    width, hidden, size = config["width"], config["hidden"], config["head_width"]
    heads = {"q": config["heads"], "k": config["kv_heads"], "v": config["kv_heads"]}
    called = {"q": names.q, "k": names.k, "v": names.v}

    def taken(name: str, *shape: int) -> Tensor:
        return tensors.take(name.format(layer), *shape)

    def projection(part: str, kind: str, *shape: int) -> Tensor:
        rows = taken(called[part].replace(WEIGHT, kind), heads[part] * size, *shape)
        return halved(rows, heads[part]) if names.interleaved and part != "v" else rows

    block = {
        "attention_norm.weight": taken(names.attention_norm, width),
        **{f"attention.{part}.weight": projection(part, WEIGHT, width) for part in heads},
        "attention.out.weight": taken(names.out, width, config["heads"] * size),
        "norm.weight": taken(names.mlp_norm, width),
        "gate.weight": taken(names.gate, hidden, width),
        "up.weight": taken(names.up, hidden, width),
        "down.weight": taken(names.down, width, hidden),
    }
    if config["qkv_bias"]:
        block |= {f"attention.{part}.bias": projection(part, BIAS) for part in heads}
    if config["qk_norm"]:
        block |= {"attention.q_norm.weight": taken(names.q_norm, size), "attention.k_norm.weight": taken(names.k_norm, size)}
    return block


def halved(rows: Tensor, heads: int) -> Tensor:
    """Reorder rows of queries or keys from rotated pairs (2i, 2i + 1) to pairs (i, i + D/2)."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def with_start_row(weights: Mapping[str, Tensor], start: int) -> dict[str, Tensor]:
    """Return the weights with one more embedding row, for our start symbol K, a copy of the model's own start token.

    Our p(x^i | x^{<i}) is then the model's, given a text that begins with its start token.
    """
    embedding = weights["embed.weight"]
    return {**weights, "embed.weight": torch.cat([embedding, embedding[start : start + 1]])}


def start_token(begin: object, end: object, vocab: int) -> int:
    """Return the token that texts begin with: BOS, or EOS if there is no BOS; raise ValueError without either."""
    found = end if begin is None else begin
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < vocab:
        raise ValueError(f"its configuration names neither a begin nor an end token among its {vocab} tokens, found {found!r}")
    return found


HUGGINGFACE_NAMES = Names(
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    norm="model.norm.weight",
    attention_norm="model.layers.{}.input_layernorm.weight",
    q="model.layers.{}.self_attn.q_proj.weight",
    k="model.layers.{}.self_attn.k_proj.weight",
    v="model.layers.{}.self_attn.v_proj.weight",
    out="model.layers.{}.self_attn.o_proj.weight",
    mlp_norm="model.layers.{}.post_attention_layernorm.weight",
    gate="model.layers.{}.mlp.gate_proj.weight",
    up="model.layers.{}.mlp.up_proj.weight",
    down="model.layers.{}.mlp.down_proj.weight",
    q_norm="model.layers.{}.self_attn.q_norm.weight",
    k_norm="model.layers.{}.self_attn.k_norm.weight",
)


def read_huggingface(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the Llama, Mistral or Qwen model in a folder."""
    config = llama_config(folder, described) | {"causal": True}
    vocab = config["outputs"]
    end = read_token(described, "eos_token_id", vocab)
    start = start_token(described.get("bos_token_id"), end, vocab)
    tokenizer = find_tokenizer(folder, gpt2=False)
    if tokenizer is None:
        raise ValueError(f"{TOKENIZER} is missing: save the tokenizer with transformers' save_pretrained")
    return Published(
        family=str(described["model_type"]),
        method="ar",
        network="llama",
        config=config,
        codec=codec_for(tokenizer, vocab, end),
        length=config["length"],
        weights=lambda: with_start_row(folder_weights(folder, HUGGINGFACE_NAMES, config), start),
    )


def folder_weights(folder: Path, names: Names, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Load our network's weights from a folder, without buffers and without a second copy of a tied embedding."""
    found = {name: tensor for name, tensor in load_safetensors(folder).items() if not name.endswith(INV_FREQ)}
    if config["tied"]:
        found.pop(names.head, None)
    return llama_weights(found, names, config)


def llama_config(folder: Path, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return our network's configuration for a config.json and the tensors in its folder."""
    names = tensor_names(folder)
    expect(described, hidden_act="silu", mlp_bias=False)
    width, heads, vocab = (read_int(described, name) for name in ("hidden_size", "num_attention_heads", "vocab_size"))
    size = read_int(described, "head_dim", max(1, width // heads))
    if size > LARGEST["width"]:
        raise ValueError(f"its head_dim must be ≤ {LARGEST['width']:,}, found {size:,}")
    rotary = read_table(described, "rope_parameters") or read_table(described, "rope_scaling")
    base = read_number(rotary, "rope_theta", read_number(described, "rope_theta", 10_000.0))
    length = read_int(described, "max_position_embeddings")
    if described.get("sliding_window") and read_bool(described, "use_sliding_window", True):
        length = min(length, read_int(described, "sliding_window"))  # up to here the window has no effect
    return {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": length,
        "width": width,
        "depth": read_int(described, "num_hidden_layers"),
        "heads": heads,
        "kv_heads": read_int(described, "num_key_value_heads", heads),
        "head_width": size,
        "hidden": read_int(described, "intermediate_size"),
        "rotary_base": base,
        "rotary_factors": rotary_factors(rotary, base, size),
        "norm_eps": read_number(described, "rms_norm_eps", 1e-6),
        "qk_norm": HUGGINGFACE_NAMES.q_norm.format(0) in names,
        "qkv_bias": HUGGINGFACE_NAMES.q.format(0).replace(WEIGHT, BIAS) in names,
        "tied": read_bool(described, "tie_word_embeddings"),
    }


def rotary_factors(rotary: Mapping[str, Any], base: float, size: int) -> list[float]:
    """Return the divisor of each rotary frequency, for models extended to longer sequences (empty: no scaling)."""
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if rotary.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("it rotates only a part of each head, which is not supported")
    if kind == "default":
        return []
    if kind == "linear":
        return [read_number(rotary, "factor")] * (size // 2)
    if kind != "llama3":
        raise ValueError(f"its rotary positions are scaled as {kind!r}; default, linear and llama3 are supported")
    factor, low, high = (read_number(rotary, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    if high <= low:
        raise ValueError(f"its high_freq_factor must be larger than its low_freq_factor, found {high} and {low}")
    longest = read_int(rotary, "original_max_position_embeddings")
    turns = longest * base ** (-torch.arange(0, size, 2).double() / size) / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # between low frequencies, divided, and high ones, kept
    return (1 / ((1 - kept) / factor + kept)).tolist()


HUGGINGFACE_READER = type_reader("llama", "mistral", "qwen2", "qwen3", read=read_huggingface)


GPT2_HEAD = "lm_head.weight"
CAUSAL_MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # stored by older files
GELU = ("gelu_new", "gelu_pytorch_tanh")  # two names of one function


def read_gpt2(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the GPT-2 model in a folder."""
    config = gpt2_config(described)
    vocab = config["outputs"]
    end = read_token(described, "eos_token_id", vocab)
    start = start_token(described.get("bos_token_id"), end, vocab)
    return Published(
        family="gpt2",
        method="ar",
        network="gpt2",
        config=config,
        codec=codec_for(find_tokenizer(folder), vocab, end, drop_added=True),
        length=config["length"],
        weights=lambda: with_start_row(gpt2_weights(folder_tensors(folder), config), start),
    )


def gpt2_config(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return our network's configuration for a config.json."""
    expect(described, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    activation = described.get("activation_function", GELU[0])
    if activation not in GELU:
        expect(described, activation_function=GELU[0])
    vocab, width = read_int(described, "vocab_size"), read_int(described, "n_embd")
    return {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": read_int(described, "n_positions"),
        "width": width,
        "depth": read_int(described, "n_layer"),
        "heads": read_int(described, "n_head"),
        "hidden": read_int(described, "n_inner", 4 * width),
        "causal": True,
        "norm_eps": read_number(described, "layer_norm_epsilon", 1e-5),
        "tied": read_bool(described, "tie_word_embeddings", True),
    }


def gpt2_weights(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of our network. Its embedding has one row for each of the K = `outputs` tokens.

    found: tensors with or without the prefix "transformer.". The causal masks of older files are ignored.
    """
    named = {name.removeprefix("transformer."): tensor for name, tensor in found.items()}
    tensors = Tensors({name: tensor for name, tensor in named.items() if not CAUSAL_MASKS.fullmatch(name)})
    width, hidden, outputs = config["width"], config["hidden"], config["outputs"]
    weights = {
        "embed.weight": tensors.take("wte.weight", outputs, width),
        "positions.weight": tensors.take("wpe.weight", config["length"], width),
        "norm.weight": tensors.take("ln_f.weight", width),
        "norm.bias": tensors.take("ln_f.bias", width),
    }
    if config["tied"]:
        tensors.found.pop(GPT2_HEAD, None)  # a second copy of the embedding
    else:
        weights["head.weight"] = tensors.take(GPT2_HEAD, outputs, width)
    matrices = {  # ours → theirs, columns in, columns out
        "attention.qkv": ("attn.c_attn", width, 3 * width),
        "attention.out": ("attn.c_proj", width, width),
        "up": ("mlp.c_fc", width, hidden),
        "down": ("mlp.c_proj", hidden, width),
    }
    for layer in range(config["depth"]):
        for ours, theirs in (("attention_norm", "ln_1"), ("norm", "ln_2")):
            for part in ("weight", "bias"):
                weights[f"blocks.{layer}.{ours}.{part}"] = tensors.take(f"h.{layer}.{theirs}.{part}", width)
        for ours, (theirs, columns, rows) in matrices.items():
            matrix = tensors.take(f"h.{layer}.{theirs}.weight", columns, rows)
            weights[f"blocks.{layer}.{ours}.weight"] = matrix.T  # stored transposed
            weights[f"blocks.{layer}.{ours}.bias"] = tensors.take(f"h.{layer}.{theirs}.bias", rows)
    tensors.check_all_taken("a network of the GPT-2 type")
    return weights


GPT2_READER = type_reader("gpt2", read=read_gpt2)
