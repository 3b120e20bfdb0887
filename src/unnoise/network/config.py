"""Configuration fields and checks that all networks share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
