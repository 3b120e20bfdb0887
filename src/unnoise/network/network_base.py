"""The network interface: a module with a `config` and a forward pass that every method, trainer and command can use.

    class Gru(torch.nn.Module):
        def __init__(self, inputs, outputs, width=64): ...      # self.config = dict(inputs=…, outputs=…, width=…)
        def forward(self, x, t=None, where=None): ...           # [B, L] → [B, L, outputs]

Further features are keyword arguments of `forward`, which are passed only when they are needed:

| keyword | shape | used by |
|---|---|---|
| `cache` | a `Cache` | autoregressive models: keys and values of earlier tokens (KV cache) |
| `label` | [B] long, or one number | models with labels; the number of labels stands for "no label" |
| `present` | [B, L] bool | variable-length models: false at padding, to which no position attends |
| `attention_mask` | [L, L] bool | block methods: whether position i (row) attends to position j |
| `positions` | [L] long | block methods: position of each entry in the sequence, which the input contains twice |
| `block` | an integer | block methods: x is x_t ⊕ x_0 in blocks of this size (network/layers.py); a network without this
  argument receives `attention_mask` and `positions` |
| `gaps` | bool | variable-length models: also return one number per position, [B, L] |
| `dropout` | a `Dropout` | training with dropout |

Configuration fields and checks that all networks share.

Batch sizes and concurrent calls for inference.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn


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


@dataclass
class Cache:
    """Per-layer key/value cache.

    keys_values: keys and values of each layer, [B, H, n, D].
    recent: last inputs of the convolution of each layer, [B, taps, D].
    last: final features of the last token, [B, W], for networks whose row i − 1 predicts position i.
    length: number of cached tokens.
    store: whether a call adds its tokens; calls with a noised block do not.
    """

    keys_values: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    recent: dict[int, Tensor] = field(default_factory=dict)
    last: Tensor | None = None
    length: int = 0
    store: bool = True

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows: [n] long, or [B] bool."""
        self.keys_values = {layer: (k[rows], v[rows]) for layer, (k, v) in self.keys_values.items()}
        self.recent = {layer: inputs[rows] for layer, inputs in self.recent.items()}
        self.last = None if self.last is None else self.last[rows]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values and return all of them: [B, H, n, D] each."""
        if layer in self.keys_values:
            before = self.keys_values[layer]
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        if self.store:
            self.keys_values[layer] = k, v
        return k, v


def keywords(network: nn.Module) -> frozenset[str]:
    """Return the arguments of the network's forward other than x, t and where."""
    parameters = inspect.signature(network.forward).parameters.values()
    return frozenset(parameter.name for parameter in parameters) - {"x", "t", "where"}


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
    for field_name, value in needed.items():
        found = network.config.get(field_name, value)
        if found != value:
            raise ValueError(f"this method needs a network with {field_name} = {value}, found {name} with {found}")


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


DERIVED: Any = None
"""Default of a field that is computed from other fields."""

LARGEST = {"depth": 1000, "width": 2**16, "heads": 2**12, "features": 2**12, "taps": 2**10, "attention_every": 2**10}
LARGEST_OTHER = 2**24


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


Part = TypeVar("Part")
Result = TypeVar("Result")

TOKENS = 2048
NUMBERS = 2**26  # largest number of predicted values in memory


def rows_at_once(tokens: int, most: int, device: torch.device, vocab: int = 1) -> int:
    """Return the number of sequences per network call, for sequences of `tokens` tokens and outputs of size `vocab`.

    On a CPU, 2,048 tokens per call are as fast as more, or faster, because they fit into its caches; on other devices the
    result is `most`. It does not depend on the number of threads or processes, so any number of them computes the same bits.
    """
    return max(1, min(most, TOKENS // tokens, NUMBERS // (tokens * vocab))) if device.type == "cpu" else most


def calls_at_once(call: Callable[[Part], Result], parts: Sequence[Part], device: torch.device) -> Iterator[Result]:
    """Yield call(part) for each part, in order and without gradients. On a CPU each of torch's threads runs one call.

    Matrix products of 2,048 tokens are so small that two threads sharing one product wait for each other half of the time.
    """
    without_gradients = torch.no_grad()(call)  # in the calling thread
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(parts) == 1:
        yield from map(without_gradients, parts)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(without_gradients, parts)
    finally:
        torch.set_num_threads(threads)  # for threads that start later
