"""The models of a studio: known by name from the start, loaded when first asked for, and kept."""

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch.nn import Module

from unnoise.checkpoint.ours import CONFIG
from unnoise.data import Pixels, codec_kind
from unnoise.method_table import method
from unnoise.model.model import Model
from unnoise.model.noise import NOISES, comes_back
from unnoise.sampler import Sampler
from unnoise.sampler_table import named_sampler, sampler_fields, sampler_name
from unnoise.spelling import FILE as WORD_LIST, can_correct

MOST_IMAGES = 16
MOST_PIXELS = 8_192  # of the images in one message


class NetworkCalls(threading.local):
    """How often a network was called in this thread."""

    count = 0


NETWORK_CALLS = NetworkCalls()


def _count_call(module: Module, inputs: Any) -> None:
    NETWORK_CALLS.count += 1


class LoadedModel:
    """A model and what it can do. Nothing in it changes after loading, so threads may share it."""

    def __init__(self, name: str, model: Model):
        self.name, self.model = name, model
        model.network.eval()
        model.network.register_forward_pre_hook(_count_call)

    def description(self) -> dict[str, Any]:
        """What the page needs to know."""
        model = self.model
        return {
            "name": self.name,
            "method": model.method.name,
            "title": model.method.title,
            "paper": model.method.paper,
            "codec": codec_kind(model.codec),
            "vocab": model.codec.vocab,
            "length": model.length,
            "parameters": model.num_parameters,
            "variable_length": model.process.variable_length,
            "image": image_description(model),
            "labels": list(model.labels),
            "guidance": model.method.parameterization.takes_guidance,
            "samplers": [sampler_description(name) for name in model.samplers],
            "own_sampler": model.sampling.get("sampler") or model.own_sampler,
            "sampling": dict(model.sampling),
            "corrects": WORD_LIST in model.extra_files and can_correct(model.process),
            "comes_back": comes_back(model),
            "noises": list(NOISES),
        }


def image_description(model: Model) -> dict[str, Any] | None:
    """How tokens make an image, for a model of images: token (row · width + column) · channels + channel is a level."""
    codec = model.codec
    if not isinstance(codec, Pixels):
        return None
    height, width = codec.shape[:2]
    shape = {"height": height, "width": width, "channels": codec.channels, "levels": codec.levels}
    return shape | {"most": most_images(model)}


def most_images(model: Model) -> int:
    """How many images are drawn at once, so that a message stays small."""
    return max(1, min(MOST_IMAGES, MOST_PIXELS // model.length))


def sampler_description(name: str) -> dict[str, Any]:
    """A sampler with its fields, each with its kind, its value, and its help."""
    sampler = named_sampler(name)
    fields = [
        {
            "name": field.name,
            "kind": field.kind,
            "value": _plain(vars(sampler)[field.name]),
            "choices": list(field.choices),
            "optional": field.optional,
            "help": field.help,
        }
        for field in sampler_fields(type(sampler))
    ]
    return {"name": name, "distribution": sampler.distribution, "fields": fields}


def _plain(value: Any) -> Any:
    return sampler_name(value) if isinstance(value, Sampler) else value


class Models:
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
        self._loaded: dict[str, LoadedModel] = {}
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

    @property
    def text_names(self) -> list[str]:
        """The names of those that write text, without loading anything."""
        return [name for name, folder in self._folders.items() if _config(folder).get("codec", {}).get("kind") != Pixels.kind]

    def list(self) -> list[dict[str, Any]]:
        """Return names and methods, and whether they are models of text, without loading anything."""
        text = set(self.text_names)
        return [{"name": name, "method": _method_of(folder), "text": name in text} for name, folder in self._folders.items()]

    def open(self, name: str) -> LoadedModel:
        """The model of this name, loaded if it is not; ValueError if its folder is damaged."""
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = LoadedModel(name, Model.load(self._folders[name]).to(self.device))
            return self._loaded[name]


def _method_of(folder: Path) -> str:
    try:
        return method(_config(folder)["method"]).name
    except (ValueError, KeyError, TypeError):
        return "?"


def _config(folder: Path) -> dict[str, Any]:
    """What config.json holds, or nothing where it is damaged."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}
