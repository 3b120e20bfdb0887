"""The table of networks by name; fields are set in the name: "llama:width=128"."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from unnoise.network.ddit import Ddit
from unnoise.network.gpt2 import Gpt2
from unnoise.network.llama import Llama
from unnoise.network.md4 import Md4Network
from unnoise.network.network_base import check_network
from unnoise.network.transformer import Transformer
from unnoise.registry import accepted_arguments, check_settings, find, parse_settings, register_builtin, registered

register_builtin("network", {"transformer": Transformer, "llama": Llama, "gpt2": Gpt2, "ddit": Ddit, "md4": Md4Network})
MUST_TAKE = ("inputs", "outputs", "causal", "gaps", "labels")  # fields that a network cannot ignore


def build_network(text: str, needed: Mapping[str, Any], wished: Mapping[str, Any]) -> nn.Module:
    """Build a network by name, with optional fields, "name:field=value,…".

    needed: fields that the method and the data determine.
    wished: fields that the user sets; the constructor receives those that it accepts.
    """
    name, own = named_fields(text)
    cls = find("network", name)
    taken = accepted_arguments(cls)
    for field, value in own.items():
        if needed.get(field, value) != value:
            raise ValueError(f"this method needs a network with {field} = {needed[field]}, found {text}")
    for field, value in needed.items():
        if taken is not None and field not in taken and field in MUST_TAKE and value:
            raise ValueError(f"this method needs a network with {field} = {value}, which {name} does not accept")
    offered = {**wished, **own, **needed}
    try:
        network = cls(**{field: value for field, value in offered.items() if taken is None or field in taken})
    except TypeError as error:
        raise ValueError(f"the network {name} cannot be built: {error}") from error
    check_network(network, needed)
    return network


def named_fields(text: str) -> tuple[str, dict[str, Any]]:
    """Split "gru:width=128" into the name and the fields, which are checked."""
    name, _, settings = text.partition(":")
    own = parse_settings(name, settings, "network")
    check_settings(name, own, accepted_arguments(find("network", name)), "network")
    return name, own


def rebuild_network(name: str, config: Mapping[str, Any]) -> nn.Module:
    """Build the network of a saved model from its configuration."""
    try:
        return find("network", name)(**config)
    except TypeError as error:
        raise ValueError(f"the network {name} cannot be built from its configuration: {error}") from error


def network_names() -> list[str]:
    """Return the names of all networks."""
    return list(registered("network"))


def network_name(network: nn.Module) -> str:
    """Return the registered name of a network's class, which a saved model needs, or raise ValueError."""
    cls = type(network)
    if cls.__module__.startswith("torch.distributed.fsdp"):  # the class that torch's fully_shard creates
        cls = cls.__bases__[1]
    for name, known in registered("network").items():
        if known is cls:
            return name
    raise ValueError(
        f"the network {cls.__name__} is not registered, so a saved model could not be loaded again: "
        'put @unnoise.register("network", "a-name") before the class'
    )
