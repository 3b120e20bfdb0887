"""Requests in JSON: one table of fields with their types, bounds and defaults. Every mistake is one sentence."""

import asyncio
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from unnoise.apps.plots.noise import NOISES
from unnoise.apps.studio.jobs import BadRequest, Steps
from unnoise.apps.studio.models import Models, most_images
from unnoise.data import Pixels
from unnoise.model.model import Model

MOST_BYTES = 200_000  # largest request
SECONDS_TO_ARRIVE = 10.0
MOST_CHARACTERS = 20_000  # longest text
MOST_STEPS = 1024
MOST_SEED = 2**53 - 1  # largest exact integer in JavaScript
NAME = 200  # characters of a model, or of a sampler with its settings
INTERVALS = 40  # number of intervals in a path of noise
REQUIRED: Any = object()
HALVES = ("upper", "lower", "left", "right")


@dataclass(frozen=True)
class Field:
    """Type, default and bounds of a field.

    kind: type of the value, or of each entry of a list.
    default: value of a field that is missing or null. A field without a default is required.
    least, most: bounds of a number. A text has at most `most` characters.
    choices: the accepted texts, if there is a choice.
    count: maximum number of entries of a list; None if the field is not a list.
    alone: whether a value that is not a list stands for a list of one entry.
    """

    kind: type
    default: Any = REQUIRED
    least: float = 0
    most: float = MOST_CHARACTERS
    choices: Collection[str] = ()
    count: int | None = None
    alone: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return a value of this kind within its bounds, or raise BadRequest."""
        if self.kind is str:
            if not isinstance(value, str) or (self.choices and value not in self.choices):
                raise _mistake(name, f"one of {', '.join(self.choices)}" if self.choices else "a text", value)
            if len(value) > self.most:
                raise BadRequest(f"The field {name!r} may have {self.most} characters, found {len(value)}.", param=name)
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise BadRequest(f"The field {name!r} holds half a character (a lone surrogate).", param=name)
            return value
        if self.kind is bool:
            if not isinstance(value, bool):
                raise _mistake(name, "true or false", value)
            return value
        number = isinstance(value, int | float if self.kind is float else int) and not isinstance(value, bool)
        if not number or not self.least <= value <= self.most:
            what = "a whole number" if self.kind is int else "a number"
            raise _mistake(name, f"{what} from {self.least:.15g} to {self.most:.16g}", value)
        return self.kind(value)


FIELDS: dict[str, Field | Callable[[Model], Field]] = {
    "template": Field(str),
    "text": Field(str),
    "length": lambda model: Field(int, model.length, least=1, most=model.length),
    "variants": Field(int, 3, least=1, most=8),
    "images": lambda model: Field(int, 1, least=1, most=most_images(model)),
    "given": Field(str, "", choices=("", *HALVES)),
    "ids": lambda model: Field(int, most=_tokens(model) - 1, count=model.length),
    "place": lambda model: Field(int, most=model.length - 1),
    "t": Field(float, 0.0, most=1),
    "strength": Field(float, 0.5, most=1),
    "keep": Field(str, (), most=100, count=200),
    "noise": Field(str, "", choices=("", *NOISES)),
    "moment": Field(int, least=1, most=INTERVALS),
    "samplers": Field(str, (), most=100, count=20),
    "steps": Field(int, None, least=1, most=MOST_STEPS),
    "sampler": Field(str, "", most=NAME),
    "temperature": Field(float, None, most=2),
    "top_p": Field(float, None, least=0.01, most=1),
    "seed": Field(int, 0, most=MOST_SEED),
    "label": lambda model: Field(str, "", choices=("", *model.labels)),
    "guidance_scale": Field(float, 1.0, most=10),
}
SAMPLING = ("steps", "sampler", "temperature", "top_p", "seed", "label", "guidance_scale")


class RequestFields:
    """The fields of a JSON object. `done` refuses fields that have not been read."""

    def __init__(self, body: Any):
        if not isinstance(body, dict):
            raise BadRequest("The request must be a JSON object.")
        self.body: dict[str, Any] = body
        self._read: set[str] = set()

    def raw(self, name: str) -> Any:
        """Return the value of a field as it was sent, or None."""
        self._read.add(name)
        return self.body.get(name)

    def take(self, name: str, field: Field) -> Any:
        """Return the value of a field or its default, or raise BadRequest."""
        value = self.raw(name)
        if value is None:
            if field.default is REQUIRED:
                raise BadRequest(f"The field {name!r} is missing.", param=name)
            return field.default
        if field.count is None:
            return field.check(name, value)
        values = [value] if field.alone and not isinstance(value, list) else value
        if not isinstance(values, list) or len(values) > field.count:
            raise BadRequest(f"The field {name!r} must be a list of at most {field.count} entries.", param=name)
        return [field.check(name, one) for one in values]

    def of_model(self, model: Model, *names: str, **defaults: Any) -> dict[str, Any]:
        """Return fields of the table, by name. `defaults` replace the defaults of the table."""
        found = {}
        for name in (*names, *defaults):
            row = FIELDS[name]
            field = row if isinstance(row, Field) else row(model)
            found[name] = self.take(name, replace(field, default=defaults.get(name, field.default)))
        return found

    def sampling(self, model: Model, **defaults: Any) -> dict[str, Any]:
        """Return the sampling options; None stands for the recommendation of the model."""
        options = self.of_model(model, *SAMPLING) | self.of_model(model, **defaults)
        label, sampler = options["label"] or None, options["sampler"] or None
        if sampler:
            model.check_sampler(sampler)
        return options | {"label": label, "sampler": sampler, "guidance_scale": options["guidance_scale"] if label else 1.0}

    def done(self) -> None:
        """Raise BadRequest if there is a field that nobody has read, such as a misspelled one."""
        if unknown := sorted(self.body.keys() - self._read):
            raise BadRequest(f"The field {unknown[0][:40]!r} is unknown here.", param=unknown[0][:40])


def requested_model(models: Models, fields: RequestFields, default: str = "", is_image: bool | None = False) -> Model:
    """Return the requested model, or the default. is_image: whether it must be a model of images; None takes either."""
    name = fields.take("model", Field(str, default or models.default, most=NAME))
    model = models.open(name)
    if is_image is not None and is_image != isinstance(model.codec, Pixels):
        kind = "text: it draws no images" if is_image else "images: it reads and writes no text"
        raise BadRequest(f"{name} is a model of {kind}.", param="model")
    return model


def view(
    *names: str, sampling: bool = False, is_image: bool | None = False, **defaults: Any
) -> Callable[[Callable[..., Steps]], Callable[[Models, RequestFields], Steps]]:
    """Return a decorator that turns a generator with a model and these fields as arguments into a view of requests.

    sampling: whether the generator has an argument `options` for the sampling options.
    is_image: whether the model must be a model of images; None takes either.
    defaults: further fields, whose defaults replace those of the table.
    """

    def decorate(run: Callable[..., Steps]) -> Callable[[Models, RequestFields], Steps]:
        def steps(models: Models, fields: RequestFields) -> Steps:
            model = requested_model(models, fields, is_image=is_image)
            values = fields.of_model(model, *names, **defaults)
            if sampling:
                values["options"] = fields.sampling(model)
            fields.done()
            yield from run(model, **values)

        return steps

    return decorate


async def read_fields(request: Request) -> RequestFields:
    """Return the fields of a request, or raise BadRequest."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise BadRequest("The request must be JSON (content-type: application/json).", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS_TO_ARRIVE):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BYTES:
                    raise BadRequest(f"The request is larger than {MOST_BYTES} bytes.", 413)
        return RequestFields(json.loads(body))
    except TimeoutError as error:
        raise BadRequest("The request did not arrive in time.", 408) from error
    except (ValueError, RecursionError) as error:
        raise BadRequest("The request is not valid JSON.") from error


def _tokens(model: Model) -> int:
    """Return the number of different tokens that a request may give."""
    return model.codec.vocab if isinstance(model.codec, Pixels) else model.process.states


def _mistake(name: str, expected: str, value: Any) -> BadRequest:
    if isinstance(value, dict | list):
        shown = "an object" if isinstance(value, dict) else "a list"
    else:
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}…"
    return BadRequest(f"The field {name!r} must be {expected}, found {shown}.", param=name)
