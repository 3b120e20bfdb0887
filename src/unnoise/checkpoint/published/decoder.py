"""Decoders of the Llama type: tensor names of other formats → weights of our network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.numbers import Tensors

WEIGHT, BIAS = ".weight", ".bias"


@dataclass(frozen=True)
class Names:
    """The tensor names of a format, with {} for the number of the layer.

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
        block = _block(tensors, names, config, layer)
        weights |= {f"blocks.{layer}.{name}": tensor for name, tensor in block.items()}
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
