"""One denoising chain for a request: its states, its result and its cost."""

import time
from collections.abc import Iterator
from itertools import chain as joined, zip_longest
from typing import Any, NamedTuple, TypeVar

from unnoise.data import Codec
from unnoise.model.generate import Step
from unnoise.model.model import Model
from unnoise.model.template import GAP, Template
from unnoise.studio.jobs import Message
from unnoise.studio.models import NETWORK_CALLS
from unnoise.studio.request import BadRequest

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
