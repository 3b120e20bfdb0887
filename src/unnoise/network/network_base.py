"""The network interface, a module with a `config` and a forward pass that all methods and commands can use, and its registry.

    class Gru(torch.nn.Module):
        def __init__(self, inputs, outputs, width=64): ...      # self.config = dict(inputs=…, outputs=…, width=…)
        def forward(self, x, t=None, where=None): ...           # [B, L] → [B, L, outputs]

Further features are keyword arguments of `forward`, which are passed only when they are needed:

| keyword | shape | used by |
|---|---|---|
| `cache` | a `KVCache` | autoregressive models: keys and values of earlier tokens |
| `label` | [B] long, or one number | models with labels; the number of labels stands for "no label" |
| `present` | [B, L] bool | variable-length models: false at padding, to which no position attends |
| `attention_mask` | [L, L] bool | block methods: whether position i (row) attends to position j |
| `positions` | [L] long | block methods: position of each entry in the sequence, which the input contains twice |
| `block` | an integer | block methods: x is x_t ⊕ x_0 in blocks of this size (network/attention.py); a network without this
  argument receives `attention_mask` and `positions` |
| `gaps` | bool | variable-length models: also return one number per position, [B, L] |
| `dropout` | a `Dropout` | training with dropout |

A network is built by name, with optional fields: "llama:width=128".
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from unnoise.registry import accepted_arguments, check_settings, find, parse_settings, register_builtin, registered

register_builtin(
    "network",
    {
        "transformer": "unnoise.network.transformer:Transformer",
        "llama": "unnoise.network.llama:Llama",
        "gpt2": "unnoise.network.gpt2:Gpt2",
        "ddit": "unnoise.network.ddit:Ddit",
        "md4": "unnoise.network.md4:Md4Network",
    },
)
MUST_TAKE = ("inputs", "outputs", "causal", "gaps", "labels")  # fields that a network cannot ignore
DERIVED: Any = None
"""Default of a field that is computed from other fields."""
LARGEST = {"depth": 1000, "width": 2**16, "heads": 2**12, "features": 2**12, "taps": 2**10, "attention_every": 2**10}
LARGEST_OTHER = 2**24


@runtime_checkable
class Network(Protocol):
    """x [B, L] long, or [B, L, inputs] float; t [B] or [B, L]; where [B, L] bool → [B, L, outputs].

    With `where` only those n positions are needed, [n, outputs], so the network can apply its output head to these alone, which
    saves time with a large vocabulary; it may also return all positions. `type(network)(**config)` builds the network again.
    """

    config: Mapping[str, Any]

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        """Return the raw output, which a parameterization turns into a prediction."""
        ...


@dataclass(frozen=True)
class NetworkConfig:
    """Fields of every network.

    inputs: number of token states, or of numbers per position.
    outputs: size of the last axis of the output.
    length: maximum sequence length.
    width, depth, heads: features per position, number of blocks, number of attention heads.
    """

    inputs: int
    outputs: int
    length: int
    width: int = 128
    depth: int = 4
    heads: int = 4

    def check_sizes(self, *names: str) -> None:
        """Raise ValueError unless the common fields and these ones are whole numbers ≥ 1 of reasonable size."""
        fields: Mapping[str, Any] = vars(self)
        for name in ("inputs", "outputs", "length", "width", "depth", "heads", *names):
            value, most = fields[name], LARGEST.get(name, LARGEST_OTHER)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"a network's {name} must be a whole number ≥ 1, found {value!r}")
            if value > most:
                raise ValueError(f"a network's {name} must be ≤ {most:,}, found {value:,}")

    def check_heads(self) -> None:
        """Raise ValueError unless each head has an even number of features, which rotary positions rotate in pairs."""
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"a network's width must be an even multiple of its heads, found width {self.width} and {self.heads} heads"
            )

    def check_length(self, length: int) -> int:
        """Return a sequence length, or raise ValueError if it exceeds the maximum."""
        if length > self.length:
            raise ValueError(f"this network takes sequences of at most {self.length} tokens, found {length}")
        return length

    def derive(self, **values: Any) -> None:
        """Set those of these fields that were left at `DERIVED`."""
        for name, value in values.items():
            if vars(self)[name] is None:
                object.__setattr__(self, name, value)


def keywords(network: nn.Module) -> frozenset[str]:
    """Return the arguments of the network's forward other than x, t and where."""
    return frozenset(inspect.signature(network.forward).parameters) - {"x", "t", "where"}


def check_network(network: nn.Module, needed: Mapping[str, Any]) -> None:
    """Raise ValueError unless the network has the required interface and its configuration fits the method."""
    name = type(network).__name__
    if not isinstance(network, nn.Module) or not isinstance(network, Network) or not isinstance(network.config, Mapping):
        raise ValueError(
            f"a network must be a torch.nn.Module with a dict `config` of the arguments that build it again, found {name}"
        )
    accepted = list(inspect.signature(network.forward).parameters)
    if accepted[:1] != ["x"] or not {"t", "where"} <= set(accepted):
        raise ValueError(f"a network's forward must take (x, t=None, where=None), found {name}.forward({', '.join(accepted)})")
    for field, value in needed.items():
        found = network.config.get(field, value)
        if found != value:
            raise ValueError(f"this method needs a network with {field} = {value}, found {name} with {found}")


def config_of_network(network: nn.Module) -> dict[str, Any]:
    """Return the arguments that build this network again."""
    assert isinstance(network, Network)
    return dict(network.config)


def raise_to_float32(network: nn.Module) -> None:
    """Convert half-precision weights to float32 in place, because training would lose small updates."""
    for weight in network.parameters():
        if weight.dtype in (torch.float16, torch.bfloat16):
            weight.data = weight.data.float()


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's weights."""
    return next((weight.device for weight in network.parameters()), torch.device("cpu"))


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


def network_name(network: nn.Module) -> str:
    """Return the registered name of a network's class, which a saved model needs, or raise ValueError."""
    cls = type(network)
    if cls.__module__.startswith("torch.distributed.fsdp"):  # the class that torch's fully_shard creates
        cls = cls.__bases__[1]
    for name in registered("network"):
        if find("network", name) is cls:
            return name
    raise ValueError(
        f"the network {cls.__name__} is not registered, so a saved model could not be loaded again: "
        'put @unnoise.register("network", "a-name") before the class'
    )
