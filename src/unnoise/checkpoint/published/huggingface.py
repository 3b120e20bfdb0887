"""Causal language models in a 🤗 folder: config.json, safetensors and tokenizer.json; Llama, Mistral, Qwen."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from unnoise.checkpoint.published.decoder import Decoder, Names, Tensors, our_weights, start_token
from unnoise.checkpoint.published.fields import expect, flag, number, table, token, whole
from unnoise.checkpoint.published.folder import codec_of, tensor_names, tensors, tokenizer_of
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type
from unnoise.data.bpe import FILE as TOKENIZER
from unnoise.network.config import LARGEST

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
WIDEST_HEAD = LARGEST["width"]
TYPES = ("llama", "mistral", "qwen2", "qwen3")


def read_huggingface(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder whose config.json holds `described`, as one of the method `ar`, or ValueError."""
    config = network_config(described, tensor_names(folder))
    vocab = config["outputs"]
    end = token(described, "eos_token_id", vocab)
    start = start_token(described.get("bos_token_id"), end, vocab, "config.json")
    tokenizer = tokenizer_of(folder)
    if tokenizer is None:
        raise ValueError(f"{TOKENIZER} is missing: save its tokenizer there, as transformers' save_pretrained does")
    codec = codec_of(tokenizer, vocab, end)

    def decoder() -> Decoder:
        return Decoder(config, our_weights(Tensors(without_copies(folder, NAMES, config)), NAMES, config), codec, start)

    kind = str(described["model_type"])
    return Published(kind, "ar", "llama", config, codec, config["length"], lambda: decoder().started())


def without_copies(folder: Path, names: Names, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a folder, but for a second copy of the embedding where the head is tied to it."""
    found = tensors(folder)
    if config["tied"]:
        found.pop(names.head, None)
    return found


def network_config(described: Mapping[str, Any], names: set[str], causal: bool = True) -> dict[str, Any]:
    """The fields of our network from those of config.json and the names of the tensors, or ValueError."""
    expect(described, hidden_act="silu", mlp_bias=False)
    width, heads, vocab = (whole(described, name) for name in ("hidden_size", "num_attention_heads", "vocab_size"))
    size = whole(described, "head_dim", max(1, width // heads))
    if size > WIDEST_HEAD:
        raise ValueError(f"its head_dim must be ≤ {WIDEST_HEAD:,}, found {size:,}")
    rotary = table(described, "rope_parameters") or table(described, "rope_scaling")
    base = number(rotary, "rope_theta", number(described, "rope_theta", 10_000.0))
    length = whole(described, "max_position_embeddings")
    if described.get("sliding_window") and flag(described, "use_sliding_window", True):
        length = min(length, whole(described, "sliding_window"))  # within which a window changes nothing
    return {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": length,
        "width": width,
        "depth": whole(described, "num_hidden_layers"),
        "heads": heads,
        "kv_heads": whole(described, "num_key_value_heads", heads),
        "head_width": size,
        "hidden": whole(described, "intermediate_size"),
        "causal": causal,
        "rotary_base": base,
        "rotary_factors": rotary_factors(rotary, base, size),
        "norm_eps": number(described, "rms_norm_eps", 1e-6),
        "qk_norm": NAMES.q_norm.format(0) in names,
        "qkv_bias": NAMES.q.format(0).replace(".weight", ".bias") in names,
        "tied": flag(described, "tie_word_embeddings"),
    }


def rotary_factors(rotary: Mapping[str, Any], base: float, size: int) -> list[float]:
    """By what each frequency of a head is divided: for longer texts than a model was first trained on."""
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if rotary.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("it turns only a part of each head, which is not served")
    if kind == "default":
        return []
    if kind == "linear":
        return [number(rotary, "factor")] * (size // 2)
    if kind != "llama3":
        raise ValueError(f"its rotary positions are scaled as {kind!r}; default, linear and llama3 are served")
    factor, low, high = (number(rotary, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    if high <= low:
        raise ValueError(f"its high_freq_factor must be larger than its low_freq_factor, found {high} and {low}")
    longest = whole(rotary, "original_max_position_embeddings")
    turns = longest * base ** (-torch.arange(0, size, 2).double() / size) / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # between few turns, slowed down, and many, left as they are
    return (1 / ((1 - kept) / factor + kept)).tolist()


READER = Reader(TYPES, of_type(*TYPES), read_huggingface)
