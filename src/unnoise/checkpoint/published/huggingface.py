"""Models in a 🤗 folder: config.json, model.safetensors (or several with an index) and tokenizer.json; Llama, Mistral, Qwen."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.decoder import Decoder, Names, Tensors, our_weights, start_token
from unnoise.checkpoint.tensors import read_tensors
from unnoise.data.bpe import FILE as TOKENIZER, read_tokenizer
from unnoise.data.tokenizer import PretrainedTokenizer
from unnoise.files import read_bytes

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_INDEX = 64 * 2**20  # bytes
LAYER = "model.layers.{}"
NAMES = Names(
    embed="model.embed_tokens.weight",
    head="lm_head.weight",
    norm="model.norm.weight",
    attention_norm=f"{LAYER}.input_layernorm.weight",
    q=f"{LAYER}.self_attn.q_proj.weight",
    k=f"{LAYER}.self_attn.k_proj.weight",
    v=f"{LAYER}.self_attn.v_proj.weight",
    out=f"{LAYER}.self_attn.o_proj.weight",
    mlp_norm=f"{LAYER}.post_attention_layernorm.weight",
    gate=f"{LAYER}.mlp.gate_proj.weight",
    up=f"{LAYER}.mlp.up_proj.weight",
    down=f"{LAYER}.mlp.down_proj.weight",
    q_norm=f"{LAYER}.self_attn.q_norm.weight",
    k_norm=f"{LAYER}.self_attn.k_norm.weight",
)
TYPES = ("llama", "mistral", "qwen2", "qwen3")
COMPUTED = "rotary_emb.inv_freq"  # which older files hold


def read_huggingface(folder: Path, described: dict[str, Any]) -> Decoder:
    """The model in a folder whose config.json holds `described`, or ValueError."""
    try:
        found = {name: tensor for name, tensor in _read_weights(folder).items() if not name.endswith(COMPUTED)}
        config = network_config(described, set(found))
        if config["tied"]:
            found.pop(NAMES.head, None)
        weights = our_weights(Tensors(found), NAMES, config)
        end = _end_token(described)
        start = start_token(described.get("bos_token_id"), end, config["outputs"], "config.json")
        if not (folder / TOKENIZER).exists():
            raise ValueError(f"{TOKENIZER} is missing: save its tokenizer there, as transformers' save_pretrained does")
        codec = PretrainedTokenizer(read_tokenizer(folder / TOKENIZER), config["outputs"], end)
    except ValueError as error:
        raise ValueError(f"the model in {folder} cannot be read: {error}") from error
    return Decoder(config, weights, codec, start)


def network_config(described: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The fields of our network from those of config.json and the names of the tensors, or ValueError."""
    if described.get("model_type") not in TYPES:
        raise ValueError(f"its model_type is {described.get('model_type')!r}, and {', '.join(TYPES)} can be read")
    if described.get("hidden_act", "silu") != "silu":
        raise ValueError(f"its hidden_act is {described['hidden_act']!r}, not 'silu'")
    width, heads, vocab = (_whole(described, name) for name in ("hidden_size", "num_attention_heads", "vocab_size"))
    size = _whole(described, "head_dim") if described.get("head_dim") else width // heads
    rotary = described.get("rope_parameters") or described.get("rope_scaling") or {}
    base = rotary.get("rope_theta", described.get("rope_theta", 10_000.0))
    length = _whole(described, "max_position_embeddings")
    if described.get("sliding_window") and described.get("use_sliding_window", True):
        length = min(length, _whole(described, "sliding_window"))  # within which a window changes nothing
    return {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": length,
        "width": width,
        "depth": _whole(described, "num_hidden_layers"),
        "heads": heads,
        "kv_heads": _whole(described, "num_key_value_heads") if described.get("num_key_value_heads") else heads,
        "head_width": size,
        "hidden": _whole(described, "intermediate_size"),
        "causal": True,
        "rotary_base": base,
        "rotary_factors": rotary_factors(rotary, base, size),
        "norm_eps": described.get("rms_norm_eps", 1e-6),
        "qk_norm": NAMES.q_norm.format(0) in names,
        "qkv_bias": NAMES.q.format(0).replace(".weight", ".bias") in names,
        "tied": bool(described.get("tie_word_embeddings", False)),
    }


def rotary_factors(rotary: dict[str, Any], base: float, size: int) -> list[float]:
    """By what each frequency of a head is divided: for longer texts than a model was first trained on."""
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if rotary.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("it turns only a part of each head, which is not served")
    if kind == "default":
        return []
    if kind == "linear":
        return [float(rotary["factor"])] * (size // 2)
    if kind != "llama3":
        raise ValueError(f"its rotary positions are scaled as {kind!r}; default, linear and llama3 are served")
    factor, low, high = (float(rotary[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = rotary["original_max_position_embeddings"] * base ** (-torch.arange(0, size, 2).double() / size) / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # between few turns, slowed down, and many, left as they are
    return (1 / ((1 - kept) / factor + kept)).tolist()


def _end_token(described: dict[str, Any]) -> int | None:
    """The token that ends a text: the first, where there are several."""
    found = described.get("eos_token_id")
    found = found[0] if isinstance(found, list) and found else found
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise ValueError(f"its eos_token_id must be a whole number, found {found!r}")
    return found


def _whole(described: dict[str, Any], name: str) -> int:
    value = described.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"its {name} must be a whole number ≥ 1, found {value!r}")
    return value


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of one file, or of those that the index names."""
    if (folder / WEIGHTS).exists():
        files = {WEIGHTS}
    elif (folder / INDEX).exists():
        try:
            files = set(json.loads(read_bytes(folder / INDEX, LARGEST_INDEX, "index"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{INDEX} is damaged ({error})") from error
    else:
        pickled = " (a pickle, which pytorch_model.bin is, is not opened)" if list(folder.glob("*.bin")) else ""
        raise ValueError(f"{WEIGHTS} is missing{pickled}")
    found: dict[str, Tensor] = {}
    for name in sorted(files):
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).exists():
            raise ValueError(f"its file {name} is missing")
        try:
            found |= read_tensors(folder / name)[1]
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return found
