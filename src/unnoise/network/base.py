"""What a network must be to serve every method, trainer and command: a module with a configuration, and a forward pass.

    class Gru(torch.nn.Module):
        def __init__(self, inputs, outputs, width=64): ...      # self.config = dict(inputs=…, outputs=…, width=…)
        def forward(self, x, t=None, where=None): ...           # [B, L] → [B, L, outputs]

A network says what more it can do by the keyword arguments of its `forward`, which are passed only where they are needed:

| keyword | shape | who needs it |
|---|---|---|
| `cache` | a `Cache` | autoregressive models: what was read before is not read again (KV cache) |
| `label` | [B] long, or one number | models with labels; the number of labels stands for none |
| `present` | [B, L] bool | models of variable length: padding is seen by nobody |
| `attention_mask` | [L, L] bool | block methods: whether position i (row) may see position j |
| `positions` | [L] long | block methods: the place of each entry in the text, where a text is read twice |
| `block` | a whole number | block methods: x is x_t ⊕ x_0 in blocks of this size, which says who sees whom
  (network/visibility.py); a network that does not take it is given `attention_mask` and `positions` |
| `gaps` | bool | models of variable length: return also one number for each position, [B, L] |
| `dropout` | a `Dropout` | training with dropout: what is left out of each branch |
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Network(Protocol):
    """x [B, L] long, or [B, L, inputs] float; t [B] or [B, L]; where [B, L] bool → [B, L, outputs].

    With `where` only those n positions are needed, [n, outputs]: a network runs its output head there alone, since a large
    vocabulary costs most there; one that returns everything is served too. `config` holds what the class needs to be built
    again, `type(network)(**config)`.
    """

    config: Mapping[str, Any]

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        """The raw output, which a parameterization turns into a prediction."""
        ...


@dataclass
class Cache:
    """What a network remembers of the tokens so far (KV cache): for each layer, by its number, keys and values [B, H, n, D],
    and the last inputs of its convolution [B, taps, D]; and what has become of the last token, [B, W], where that predicts the
    next one.

    store: whether a call adds what it reads; a call with a noised block reads the cache and leaves it as it is.
    """

    keys_values: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    recent: dict[int, Tensor] = field(default_factory=dict)
    last: Tensor | None = None
    length: int = 0
    store: bool = True

    def keep(self, rows: Tensor) -> None:
        """Forget all texts but these: [n] long, or [B] bool."""
        self.keys_values = {layer: (k[rows], v[rows]) for layer, (k, v) in self.keys_values.items()}
        self.recent = {layer: inputs[rows] for layer, inputs in self.recent.items()}
        self.last = None if self.last is None else self.last[rows]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values so far, these included: [B, H, n, D] each."""
        if layer in self.keys_values:
            before = self.keys_values[layer]
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        if self.store:
            self.keys_values[layer] = k, v
        return k, v


def keywords(network: nn.Module) -> frozenset[str]:
    """What the network's forward takes besides x, t and where."""
    parameters = inspect.signature(network.forward).parameters.values()
    return frozenset(parameter.name for parameter in parameters) - {"x", "t", "where"}


def check_network(network: nn.Module, needed: Mapping[str, Any]) -> None:
    """Raise ValueError unless the network can be used and its configuration agrees with what a method needs."""
    name = type(network).__name__
    if not isinstance(network, nn.Module) or not isinstance(network, Network) or not isinstance(network.config, Mapping):
        raise ValueError(
            f"a network must be a torch.nn.Module with a dict `config` of the arguments that build it again, found {name}"
        )
    accepted = list(inspect.signature(network.forward).parameters)
    if accepted[:1] != ["x"] or not {"t", "where"} <= set(accepted):
        raise ValueError(f"a network's forward must take (x, t=None, where=None), found {name}.forward({', '.join(accepted)})")
    for field_name, value in needed.items():
        found = network.config.get(field_name, value)
        if found != value:
            raise ValueError(f"this method needs a network with {field_name} = {value}, found {name} with {found}")


def config_of_network(network: nn.Module) -> dict[str, Any]:
    """What builds this network again."""
    assert isinstance(network, Network)
    return dict(network.config)


def raise_to_float32(network: nn.Module) -> None:
    """Weights of half precision, which a published model may have, become float32: small changes would be lost in them."""
    for weight in network.parameters():
        if weight.dtype in (torch.float16, torch.bfloat16):
            weight.data = weight.data.float()


def device_of(network: nn.Module) -> torch.device:
    """Where a network's weights are."""
    return next((weight.device for weight in network.parameters()), torch.device("cpu"))
