"""Results in a JSON file that is written after each of them, so that an interrupted run can continue."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from unnoise.files import check_writable, read_bytes, write_atomically
from unnoise.model.model import Model

FORMAT = "unnoise-points-1"
LARGEST = 2**26  # largest size of the file in bytes


class Measured(Protocol):
    """Named tuple of plain values."""

    def _asdict(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=Measured)


def fingerprint(model: Model) -> str:
    """Return a hash of a model's method, codec, length and weights."""
    found = hashlib.sha256(json.dumps([model.method.name, model.codec.identity(), model.length]).encode())
    for name, value in sorted(model.weights().items()):
        found.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class SavedPoints(Generic[P]):
    """Results in a file, each with the settings that it depends on.

    path: file to read, if it exists, and to write.
    make: class of the results.
    shared: settings that all results depend on.
    """

    def __init__(self, path: Path, make: Callable[..., P], **shared: Any):
        check_writable(path, (".json",))
        self.path, self.make, self.shared = path, make, shared
        self.points: list[dict[str, Any]] = _read(path) if path.exists() else []
        self.found = 0  # results that were not computed again

    def get(self, measure: Callable[[], P], **about: Any) -> P:
        """Return the saved result of these settings, or compute and save it."""
        settings = json.loads(json.dumps(self.shared | about))
        for one in self.points:
            if one["settings"] == settings:
                self.found += 1
                return self.make(**one["point"])
        point = measure()
        self.points.append({"settings": settings, "point": point._asdict()})
        content = {"format": FORMAT, "points": self.points}
        write_atomically(self.path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        return point


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file, or raise ValueError, so that no other file is overwritten."""
    try:
        content = json.loads(read_bytes(path, LARGEST))
        if content["format"] != FORMAT or not all(one.keys() == {"settings", "point"} for one in content["points"]):
            raise KeyError("format")
        return content["points"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} exists and holds no measured points: choose another --out, or move it") from error
