"""Images for a request: several samples of one seed, or new halves of a given image.

One denoising chain for a request: its states, its result and its cost.

The model, the sampler and the sampling options of a request.
"""

import time
from collections.abc import Iterator
from itertools import chain as joined, zip_longest
from typing import Any, NamedTuple, TypeVar

from unnoise.apps.images import half
from unnoise.apps.studio.jobs import Message, Steps
from unnoise.apps.studio.models import NETWORK_CALLS, LoadedModel, Models, most_images
from unnoise.apps.studio.request import MOST_SEED, MOST_STEPS, BadRequest, RequestFields
from unnoise.data import Codec, Pixels
from unnoise.model.generate import Step, frames
from unnoise.model.model import Model
from unnoise.model.template import GAP, Template
from unnoise.process.state import FREE

MOST_GAPS = 32  # of a template

State = TypeVar("State")


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
    tokens = ids.index(codec.end) if codec.end in ids else len(ids)
    confidences = [step.confidences[i] for i in positions[: tokens + 1]]  # EOS is predicted too
    whole = codec.decode(ids).encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # invalid bytes become �
    return Piece(whole, new=True, confidence=round(sum(confidences) / max(1, len(confidences)), 6), tokens=tokens)


def state_message(step: Step, known: set[int]) -> Message:
    """Return a state as a message for the page; `shown` holds the texts of tokens that are not in `known`."""
    new = {token: text for token, text in zip(step.ids, step.tokens, strict=True) if token not in known}
    known.update(new)
    return {
        "t": round(step.t, 4),
        "ids": step.ids,
        "confidence": [round(100 * confidence) for confidence in step.confidences],
        "new": [i for i, fresh in enumerate(step.fresh) if fresh],
        "shown": new,
    }


STRONGEST_GUIDANCE = 10


def requested_model(models: Models, fields: RequestFields, default: str | None = None) -> LoadedModel:
    """Return the requested model, or the default."""
    return open_named(models, fields.text("model", default or models.default, 200))


def open_named(models: Models, name: str) -> LoadedModel:
    """Return the model of this name, or raise BadRequest."""
    if name not in models.names:
        there = ", ".join(models.names)
        raise BadRequest(
            f"There is no model {name[:40]!r} here; use one of: {there}.", status=404, param="model", code="model_not_found"
        )
    try:
        return models.open(name)
    except (ValueError, OSError, RuntimeError) as error:
        raise BadRequest(f"The model {name!r} cannot be opened: {error}.", 500, "model") from error


def requested_text_model(models: Models, fields: RequestFields, default: str | None = None) -> Model:
    """Return the requested model, or raise BadRequest if it is a model of images."""
    loaded = requested_model(models, fields, default)
    if isinstance(loaded.model.codec, Pixels):
        raise BadRequest(f"{loaded.name} is a model of images: it reads and writes no text.", param="model")
    return loaded.model


def sampling_options(model: Model, fields: RequestFields) -> dict[str, Any]:
    """Return the sampling options; the model's recommendations replace missing ones, and an empty label is none."""
    label = fields.choice("label", ["", *model.labels], "")
    options: dict[str, Any] = {
        "steps": fields.whole("steps", 1, MOST_STEPS) if fields.given("steps") else None,
        "sampler": requested_sampler(model, fields.text("sampler", "", 200)),
        "temperature": fields.number("temperature", 0, 2, default=1) if fields.given("temperature") else None,
        "top_p": fields.number("top_p", 0.01, 1, default=1) if fields.given("top_p") else None,
        "seed": fields.whole("seed", 0, MOST_SEED, default=0),
        "label": label or None,
        "guidance_scale": fields.number("guidance_scale", 0, STRONGEST_GUIDANCE, default=1) if label else 1.0,
    }
    fields.ignore("guidance_scale")
    return options


def requested_sampler(model: Model, name: str) -> str | None:
    """Return the name of a sampler ("remasking:rate=0.05") after checking it for the model; None if it is empty."""
    if not name:
        return None
    model.check_sampler(name)
    return name


def requested_samplers(model: Model, fields: RequestFields, most: int) -> list[str]:
    """Return the requested samplers without repetitions."""
    names = [requested_sampler(model, name) for name in fields.texts("samplers", most)]
    if not names:
        there = ", ".join(model.samplers)
        raise BadRequest(f"The field 'samplers' must name at least one of: {there}.", param="samplers")
    return list(dict.fromkeys(name for name in names if name))


def requested_chain(models: Models, fields: RequestFields) -> ChainRun:
    """Return the requested chain."""
    model = requested_text_model(models, fields)
    template = fields.text("template", "")
    length = fields.whole("length", 1, model.length, default=model.length)
    run = ChainRun(model, template, length, sampling_options(model, fields))
    fields.done()
    return run


HALVES = ("upper", "lower", "left", "right")


def image_states(model: Model, given: list[int], count: int, options: dict[str, Any], cost: Cost) -> Iterator[Message]:
    """Yield the states of some images of one seed and add up their cost. given: tokens that stay, FREE for all others."""
    chosen = model.sampling_options(options)
    template = Template([], [], given)
    for frame in cost.measure(frames(model, template, range(count), length=None, options=chosen, track_confidence=False)):
        yield {"t": round(frame.t, 4), "rows": frame.x.tolist()}


def images(models: Models, fields: RequestFields) -> Steps:
    """Yield every state of some images; with `ids` and `given`, one half of that image stays."""
    model, codec = requested_image_model(models, fields)
    count = fields.whole("images", 1, most_images(model), default=1)
    given, options, cost = _given(model, codec, fields), sampling_options(model, fields), Cost()
    fields.done()
    yield from image_states(model, given, count, options, cost)
    yield cost.message()


def compare_images(models: Models, fields: RequestFields, most: int) -> Steps:
    """Yield images of the same seed by several samplers, one after another."""
    model, _ = requested_image_model(models, fields)
    names = requested_samplers(model, fields, most)
    count = fields.whole("images", 1, most_images(model), default=1)
    options = sampling_options(model, fields)
    fields.done()
    for name in names:
        cost, state = Cost(), {}
        for state in image_states(model, [FREE] * model.length, count, options | {"sampler": name}, cost):
            yield {"sampler": name, **state}
        yield {"sampler": name, **state, **cost.message()}


def requested_image_model(models: Models, fields: RequestFields) -> tuple[Model, Pixels]:
    """Return the requested model of images and its codec."""
    loaded = requested_model(models, fields)
    codec = loaded.model.codec
    if not isinstance(codec, Pixels):
        raise BadRequest(f"{loaded.name} is a model of text: it draws no images.", param="model")
    return loaded.model, codec


def _given(model: Model, codec: Pixels, fields: RequestFields) -> list[int]:
    which = fields.choice("given", ["", *HALVES], "")
    if not which:
        return [FREE] * model.length
    ids = fields.wholes("ids", codec.vocab - 1, model.length)
    if len(ids) != model.length:
        raise BadRequest(
            f"The field 'ids' must have {model.length} entries, one for each value of an image, found {len(ids)}.", param="ids"
        )
    return [token if kept else FREE for token, kept in zip(ids, half(codec.shape, which).reshape(-1).tolist(), strict=True)]
