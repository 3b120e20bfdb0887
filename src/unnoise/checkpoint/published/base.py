"""A model that was trained elsewhere, put into our words: what every reader of a published layout returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.data.codec import Codec


@dataclass(frozen=True)
class Published:
    """A model by the names of its parts.

    method: with its options ("bd3lm:block=4"). network: a registered name. config: of the network. weights: by the network's
    names, perhaps memory-mapped. length: of the longest text. labels: names of classes. notes: what there is to know of it.
    """

    method: str
    network: str
    config: dict[str, Any]
    weights: dict[str, Tensor]
    codec: Codec
    length: int
    labels: Sequence[str] = ()
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reader:
    """How a layout is known, and read.

    recognises: (path of a folder or file, what its config.json holds or {}) → whether it is this layout, opening nothing else.
    read: the same → the model, or ValueError in one sentence.
    """

    name: str
    recognises: Callable[[Path, dict[str, Any]], bool]
    read: Callable[[Path, dict[str, Any]], Published]
