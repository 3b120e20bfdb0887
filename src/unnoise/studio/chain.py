"""One denoising chain for a request: its states, then what it wrote and what that cost."""

import time
from collections.abc import Iterator
from itertools import chain as joined, zip_longest
from typing import NamedTuple

from unnoise.data import Codec
from unnoise.model.generate import Step
from unnoise.model.model import Model
from unnoise.model.options import SamplingKeywords
from unnoise.model.template import GAP
from unnoise.studio.jobs import Message
from unnoise.studio.models import NETWORK_CALLS, LoadedModel, Models
from unnoise.studio.request import MOST_SEED, MOST_STEPS, BadRequest, RequestFields

MOST_GAPS = 32  # open gaps of a template
STRONGEST_GUIDANCE = 10


class Piece(NamedTuple):
    """A stretch of a result: what was given, or what came into a blank and how confident the network was of it on average."""

    text: str
    new: bool = False
    confidence: float = 1.0


class ChainRun:
    """Iterates over the states of a chain; then has its text and its cost."""

    def __init__(self, model: Model, template: str, length: int | None, options: SamplingKeywords):
        if template.count(GAP) > MOST_GAPS:
            raise BadRequest(f"A template may have {MOST_GAPS} gaps, found {template.count(GAP)}.")
        self.model, self.template, self.length, self.options = model, template, length, options
        self.calls, self.seconds = 0, 0.0
        self.last: Step | None = None

    def __iter__(self) -> Iterator[Step]:
        steps = self.model.chain(length=self.length, template=self.template or None, **self.options)
        while True:
            calls, start = NETWORK_CALLS.count, time.perf_counter()
            step = next(steps, None)
            self.calls += NETWORK_CALLS.count - calls
            self.seconds += time.perf_counter() - start
            if step is None:
                return
            self.last = step
            yield step

    def pieces(self) -> list[Piece]:
        """The result, with the raw text that was given in its place."""
        assert self.last is not None
        template = self.model.template(self.template or None, self.length)
        new = [_piece(self.model.codec, self.last, positions) for positions in template.filled(self.last.places)]
        return [piece for piece in joined(*zip_longest(map(Piece, template.pieces), new)) if piece is not None and piece.text]

    def text(self) -> str:
        """The result as one text."""
        return "".join(piece.text for piece in self.pieces())

    def cost(self) -> Message:
        """Network calls and seconds of work."""
        return {"calls": self.calls, "seconds": round(self.seconds, 3)}


def _piece(codec: Codec, step: Step, positions: list[int]) -> Piece:
    text = codec.decode([step.ids[i] for i in positions])
    whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # bytes that are no text
    return Piece(whole, True, round(sum(step.confidences[i] for i in positions) / max(1, len(positions)), 3))


def state_message(step: Step, known: set[int]) -> Message:
    """A state as the page reads it; `shown` explains the tokens that have not come up before."""
    new = {token: text for token, text in zip(step.ids, step.tokens, strict=True) if token not in known}
    known.update(new)
    return {
        "t": round(step.t, 4),
        "ids": step.ids,
        "confidence": [round(100 * confidence) for confidence in step.confidences],
        "new": [i for i, fresh in enumerate(step.fresh) if fresh],
        "shown": new,
    }


# ---- reading a request ---------------------------------------------------------------------------------------------------


def requested_model(models: Models, fields: RequestFields) -> LoadedModel:
    """The model a request names, or the default."""
    name = fields.text("model", models.default, 200)
    if name not in models.names:
        raise BadRequest(f"There is no model {name[:40]!r} here; there is {', '.join(models.names)}.", 404)
    try:
        return models.open(name)
    except ValueError as error:
        raise BadRequest(f"The model {name!r} cannot be opened: {error}.", 500) from error


def sampling_options(model: Model, fields: RequestFields) -> SamplingKeywords:
    """How to write; an empty sampler is the method's own, an empty label none."""
    label = fields.choice("label", ["", *model.labels], "")
    options: SamplingKeywords = {
        "steps": fields.whole("steps", 1, MOST_STEPS, 128),
        "sampler": requested_sampler(model, fields.text("sampler", "", 200)),
        "temperature": fields.number("temperature", 0, 2, 1),
        "top_p": fields.number("top_p", 0.01, 1, 1),
        "seed": fields.whole("seed", 0, MOST_SEED, 0),
        "label": label or None,
        "guidance": fields.number("guidance", 0, STRONGEST_GUIDANCE, 1) if label else 1.0,
    }
    fields.ignore("guidance")
    return options


def requested_sampler(model: Model, name: str) -> str | None:
    """A sampler by its name, perhaps with fields ("remasking:rate=0.05"), that serves the model; None for an empty name."""
    if not name:
        return None
    model.check_sampler(name)
    return name


def requested_chain(models: Models, fields: RequestFields) -> ChainRun:
    """The chain that a request describes."""
    model = requested_model(models, fields).model
    template = fields.text("template", "")
    length = fields.whole("length", 1, model.length, model.length)
    run = ChainRun(model, template, length, sampling_options(model, fields))
    fields.done()
    return run
