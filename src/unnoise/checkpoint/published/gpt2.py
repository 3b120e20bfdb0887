"""GPT-2 (Radford et al. 2019) in a 🤗 folder: config.json, model.safetensors or pytorch_model.bin, and its tokenizer."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.beside import codec_beside
from unnoise.checkpoint.published.decoder import Tensors, start_token
from unnoise.checkpoint.published.fields import expect, flag, number, token, whole
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type
from unnoise.checkpoint.published.tensor_files import folder_tensors

PREFIX = "transformer."
HEAD = "lm_head.weight"
BUFFERS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # the causal mask, which older files hold
GELU = ("gelu_new", "gelu_pytorch_tanh")  # two names of one function


def read_gpt2(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the model in a folder, as one of the method `ar`, or raise ValueError."""
    config = network_config(described)
    vocab = config["outputs"]
    end = token(described, "eos_token_id", vocab)
    start = start_token(described.get("bos_token_id"), end, vocab, "config.json")
    codec = codec_beside(folder, vocab, masked=False, end=end)

    def weights() -> dict[str, Tensor]:
        found = our_weights(folder_tensors(folder), config)
        embedding = found["embed.weight"]  # token K, our start symbol, is embedded as the begin token
        return found | {"embed.weight": torch.cat([embedding, embedding[start : start + 1]])}

    return Published("gpt2", "ar", "gpt2", config, codec, config["length"], weights)


def network_config(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of our network for a config.json, or raise ValueError."""
    expect(described, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    activation = described.get("activation_function", GELU[0])
    if activation not in GELU:
        expect(described, activation_function=GELU[0])
    vocab, width = whole(described, "vocab_size"), whole(described, "n_embd")
    return {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": whole(described, "n_positions"),
        "width": width,
        "depth": whole(described, "n_layer"),
        "heads": whole(described, "n_head"),
        "hidden": whole(described, "n_inner", 4 * width),
        "causal": True,
        "norm_eps": number(described, "layer_norm_epsilon", 1e-5),
        "tied": flag(described, "tie_word_embeddings", True),
    }


def our_weights(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of our network, its embedding with one row for each of the K = `outputs` tokens.

    found: by their names in the file, with or without "transformer." before them; the masks of older files are left out.
    """
    named = {name.removeprefix(PREFIX): tensor for name, tensor in found.items()}
    tensors = Tensors({name: tensor for name, tensor in named.items() if not BUFFERS.fullmatch(name)})
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
            weights[f"blocks.{layer}.{ours}.weight"] = matrix.T  # theirs multiplies from the right
            weights[f"blocks.{layer}.{ours}.bias"] = tensors.take(f"h.{layer}.{theirs}.bias", rows)
    tensors.check_all_taken("the GPT-2")
    return weights


READER = Reader(("gpt2",), of_type("gpt2"), read_gpt2)
