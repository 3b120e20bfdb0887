"""The models of a studio, each loaded on first use, and denoising chains with their text and cost."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain as joined, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch.nn import Module

from unnoise.apps.plots.noise import NOISES, can_denoise_from
from unnoise.apps.spelling.words import FILE as WORD_LIST, can_correct
from unnoise.apps.studio.jobs import BadRequest, Message
from unnoise.checkpoint.format import CONFIG
from unnoise.data import Codec, Pixels, codec_kind
from unnoise.method_table import method
from unnoise.model.generate import GAP, Step, Template
from unnoise.model.model import Model
from unnoise.sampler import Sampler
from unnoise.sampler_table import named_sampler, sampler_fields, sampler_name

MOST_IMAGES = 16
MOST_PIXELS = 8_192  # largest number of pixels in one message
MOST_GAPS = 32  # largest number of gaps in a template

State = TypeVar("State")


class NetworkCalls(threading.local):
    """Number of network calls in this thread."""

    count = 0


NETWORK_CALLS = NetworkCalls()


def _count_call(module: Module, inputs: Any) -> None:
    NETWORK_CALLS.count += 1


def description(name: str, model: Model) -> dict[str, Any]:
    """Return the properties of a model that the page needs."""
    return {
        "name": name,
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
    values = {key: sampler_name(value) if isinstance(value, Sampler) else value for key, value in vars(sampler).items()}
    fields = [
        {key: value for key, value in vars(field).items() if key != "default"} | {"value": values[field.name]}
        for field in sampler_fields(type(sampler))
    ]
    return {"name": name, "distribution": sampler.distribution, "fields": fields}


class Models:
    """Models by name."""

    def __init__(self, folders: Iterable[str | Path], device: str = "cpu"):
        self.device = device
        self._folders: dict[str, Path] = {}
        for folder in map(Path, folders):
            if not (folder / CONFIG).is_file():
                raise ValueError(f"{folder} holds no model: {CONFIG} is missing")
            name = folder.resolve().name
            names = [name, *(f"{name}-{i}" for i in range(2, len(self._folders) + 2))]
            self._folders[next(free for free in names if free not in self._folders)] = folder
        if not self._folders:
            raise ValueError(
                "there is no model to open: train one, for example with `unnoise train mdlm --data sotu --minutes 3`"
            )
        self._loaded: dict[str, Model] = {}
        self._lock = threading.Lock()

    @property
    def default(self) -> str:
        """Name of the default model, the last one."""
        return list(self._folders)[-1]

    @property
    def text_names(self) -> list[str]:
        """Names of the text models, found without loading them."""
        return [name for name, folder in self._folders.items() if _config(folder).get("codec", {}).get("kind") != Pixels.kind]

    def list(self) -> list[dict[str, Any]]:
        """Return names, methods and whether a model is a text model, without loading any."""
        text = set(self.text_names)
        return [{"name": name, "method": _method_of(folder), "text": name in text} for name, folder in self._folders.items()]

    def open(self, name: str) -> Model:
        """Return the model of this name, loaded if necessary, or raise BadRequest. All threads share the model."""
        if name not in self._folders:
            raise unknown_model(name, f"here; use one of: {', '.join(self._folders)}")
        with self._lock:
            if name not in self._loaded:
                try:
                    model = Model.load(self._folders[name]).to(self.device)
                except (ValueError, OSError, RuntimeError) as error:
                    raise BadRequest(f"The model {name!r} cannot be opened: {error}.", 500, "model") from error
                model.network.eval()
                model.network.register_forward_pre_hook(_count_call)
                self._loaded[name] = model
            return self._loaded[name]


def unknown_model(name: str, where: str) -> BadRequest:
    """Return the error for a name that no model has."""
    return BadRequest(f"There is no model {name[:40]!r} {where}.", status=404, param="model", code="model_not_found")


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


class Piece(NamedTuple):
    """A part of a result: given text, or a filled blank with its number of tokens and their mean confidence."""

    text: str
    new: bool = False
    confidence: float = 1.0
    tokens: int = 0


class Cost:
    """Network calls and seconds of computation."""

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    def measure(self, states: Iterator[State]) -> Iterator[State]:
        """Yield the same states and add up the cost of each."""
        while True:
            calls, start = NETWORK_CALLS.count, time.perf_counter()
            state = next(states, None)
            self.calls += NETWORK_CALLS.count - calls
            self.seconds += time.perf_counter() - start
            if state is None:
                return
            yield state

    def message(self) -> Message:
        """Return the cost as a message for the page."""
        return {"calls": self.calls, "seconds": round(self.seconds, 3)}


class ChainRun:
    """Iterates over the states of a chain, then has its text and its cost. row: index among the samples of one seed."""

    def __init__(self, model: Model, template: str, length: int | None, options: dict[str, Any], row: int = 0):
        if template.count(GAP) > MOST_GAPS:
            raise BadRequest(f"A template may have {MOST_GAPS} gaps, found {template.count(GAP)}.", param="template")
        self.model, self.template, self.length, self.options, self.row = model, template, length, options, row
        self.cost = Cost()
        self.last: Step | None = None

    def __iter__(self) -> Iterator[Step]:
        steps = self.model.chain(length=self.length, template=self.template or None, row=self.row, **self.options)
        for step in self.cost.measure(steps):
            self.last = step
            yield step

    def written(self) -> list[Piece]:
        """Return the filled runs of blanks."""
        assert self.last is not None
        template = self._template()
        found = [_piece(self.model.codec, self.last, positions) for positions in template.filled(self.last.places)]
        texts = template.between_pieces([piece.text for piece in found])
        return [piece._replace(text=text) for piece, text in zip(found, texts, strict=True)]

    def pieces(self) -> list[Piece]:
        """Return the result, including the given text."""
        both = zip_longest(map(Piece, self._template().pieces), self.written())
        return [piece for piece in joined(*both) if piece is not None and piece.text]

    def text(self) -> str:
        """Return the result as one text."""
        return "".join(piece.text for piece in self.pieces())

    def _template(self) -> Template:
        return self.model.template(self.template or None, self.length)


def _piece(codec: Codec, step: Step, positions: list[int]) -> Piece:
    ids = [step.ids[i] for i in positions]
    tokens = ids.index(codec.eos) if codec.eos in ids else len(ids)
    confidences = [step.confidences[i] for i in positions[: tokens + 1]]  # EOS is predicted too
    whole = codec.decode(ids).encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # invalid bytes become �
    return Piece(whole, new=True, confidence=round(sum(confidences) / max(1, len(confidences)), 6), tokens=tokens)
