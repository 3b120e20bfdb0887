"""Images for a request: several samples of one seed, or new halves of a given image."""

from collections.abc import Iterator
from typing import Any

from unnoise.data import Pixels
from unnoise.data.pixels import half
from unnoise.model.generate import frames
from unnoise.model.model import Model
from unnoise.model.template import Template
from unnoise.process.state import FREE
from unnoise.studio.chain import Cost
from unnoise.studio.jobs import Message, Steps
from unnoise.studio.models import Models, most_images
from unnoise.studio.options import requested_model, requested_samplers, sampling_options
from unnoise.studio.request import BadRequest, RequestFields

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
