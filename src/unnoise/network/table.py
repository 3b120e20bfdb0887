"""Networks by name: "transformer", or a registered one, with fields set in the name: "gru:width=128"."""

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from unnoise.network.base import check_network
from unnoise.network.transformer import Transformer
from unnoise.registry import find, register_builtin, registered

register_builtin("network", {"transformer": Transformer})
MUST_TAKE = ("inputs", "outputs", "causal", "gaps", "labels")  # a network that does not know these cannot do without them


def build_network(text: str, needed: Mapping[str, Any], wished: Mapping[str, Any]) -> nn.Module:
    """A network by its name, or name:field=value,…; `needed` is decided by the method and the data, `wished` by a person.

    A network's constructor gets those fields that it takes.
    """
    name, _, settings = text.partition(":")
    cls = find("network", name)
    own = _settings(name, settings)
    taken = _constructor_fields(cls)
    for field, value in needed.items():
        if taken is not None and field not in taken and field in MUST_TAKE and value:
            raise ValueError(f"this method needs a network with {field} = {value}, which {name} cannot be given")
    for field in own:
        if taken is not None and field not in taken:
            raise ValueError(f"the network {name} has no field {field!r}; it has {', '.join(sorted(taken))}")
    offered = {**wished, **own, **needed}
    try:
        network = cls(**{field: value for field, value in offered.items() if taken is None or field in taken})
    except TypeError as error:
        raise ValueError(f"the network {name} cannot be built: {error}") from error
    check_network(network, needed)
    return network


def rebuild_network(name: str, config: Mapping[str, Any]) -> nn.Module:
    """The network that a saved model describes."""
    try:
        return find("network", name)(**config)
    except TypeError as error:
        raise ValueError(f"the network {name} cannot be built from its configuration: {error}") from error


def _constructor_fields(cls: type) -> set[str] | None:
    """The arguments of a class, or None if it takes any keyword."""
    parameters = inspect.signature(cls).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _settings(name: str, text: str) -> dict[str, Any]:
    found = {}
    for setting in filter(None, text.split(",")):
        field, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ValueError(f"fields of a network are set as {name}:field=value, found {setting!r}")
        try:
            found[field] = ast.literal_eval(value.capitalize() if value in ("true", "false", "none") else value)
        except (ValueError, SyntaxError):
            found[field] = value
    return found


def network_name(network: nn.Module) -> str:
    """The name under which a network's class is registered, or ValueError: without one a saved model could not be read."""
    for name, known in registered("network").items():
        if known is type(network):
            return name
    raise ValueError(
        f"the network {type(network).__name__} is not registered, so a saved model could not be loaded again: "
        'put @unnoise.register("network", "a-name") before the class'
    )
