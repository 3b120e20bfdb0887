"""Diffusion language models with a bidirectional network of the Llama type, in Hugging Face folders.

| family | layout | prediction | blocks |
|---|---|---|---|
| LLaDA (arXiv:2502.09992) | GSAI-ML/LLaDA-8B-*, LLaDA-1.5 | position i from row i | none |
| Dream (arXiv:2508.15487) | Dream-org/Dream-v0-*, apple/DiffuCoder-7B-* | position i from row i − 1 | none |
| Tiny-A2D | dllm-hub/Qwen3-0.6B-diffusion-{mdlm,bd3lm}-v0.1 | position i from row i | 32 if bd3lm is in the name |
| SDAR (arXiv:2510.06303) | JetLM/SDAR-{1.7B,4B,8B}-Chat[-b8…-b64] | position i from row i | 4, or the number in the name |
| Fast-dLLM v2 (arXiv:2509.26328) | Efficient-Large-Model/Fast_dLLM_v2_* | position i from row i − 1 | 32 |

The softmax of these models includes the mask, so all V rows of the embedding are tokens: K = V. Our mask, state K, is embedded
as the model's own mask (`mask_token` of the network). With a shift, the first token of a block is predicted by the clean row
before it. Fast-dLLM v2 samples a block in smaller parts; here a block is sampled as one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.decoder import HUGGINGFACE_NAMES, Names, folder_weights, llama_config
from unnoise.checkpoint.published.reader import (
    Choices,
    Published,
    expect,
    read_bool,
    read_int,
    read_number,
    read_token,
    type_reader,
)
from unnoise.checkpoint.published.tokenizer_files import codec_for, find_tokenizer, special_token

MASKED = "mdlm:eps=0"  # the linear schedule, weight 1/t
BLOCK_MODELS = "bd3lm"  # in the names of Tiny-A2D's block models
MAX_LENGTH = 4096  # the network evaluates the whole sequence at every step
MASKS = ("<|mdm_mask|>", "<|mask|>", "<|MASK|>", "|<MASK>|", "[MASK]", "<mask>")  # names of the mask in tokenizers
LLADA_NAMES = Names(
    embed="model.transformer.wte.weight",
    head="model.transformer.ff_out.weight",
    norm="model.transformer.ln_f.weight",
    attention_norm="model.transformer.blocks.{}.attn_norm.weight",
    q="model.transformer.blocks.{}.q_proj.weight",
    k="model.transformer.blocks.{}.k_proj.weight",
    v="model.transformer.blocks.{}.v_proj.weight",
    out="model.transformer.blocks.{}.attn_out.weight",
    mlp_norm="model.transformer.blocks.{}.ff_norm.weight",
    gate="model.transformer.blocks.{}.ff_proj.weight",
    up="model.transformer.blocks.{}.up_proj.weight",
    down="model.transformer.blocks.{}.ff_out.weight",
)


@dataclass(frozen=True)
class Family:
    """A family of published diffusion models.

    types: its `model_type` values in config.json.
    config: function from the folder and its config.json to our network's configuration.
    block: function from config.json and the model's name to the block size, where 0 means none; None: never in blocks.
    shift: whether row i − 1 predicts position i.
    usual_mask: mask of the released models, for folders that do not name it.
    """

    name: str
    types: tuple[str, ...]
    config: Callable[[Path, Mapping[str, Any]], dict[str, Any]] = llama_config
    names: Names = HUGGINGFACE_NAMES
    block: Callable[[Mapping[str, Any], str], int] | None = None
    shift: bool = False
    usual_mask: int | None = None


def _llada_config(folder: Path, described: Mapping[str, Any]) -> dict[str, Any]:
    expect(
        described,
        **{"block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms", "rope": True, "block_group_size": 1},
        **dict.fromkeys(("alibi", "include_bias", "bias_for_layer_norm", "attention_layer_norm"), False),
        **dict.fromkeys(("scale_logits", "input_emb_norm"), False),
    )
    width, heads = read_int(described, "d_model"), read_int(described, "n_heads")
    return {
        "outputs": read_int(described, "embedding_size", read_int(described, "vocab_size")),
        "length": read_int(described, "max_sequence_length"),
        "width": width,
        "depth": read_int(described, "n_layers"),
        "heads": heads,
        "kv_heads": read_int(described, "n_kv_heads", 1 if read_bool(described, "multi_query_attention") else heads),
        "head_width": max(1, width // heads),
        "hidden": read_int(described, "mlp_hidden_size", int(read_number(described, "mlp_ratio", 4) * width)),
        "rotary_base": read_number(described, "rope_theta", 10_000.0),
        "rotary_factors": [],
        "norm_eps": read_number(described, "rms_norm_eps", 1e-5),
        "qk_norm": False,
        "qkv_bias": read_bool(described, "include_qkv_bias"),
        "tied": read_bool(described, "weight_tying"),
    }


def _a2d_block(described: Mapping[str, Any], name: str) -> int:
    return read_int(described, "block_size", 32) if "block_size" in described or BLOCK_MODELS in name else 0


def _sdar_block(described: Mapping[str, Any], name: str) -> int:
    named = re.search(r"-b(\d{1,4})(?!\w)", name)
    return read_int(described, "block_size", int(named[1]) if named else 4)


def _fast_dllm_block(described: Mapping[str, Any], name: str) -> int:
    return read_int(described, "bd_size", 32)


FAMILIES = (
    Family("LLaDA", ("llada",), config=_llada_config, names=LLADA_NAMES),
    Family("Dream", ("Dream",), shift=True, usual_mask=151_666),
    Family("A2D", ("a2d-qwen3", "a2d-qwen2", "a2d-llama"), block=_a2d_block, usual_mask=151_669),
    Family("SDAR", ("sdar",), block=_sdar_block, usual_mask=151_669),
    Family("Fast-dLLM v2", ("Fast_dLLM_Qwen",), block=_fast_dllm_block, shift=True, usual_mask=151_665),
)


def read_family(family: Family, folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the diffusion model of a family in a folder."""
    config = family.config(folder, described)
    vocab, length = config["outputs"], min(config["length"], MAX_LENGTH)
    block = family.block(described, choices.name) if family.block else 0
    tokenizer = find_tokenizer(folder, gpt2=False)
    mask, guess = choices.mask_token, ""
    if mask is None:
        mask = read_token(described, "mask_token_id", vocab)
    if mask is None and tokenizer is not None:
        named = (special_token(folder, tokenizer, "mask_token"), *(tokenizer.token_to_id(name) for name in MASKS))
        mask = next((number for number in named if number is not None), None)
    if mask is None and family.usual_mask is not None and family.usual_mask < vocab:
        mask = family.usual_mask
    if mask is None:
        mask = vocab - 1
        guess = f"nothing names the mask token, so that token {mask} is taken for it: give it as mask_token"
    config |= {"inputs": vocab + 1, "causal": False, "length": length, "mask_token": mask}
    config |= {"shift": True} if family.shift else {}
    return Published(
        family=family.name,
        method=choices.method or (f"bd3lm:block={block}" if block else MASKED),
        network="llama",
        config=config,
        codec=codec_for(tokenizer, vocab, read_token(described, "eos_token_id", vocab)),
        length=length,
        weights=lambda: folder_weights(folder, family.names, config),
        guess=guess,
    )


FAMILY_READERS = tuple(type_reader(*family.types, read=partial(read_family, family)) for family in FAMILIES)
