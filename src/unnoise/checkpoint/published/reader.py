"""What a reader of a published layout is, and what it gives: a model from elsewhere, described, its weights not yet read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.data.codec import Codec


@dataclass(frozen=True)
class Choices:
    """What a person says about a published model that its files leave open.

    name: what it was asked for by, a folder's name or a hub id. mask_token: the token that is its mask. method: what it is read
    as, a name from `unnoise.methods()`, perhaps with options.
    """

    name: str = ""
    mask_token: int | None = None
    method: str | None = None


@dataclass(frozen=True)
class Published:
    """A model that was trained elsewhere.

    family: what it is called there. method: ours, with its options. network, config: our network's name and configuration.
    codec: its tokenizer. length: the longest text. weights: reads the tensors, by our network's names. guess: what its files do
    not say and was guessed, in a sentence. notes: more to know. labels: names of the classes that texts can be said to have.
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
    """A published layout.

    types: the `model_type`s in its config.json, for people. recognises: whether a folder (or a file beside which its
    configuration may lie) with this configuration is one of them. read: the model in it, or ValueError.
    """

    types: tuple[str, ...]
    recognises: Callable[[Path, Mapping[str, Any]], bool]
    read: Callable[[Path, Mapping[str, Any], Choices], Published]


def of_type(*types: str) -> Callable[[Path, Mapping[str, Any]], bool]:
    """Recognises a configuration by its `model_type`."""
    return lambda folder, described: described.get("model_type") in types
