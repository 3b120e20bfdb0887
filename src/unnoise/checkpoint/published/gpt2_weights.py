"""GPT-2 (Radford et al. 2019) in a 🤗 folder: config.json, model.safetensors or pytorch_model.bin, and its tokenizer."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.checkpoint.published.decoder import start_token, with_start_row
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
from unnoise.checkpoint.published.tensor_files import Tensors, folder_tensors
from unnoise.checkpoint.published.tokenizer_files import codec_for, find_tokenizer

PREFIX = "transformer."
HEAD = "lm_head.weight"
CAUSAL_MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # stored by older files
GELU = ("gelu_new", "gelu_pytorch_tanh")  # two names of one function


def read_gpt2(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the model in a folder, for the method `ar`."""
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
    named = {name.removeprefix(PREFIX): tensor for name, tensor in found.items()}
    tensors = Tensors({name: tensor for name, tensor in named.items() if not CAUSAL_MASKS.fullmatch(name)})
    width, hidden, outputs = config["width"], config["hidden"], config["outputs"]
    weights = {
        "embed.weight": tensors.take("wte.weight", outputs, width),
        "positions.weight": tensors.take("wpe.weight", config["length"], width),
        "norm.weight": tensors.take("ln_f.weight", width),
        "norm.bias": tensors.take("ln_f.bias", width),
    }
    if config["tied"]:
        tensors.found.pop(HEAD, None)  # a second copy of the embedding
    else:
        weights["head.weight"] = tensors.take(HEAD, outputs, width)
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
