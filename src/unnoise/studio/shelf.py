"""The models of a studio: known by name from the start, loaded when first asked for, and kept."""

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch.nn import Module

from unnoise.method_table import SAMPLERS, method
from unnoise.model import CONFIG, Model
from unnoise.process import Masked, Uniform


class Calls(threading.local):
    """How often a network was called in this thread."""

    count = 0


CALLS = Calls()


def _count(module: Module, inputs: Any) -> None:
    CALLS.count += 1


class Shelved:
    """A loaded model and what it can do. Nothing in it changes after loading, so threads may share it."""

    def __init__(self, name: str, model: Model):
        self.name, self.model = name, model
        model.network.eval()
        model.network.head.register_forward_pre_hook(_count)  # every call of the network ends in its head, once

    def about(self) -> dict[str, Any]:
        """What the page needs to know."""
        model = self.model
        return {
            "name": self.name,
            "method": model.method.name,
            "title": model.method.title,
            "paper": model.method.paper,
            "codec": model.codec.kind,
            "vocab": model.codec.vocab,
            "length": model.length,
            "parameters": model.parameters,
            "variable": model.process.variable,
            "samplers": [{"name": name, "law": SAMPLERS[name].law} for name in model.samplers],
            "own": model.own_sampler,
            "corrects": model.words is not None and isinstance(model.process, Masked | Uniform),
        }


class Shelf:
    """Models by name."""

    def __init__(self, folders: Iterable[str | Path], device: str = "cpu"):
        self.device = device
        self._folders: dict[str, Path] = {}
        for folder in map(Path, folders):
            if not (folder / CONFIG).is_file():
                raise ValueError(f"{folder} holds no model: {CONFIG} is missing")
            self._folders[self._free_name(folder.resolve().name)] = folder
        if not self._folders:
            raise ValueError("there is no model to open: train one with `unnoise train mdlm --data sotu --minutes 3`")
        self._open: dict[str, Shelved] = {}
        self._lock = threading.Lock()

    def _free_name(self, name: str) -> str:
        names = [name, *(f"{name}-{i}" for i in range(2, len(self._folders) + 2))]
        return next(free for free in names if free not in self._folders)

    @property
    def names(self) -> list[str]:
        """All names, the default last."""
        return list(self._folders)

    @property
    def default(self) -> str:
        """The model that is meant where none is named."""
        return self.names[-1]

    def listed(self) -> list[dict[str, str]]:
        """Names and methods, without loading anything."""
        return [{"name": name, "method": _method_of(folder)} for name, folder in self._folders.items()]

    def open(self, name: str) -> Shelved:
        """The model of this name, loaded if it is not; ValueError if its folder is damaged."""
        with self._lock:
            if name not in self._open:
                self._open[name] = Shelved(name, Model.load(self._folders[name]).to(self.device))
            return self._open[name]


def _method_of(folder: Path) -> str:
    try:
        return method(json.loads((folder / CONFIG).read_text())["method"]).name
    except (ValueError, KeyError, TypeError, OSError):
        return "?"
