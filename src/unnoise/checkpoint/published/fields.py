"""Fields of a published config.json, each of the kind that it must be, or ValueError."""

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 2**31


def whole(described: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number ≥ 1; the default where it is not given, or null."""
    value = described.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < LARGEST:
        raise ValueError(f"its {name} must be a whole number ≥ 1, found {_short(value)}")
    return value


def number(described: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A finite number > 0."""
    value = described.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"its {name} must be a number > 0, found {_short(value)}")
    return float(value)


def flag(described: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """True or false."""
    value = described.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise ValueError(f"its {name} must be true or false, found {_short(value)}")
    return value


def table(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of fields, empty where it is not given."""
    value = described.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"its {name} must be a table, found {_short(value)}")
    return value or {}


def token(described: Mapping[str, Any], name: str, vocab: int) -> int | None:
    """The number of a token, the first of several, or None."""
    value = described.get(name)
    value = value[0] if isinstance(value, list) and value else value
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"its {name} must be a whole number, found {_short(value)}")
    if value is not None and not 0 <= value < vocab:
        raise ValueError(f"its {name} must be one of its tokens 0…{vocab - 1}, found {_short(value)}")
    return value


def expect(described: Mapping[str, Any], **wanted: object) -> None:
    """ValueError unless each field, where it is given, is what a network of this type has."""
    for name, value in wanted.items():
        found = described.get(name)
        if found is not None and (found != value or isinstance(found, bool) != isinstance(value, bool)):
            raise ValueError(f"its {name} is {_short(found)}, not {value!r}")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:58]}…"
