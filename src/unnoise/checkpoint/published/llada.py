"""LLaDA (arXiv:2502.09992): masked diffusion by a bidirectional Llama, in the layout of GSAI-ML/LLaDA-8B-* and LLaDA-1.5."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.decoder import Names
from unnoise.checkpoint.published.fields import expect, flag, number, whole
from unnoise.checkpoint.published.masked_decoder import MASKED, masked_model
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type

LAYER = "model.transformer.blocks.{}"
NAMES = Names(
    embed="model.transformer.wte.weight",
    head="model.transformer.ff_out.weight",
    norm="model.transformer.ln_f.weight",
    attention_norm=f"{LAYER}.attn_norm.weight",
    q=f"{LAYER}.q_proj.weight",
    k=f"{LAYER}.k_proj.weight",
    v=f"{LAYER}.v_proj.weight",
    out=f"{LAYER}.attn_out.weight",
    mlp_norm=f"{LAYER}.ff_norm.weight",
    gate=f"{LAYER}.ff_proj.weight",
    up=f"{LAYER}.up_proj.weight",
    down=f"{LAYER}.ff_out.weight",
)


def read_llada(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    expect(
        described,
        **{"block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms", "rope": True, "block_group_size": 1},
        **dict.fromkeys(("alibi", "include_bias", "bias_for_layer_norm", "attention_layer_norm"), False),
        **dict.fromkeys(("scale_logits", "input_emb_norm"), False),
    )
    width, heads = whole(described, "d_model"), whole(described, "n_heads")
    vocab = whole(described, "embedding_size", whole(described, "vocab_size"))
    config = {
        "outputs": vocab,
        "length": whole(described, "max_sequence_length"),
        "width": width,
        "depth": whole(described, "n_layers"),
        "heads": heads,
        "kv_heads": whole(described, "n_kv_heads", 1 if flag(described, "multi_query_attention") else heads),
        "head_width": max(1, width // heads),
        "hidden": whole(described, "mlp_hidden_size", int(number(described, "mlp_ratio", 4) * width)),
        "rotary_base": number(described, "rope_theta", 10_000.0),
        "rotary_factors": [],
        "norm_eps": number(described, "rms_norm_eps", 1e-5),
        "qk_norm": False,
        "qkv_bias": flag(described, "include_qkv_bias"),
        "tied": flag(described, "weight_tying"),
    }
    return masked_model("LLaDA", folder, described, choices, config, MASKED, NAMES)


READER = Reader(("llada",), of_type("llada"), read_llada)
