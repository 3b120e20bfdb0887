"""The interface of readers of published checkpoints, and the model that a reader returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.data.codec import Codec


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
    recognises: predicate on a folder (or a single file) and its configuration.
    read: function that returns the model. It may raise any of `formats.DAMAGE`.
    """

    types: tuple[str, ...]
    recognises: Callable[[Path, Mapping[str, Any]], bool]
    read: Callable[[Path, Mapping[str, Any], Choices], Published]


def type_reader(*types: str, read: Callable[[Path, Mapping[str, Any], Choices], Published]) -> Reader:
    """Return a reader of folders whose configuration has one of these values of `model_type`."""
    return Reader(types, lambda _, described: described.get("model_type") in types, read)
