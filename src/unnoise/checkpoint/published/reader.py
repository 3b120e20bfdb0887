"""The interface of readers of published checkpoints, and checked access to the fields of their config.json.

The functions raise ValueError for a value of the wrong type.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.data.codec import Codec

MAX_INT = 2**31


def read_int(described: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return an integer ≥ 1, or the default if the field is missing or null."""
    value = default if described.get(name) is None else described[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < MAX_INT:
        raise ValueError(f"its {name} must be a whole number ≥ 1, found {_short(value)}")
    return value


def read_number(described: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a finite number > 0, or the default if the field is missing or null."""
    value = default if described.get(name) is None else described[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"its {name} must be a number > 0, found {_short(value)}")
    return float(value)


def read_bool(described: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a boolean, or the default if the field is missing or null."""
    value = default if described.get(name) is None else described[name]
    if not isinstance(value, bool):
        raise ValueError(f"its {name} must be true or false, found {_short(value)}")
    return value


def read_table(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a mapping, or an empty one if the field is missing or null."""
    value = described.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"its {name} must be a table, found {_short(value)}")
    return value or {}


def read_token(described: Mapping[str, Any], name: str, vocab: int) -> int | None:
    """Return a token number, the first one of a list, or None if the field is missing or null."""
    value = described.get(name)
    value = value[0] if isinstance(value, list) and value else value
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"its {name} must be a whole number, found {_short(value)}")
    if value is not None and not 0 <= value < vocab:
        raise ValueError(f"its {name} must be one of its tokens 0…{vocab - 1}, found {_short(value)}")
    return value


def expect(described: Mapping[str, Any], **wanted: object) -> None:
    """Raise ValueError if a field is present with a value other than the expected one."""
    for name, value in wanted.items():
        found = described.get(name)
        if found is not None and (found != value or isinstance(found, bool) != isinstance(value, bool)):
            raise ValueError(f"its {name} is {_short(found)}, not {value!r}")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:58]}…"


@dataclass(frozen=True)
class Choices:
    """User choices for what the files of a published model leave open.

    name: folder name or hub id under which the model was requested.
    mask_token: number of the token that serves as the mask.
    method: method to use the model with, a name from `unnoise.methods()`, optionally with settings.
    """

    name: str = ""
    mask_token: int | None = None
    method: str | None = None


@dataclass(frozen=True)
class Published:
    """A model that was trained by other code. Its weights are not yet loaded.

    family: name of the model family or file format.
    method: our method, with its settings.
    network, config: name and configuration of our network.
    codec: the model's tokenizer.
    length: maximum length of a sequence.
    weights: function that loads the tensors under our network's names.
    guess: a sentence about a value that the files do not state and that was guessed.
    notes: additional facts, saved with the model.
    labels: names of the classes.
    """

    family: str
    method: str
    network: str
    config: dict[str, Any]
    codec: Codec
    length: int
    weights: Callable[[], Mapping[str, Tensor]]
    guess: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """A reader of one published layout.

    types: the `model_type` values in config.json that it accepts, for error messages.
    recognizes: predicate on a folder (or a single file) and its configuration.
    read: function that returns the model. It may raise any of `published.DAMAGE`.
    """

    types: tuple[str, ...]
    recognizes: Callable[[Path, Mapping[str, Any]], bool]
    read: Callable[[Path, Mapping[str, Any], Choices], Published]


def type_reader(*types: str, read: Callable[[Path, Mapping[str, Any], Choices], Published]) -> Reader:
    """Return a reader of folders whose configuration has one of these values of `model_type`."""
    return Reader(types, lambda _, described: described.get("model_type") in types, read)
