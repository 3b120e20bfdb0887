"""A model that starts from another one's weights: autoregressive first, then diffusion; or from one of a larger corpus.

Weights of the same name and shape are taken over. The mask of the new model is the blank of the old one (index K in both, the
start symbol of an autoregressive model). An autoregressive network predicts token i from a row that has read token i − 1, a
diffusion model from a row that holds a mask: training unlearns the shift (LLaDA, arXiv:2502.09992), soonest in block diffusion
with small blocks (SDAR).
"""

from collections.abc import Sequence

import torch
from torch import nn

from unnoise.data import Codec
from unnoise.method_table import Method, method as method_named
from unnoise.model.model import Model
from unnoise.model.parts import needed_fields
from unnoise.network.gpt2 import Gpt2
from unnoise.network.network_base import config_of_network, named_fields, network_name, rebuild_network
from unnoise.network.transformer import Transformer, shift_taps
from unnoise.registry import accepted_arguments


def init_from(
    source: Model,
    method: str | Method,
    codec: Codec | None = None,
    length: int | None = None,
    seed: int = 0,
    labels: Sequence[str] = (),
    whole_texts: bool = False,
    network_fields: str = "",
) -> Model:
    """A model of a method with the network and the weights of `source`, as far as they fit; the rest is fresh.

    codec: the source's, which it must be, since the weights know its tokens. length: the source's by default.
    network_fields: what its network has besides, as in "transformer:pointer=true", which begins as in a fresh one.
    """
    entry = method_named(method) if isinstance(method, str) else method
    codec = codec or source.codec
    if codec.identity() != source.codec.identity():
        raise ValueError("a model that starts from another one's weights must have its codec: leave --codec out")
    length = length or source.length
    needed = needed_fields(entry, codec.vocab, length, len(labels), codec.grid, codec.channels)
    taken = accepted_arguments(type(source.network))
    before = config_of_network(source.network)
    decided = {"causal": False, "gaps": False} | needed  # by the method, and not by the source
    kind, added = named_fields(network_fields or network_name(source.network))
    if kind != network_name(source.network):
        raise ValueError(f"a model that starts from the weights of a {network_name(source.network)} cannot have a {kind}")
    fitting = {field: value for field, value in decided.items() if taken is None or field in taken}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = rebuild_network(kind, before | added | fitting)
    if added:
        with torch.device("meta"):
            check_only_adds(network, rebuild_network(kind, before | fitting), network_fields)
    model = Model(entry, codec, network, length, labels, whole_texts)
    old, new = source.weights(), model.weights()
    with torch.no_grad():
        for name, weight in new.items():
            value = old.get(name)
            if value is not None and isinstance(network, Gpt2) and name.endswith("positions.weight"):
                value = value[: len(weight)]  # learned for a greater length
            if value is None or value.shape != weight.shape:
                continue
            if isinstance(network, Transformer) and name.endswith(".conv.weight"):
                value = shift_taps(value, bool(before.get("causal")), network.shape.causal)
            weight.copy_(value)
    return model


def check_only_adds(network: nn.Module, plain: nn.Module, fields: str) -> None:
    """ValueError unless a network has weights besides those of the plain one, and all of these."""
    shapes, kept = ({name: weight.shape for name, weight in one.named_parameters()} for one in (network, plain))
    if not kept.items() < shapes.items():
        raise ValueError(f"a run that starts from a model's weights can only add to its network, and {fields} does not")
