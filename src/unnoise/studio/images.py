"""Images for a request: several at once as they emerge from noise, whole or in one half of an image that is given."""

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


class ImageRun:
    """Iterates over the states of some images, of one seed; then has their cost. given: tokens that stay, FREE elsewhere."""

    def __init__(self, model: Model, count: int, given: list[int], options: dict[str, Any]):
        self.model, self.count, self.given, self.options = model, count, given, options
        self.cost = Cost()

    def __iter__(self) -> Iterator[Message]:
        template = Template([], [], self.given)
        options = self.model.sampling_options(self.options)
        drawn = frames(self.model, template, range(self.count), None, options, track_confidence=False)
        for frame in self.cost.of(drawn):
            yield {"t": round(frame.t, 4), "rows": frame.x.tolist()}


def images(models: Models, fields: RequestFields) -> Steps:
    """Every state of some images; with `ids` and `given`, of an image of which that half is kept."""
    model, codec = requested_image_model(models, fields)
    count = fields.whole("images", 1, most_images(model), 1)
    run = ImageRun(model, count, _given(model, codec, fields), sampling_options(model, fields))
    fields.done()
    yield from run
    yield run.cost.message()


def compare_images(models: Models, fields: RequestFields, most: int) -> Steps:
    """The same seed for several samplers, one after another."""
    model, _ = requested_image_model(models, fields)
    names = requested_samplers(model, fields, most)
    count = fields.whole("images", 1, most_images(model), 1)
    options = sampling_options(model, fields)
    fields.done()
    for name in names:
        run = ImageRun(model, count, [FREE] * model.length, options | {"sampler": name})
        state: Message = {}
        for state in run:
            yield {"sampler": name, **state}
        yield {"sampler": name, **state, **run.cost.message()}


def requested_image_model(models: Models, fields: RequestFields) -> tuple[Model, Pixels]:
    """The model that a request names, if it is one of images, and its codec."""
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
        raise BadRequest(f"The field 'ids' must have {model.length} entries, an image's, found {len(ids)}.", param="ids")
    return [token if kept else FREE for token, kept in zip(ids, half(codec.shape, which).reshape(-1).tolist(), strict=True)]
