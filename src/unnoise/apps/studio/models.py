"""The models of a studio, by name; each is loaded on first use."""

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch.nn import Module

from unnoise.apps.plots.noise import NOISES, can_denoise_from
from unnoise.apps.spelling import FILE as WORD_LIST, can_correct
from unnoise.checkpoint.format import CONFIG
from unnoise.data import Pixels, codec_kind
from unnoise.method_table import method
from unnoise.model.model import Model
from unnoise.sampler import Sampler
from unnoise.sampler_table import named_sampler, sampler_fields, sampler_name

MOST_IMAGES = 16
MOST_PIXELS = 8_192  # of all images in one message


class NetworkCalls(threading.local):
    """Number of network calls in this thread."""

    count = 0


NETWORK_CALLS = NetworkCalls()


def _count_call(module: Module, inputs: Any) -> None:
    NETWORK_CALLS.count += 1


class LoadedModel:
    """A named model, shared by all threads."""

    def __init__(self, name: str, model: Model):
        self.name, self.model = name, model
        model.network.eval()
        model.network.register_forward_pre_hook(_count_call)

    def description(self) -> dict[str, Any]:
        """Return what the page needs to know."""
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
            "can_denoise_from": can_denoise_from(model),
            "noises": list(NOISES),
        }


def image_description(model: Model) -> dict[str, Any] | None:
    """Return the image shape of a model of images; token (row · width + column) · channels + channel is a level."""
    codec = model.codec
    if not isinstance(codec, Pixels):
        return None
    height, width = codec.shape[:2]
    shape = {"height": height, "width": width, "channels": codec.channels, "levels": codec.levels}
    return shape | {"most": most_images(model)}


def most_images(model: Model) -> int:
    """Return the maximum number of images in a batch, which bounds the size of a message."""
    return max(1, min(MOST_IMAGES, MOST_PIXELS // model.length))


def sampler_description(name: str) -> dict[str, Any]:
    """Return a sampler and its fields, each with its kind, value and help."""
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
            raise ValueError(
                "there is no model to open: train one, for example with `unnoise train mdlm --data sotu --minutes 3`"
            )
        self._loaded: dict[str, LoadedModel] = {}
        self._lock = threading.Lock()

    def _free_name(self, name: str) -> str:
        names = [name, *(f"{name}-{i}" for i in range(2, len(self._folders) + 2))]
        return next(free for free in names if free not in self._folders)

    @property
    def names(self) -> list[str]:
        """All names; the last is the default."""
        return list(self._folders)

    @property
    def default(self) -> str:
        """Name of the default model."""
        return self.names[-1]

    @property
    def text_names(self) -> list[str]:
        """Names of the text models, found without loading them."""
        return [name for name, folder in self._folders.items() if _config(folder).get("codec", {}).get("kind") != Pixels.kind]

    def list(self) -> list[dict[str, Any]]:
        """Return names, methods and whether a model is a text model, without loading any."""
        text = set(self.text_names)
        return [{"name": name, "method": _method_of(folder), "text": name in text} for name, folder in self._folders.items()]

    def open(self, name: str) -> LoadedModel:
        """Return the model of this name, and load it if necessary; raise ValueError if its folder is damaged."""
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
    """Return the content of config.json, or an empty dictionary if it is damaged."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}
