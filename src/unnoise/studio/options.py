"""The model, the sampler and the sampling options of a request."""

from typing import Any

from unnoise.data import Pixels
from unnoise.model.model import Model
from unnoise.studio.chain import ChainRun
from unnoise.studio.models import LoadedModel, Models
from unnoise.studio.request import MOST_SEED, MOST_STEPS, BadRequest, RequestFields

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
        "guidance": fields.number("guidance", 0, STRONGEST_GUIDANCE, default=1) if label else 1.0,
    }
    fields.ignore("guidance")
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
