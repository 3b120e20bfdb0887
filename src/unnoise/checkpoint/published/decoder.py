"""A decoder of the Llama type that was trained elsewhere: its tensors by their own names → our network's weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.numbers import check_numbers
from unnoise.data.codec import Codec

WEIGHT, BIAS = ".weight", ".bias"


@dataclass(frozen=True)
class Decoder:
    """A decoder with K tokens.

    config: of the network `llama`, causal, with inputs = K + 1. weights: by the network's names, the embedding with K rows.
    codec: its tokenizer. start: the token that its texts begin with (BOS; where there is none, the one that ends them).
    """

    config: dict[str, Any]
    weights: dict[str, Tensor]
    codec: Codec
    start: int

    def started(self) -> dict[str, Tensor]:
        """The weights with one row more in the embedding, for the token K that this model does not have: as that of the start
        token it makes p(x^i | x^{<i}) that of this model after BOS."""
        embedding = self.weights["embed.weight"]
        return self.weights | {"embed.weight": torch.cat([embedding, embedding[self.start : self.start + 1]])}


@dataclass(frozen=True)
class Names:
    """How a format calls its tensors, {} being the number of the layer.

    interleaved: whether rotary positions turn the features (2i, 2i + 1) of a head, and not (i, i + D/2) as our network does.
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


class Tensors:
    """Tensors of a file, each taken once by its name and with the shape that it must have."""

    def __init__(self, found: Mapping[str, Tensor]):
        self.found = dict(found)

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor, or ValueError if it is missing, misshapen or not finite; matrices stay as they are, in the file and in
        half precision, vectors become float32."""
        if name not in self.found:
            raise ValueError(f"the tensor {name} is missing")
        tensor = self.found.pop(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"the tensor {name} has shape {list(tensor.shape)}, not {list(shape)}")
        check_numbers(name, tensor)
        return tensor.float() if tensor.dim() == 1 or tensor.dtype == torch.float64 else tensor

    def check_all_taken(self, kind: str = "the Llama") -> None:
        """ValueError if something is left over: then it is another network."""
        if self.found:
            raise ValueError(f"the tensor {min(self.found)} is unknown to a network of {kind} type")


def our_weights(tensors: Tensors, names: Names, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of our network; its embedding has one row for each of the K = `outputs` tokens."""
    width, outputs = config["width"], config["outputs"]
    weights = {"embed.weight": tensors.take(names.embed, outputs, width), "norm.weight": tensors.take(names.norm, width)}
    if not config["tied"]:
        weights["head.weight"] = tensors.take(names.head, outputs, width)
    for layer in range(config["depth"]):
        block = _block(tensors, names, config, layer)
        weights |= {f"blocks.{layer}.{name}": tensor for name, tensor in block.items()}
    tensors.check_all_taken()
    return weights


def _block(tensors: Tensors, names: Names, config: Mapping[str, Any], layer: int) -> dict[str, Tensor]:
    width, hidden, size = config["width"], config["hidden"], config["head_width"]
    heads = {"q": config["heads"], "k": config["kv_heads"], "v": config["kv_heads"]}
    called = {"q": names.q, "k": names.k, "v": names.v}

    def taken(name: str, *shape: int) -> Tensor:
        return tensors.take(name.format(layer), *shape)

    def projection(part: str, kind: str, *shape: int) -> Tensor:
        """Queries, keys or values."""
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
    """Rows of queries or keys whose features are turned in pairs (2i, 2i + 1), in the order for pairs (i, i + D/2)."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def start_token(begin: object, end: object, vocab: int, what: str) -> int:
    """The token that texts begin with: the begin token, or where there is none the end token; ValueError without both."""
    found = end if begin is None else begin
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < vocab:
        raise ValueError(f"{what} names neither a begin nor an end token among its {vocab} tokens, found {found!r}")
    return found
