"""Checks that the configurations of networks share."""

from collections.abc import Mapping
from typing import Any

LARGEST = {"depth": 1000, "width": 2**16, "heads": 2**12, "features": 2**12, "taps": 2**10, "attention_every": 2**10}
LARGEST_OTHER = 2**24


def check_sizes(config: object, *names: str) -> None:
    """ValueError unless these fields are whole numbers ≥ 1, none beyond all bounds."""
    fields: Mapping[str, Any] = vars(config)
    for name in names:
        value, most = fields[name], LARGEST.get(name, LARGEST_OTHER)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"a network's {name} must be a whole number ≥ 1, found {value!r}")
        if value > most:
            raise ValueError(f"a network's {name} must be ≤ {most:,}, found {value:,}")


def check_heads(width: int, heads: int) -> None:
    """ValueError unless each head has an even number of features, so that rotary positions turn pairs of them."""
    if width % heads or (width // heads) % 2:
        raise ValueError(f"a network's width must be an even multiple of its heads, found width {width} and {heads} heads")
