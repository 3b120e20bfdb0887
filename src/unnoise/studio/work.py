"""What the studio does for a request: generators that read the fields, then work step by step and yield lines."""

import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain as joined, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch

from unnoise.data import Codec
from unnoise.method_table import SAMPLERS
from unnoise.model import Model, Step
from unnoise.plot import exponents
from unnoise.process import Masked
from unnoise.replay import write_replay
from unnoise.sampler.base import GridSampler
from unnoise.spelling import AROUND
from unnoise.studio.desk import Line, Work
from unnoise.studio.fields import SEED, STEPS, Fields, Refused
from unnoise.studio.shelf import CALLS, Shelf, Shelved
from unnoise.template import BLANKS, GAP, MASK

VARIANTS = 8
GAPS = 32  # open gaps of a template
PIECE = 240  # characters whose spelling is checked at once
POINTS = 101  # of a curve
TOKENS = 60  # whose exponents are shown


# ---- reading ------------------------------------------------------------------------------------------------------------


def opened(shelf: Shelf, fields: Fields) -> Shelved:
    """The model a request names, or the default."""
    name = fields.text("model", shelf.default, 200)
    if name not in shelf.names:
        raise Refused(f"There is no model {name[:40]!r} here; there is {', '.join(shelf.names)}.", 404)
    try:
        return shelf.open(name)
    except ValueError as error:
        raise Refused(f"The model {name!r} cannot be opened: {error}.", 500) from error


def writing(shelved: Shelved, fields: Fields) -> dict[str, Any]:
    """How to write, as `Model.chain` takes it; an empty sampler is the method's own."""
    return {
        "steps": fields.whole("steps", 1, STEPS, 128),
        "sampler": fields.choice("sampler", ["", *shelved.model.samplers], "") or None,
        "temperature": fields.number("temperature", 0, 2, 1),
        "top_p": fields.number("top_p", 0.01, 1, 1),
        "seed": fields.whole("seed", 0, SEED, 0),
    }


# ---- one chain ----------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A stretch of a result: what was given, or what came into a blank and how sure the network was of it on average."""

    text: str
    new: bool = False
    sure: float = 1.0


class Run:
    """One chain: its canvases, then what it wrote and what that cost."""

    def __init__(self, model: Model, template: str, length: int | None, how: dict[str, Any]):
        if template.count(GAP) > GAPS:
            raise Refused(f"A template may have {GAPS} gaps, found {template.count(GAP)}.")
        self.model, self.template, self.length, self.how = model, template, length, how
        self.calls, self.seconds = 0, 0.0
        self.last: Step | None = None

    def __iter__(self) -> Iterator[Step]:
        steps = self.model.chain(length=self.length, template=self.template or None, **self.how)
        while True:
            calls, start = CALLS.count, time.perf_counter()
            step = next(steps, None)
            self.calls += CALLS.count - calls
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

    def cost(self) -> Line:
        """Network calls and seconds of work."""
        return {"calls": self.calls, "seconds": round(self.seconds, 3)}


def _piece(codec: Codec, step: Step, positions: list[int]) -> Piece:
    text = codec.decode([step.ids[i] for i in positions])
    whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # bytes that are no text
    return Piece(whole, True, round(sum(step.confidences[i] for i in positions) / max(1, len(positions)), 3))


def canvas(step: Step, known: set[int]) -> Line:
    """A canvas as the page reads it; `shown` explains the tokens that have not come up before."""
    new = {token: text for token, text in zip(step.ids, step.tokens, strict=True) if token not in known}
    known.update(new)
    return {
        "t": round(step.t, 4),
        "ids": step.ids,
        "sure": [round(100 * confidence) for confidence in step.confidences],
        "new": [i for i, fresh in enumerate(step.fresh) if fresh],
        "shown": new,
    }


# ---- the views ----------------------------------------------------------------------------------------------------------


def _run(shelf: Shelf, fields: Fields) -> Run:
    shelved = opened(shelf, fields)
    template = fields.text("template", "")
    length = fields.whole("length", 1, shelved.model.length, shelved.model.length)
    run = Run(shelved.model, template, length, writing(shelved, fields))
    fields.done()
    return run


def chain(shelf: Shelf, fields: Fields) -> Work:
    """Every canvas of a chain, then its text."""
    run = _run(shelf, fields)
    known: set[int] = set()
    for step in run:
        yield canvas(step, known)
    yield {"text": run.text(), **run.cost()}


def replay(shelf: Shelf, fields: Fields) -> Work:
    """The same chain as a page that plays by itself."""
    run = _run(shelf, fields)
    steps = []
    for step in run:
        steps.append(step)
        yield None
    with tempfile.TemporaryDirectory() as folder:
        title = f"{run.model.method.name}: a text from noise, seed {run.how['seed']}"
        yield {"page": write_replay(Path(folder) / "replay.html", steps, title).read_text()}


def infill(shelf: Shelf, fields: Fields) -> Work:
    """Variants of a text with blanks, one after another; each has a seed of its own."""
    shelved = opened(shelf, fields)
    template = fields.text("template")
    count = fields.whole("variants", 1, VARIANTS, 3)
    how = writing(shelved, fields)
    fields.done()
    for i in range(count):
        run = Run(shelved.model, template, None, how | {"seed": how["seed"] + i})
        for step in run:
            yield {"variant": i, "draft": step.text}
        pieces = run.pieces()
        yield {"variant": i, "text": "".join(piece.text for piece in pieces), "pieces": [p._asdict() for p in pieces]}


def blank(shelf: Shelf, fields: Fields) -> Work:
    """The blanks that stand for a stretch of text: a mask for each of its tokens, or a gap where the model chooses."""
    model = opened(shelf, fields).model
    text = fields.text("text")
    fields.done()
    yield {"blank": GAP if model.process.variable else MASK * len(model.codec.encode(text))}


def candidates(shelf: Shelf, fields: Fields) -> Work:
    """What could stand at a position of a canvas; where noise is masking, that position is masked to be asked about."""
    model = opened(shelf, fields).model
    ids = fields.wholes("ids", model.process.states - 1, model.length)
    place = fields.whole("place", 0, model.length - 1)
    t = fields.number("t", 0, 1, 0)
    fields.done()
    if isinstance(model.process, Masked):
        ids[place : place + 1] = [model.process.mask] * (place < len(ids))
    yield {"candidates": [[token, round(p, 4)] for token, p in model.candidates(ids, place, t)]}


def correct(shelf: Shelf, fields: Fields) -> Work:
    """The edits of a text as they are found, piece by piece; each piece is read with the text around it."""
    model = opened(shelf, fields).model
    text = fields.text("text")
    strength = fields.number("strength", 0, 1, 0.5)
    keep = fields.texts("keep", 200)
    fields.done()
    covered = 0
    for start in range(0, max(1, len(text)), PIECE):
        first = max(0, start - AROUND)
        edits = model.correct(text[first : start + PIECE + 2 * AROUND], strength, keep).edits
        found = []
        for edit in edits:
            at = first + edit.start
            if covered <= at and start <= at < start + PIECE:
                covered = at + len(edit.before)
                found.append(asdict(edit) | {"start": at})
        yield {"edits": found, "read": min(len(text), start + PIECE)}


def schedule(shelf: Shelf, fields: Fields) -> Work:
    """The curves α(t), how many tokens come with each of so many steps, and the learned exponents."""
    model = opened(shelf, fields).model
    steps = fields.whole("steps", 1, STEPS, 64)
    fields.done()
    sampler = model.method.sampler(steps)
    times = sampler.times() if isinstance(sampler, GridSampler) else [1 - i / steps for i in range(steps)]
    ticks = torch.linspace(1e-4, 1, POINTS, dtype=torch.float64)
    curves = model.process.curves()
    read = {name: (lambda t, alpha=alpha: alpha(t).view(len(t), -1).mean(1)) for name, alpha in curves.items()}
    counts: list[float] = []
    if read:  # a step goes from one time to the next; the last one writes all that is left
        alpha = next(iter(read.values()))(torch.tensor(times[1:], dtype=torch.float64)) if steps > 1 else torch.zeros(0)
        levels = torch.cat([torch.zeros(1), alpha.cpu(), torch.ones(1)])
        counts = (model.length * levels.diff()).tolist()
    ranked = exponents(model)
    some = ranked if len(ranked) <= TOKENS else ranked[: TOKENS // 2] + ranked[-TOKENS // 2 :]
    yield {
        "t": ticks.tolist(),
        "curves": {name: alpha(ticks).tolist() for name, alpha in read.items()},
        "counts": counts,
        "length": model.length,
        "exponents": some,
        "tokens": len(ranked),
    }


def compare(shelf: Shelf, fields: Fields) -> Work:
    """The same task and seed for several samplers, one after another."""
    shelved = opened(shelf, fields)
    names = fields.choices("samplers", shelved.model.samplers)
    template = fields.text("template", "")
    length = fields.whole("length", 1, shelved.model.length, shelved.model.length)
    how = writing(shelved, fields)
    fields.done()
    for name in dict.fromkeys(names):
        run = Run(shelved.model, template, length, how | {"sampler": name})
        for step in run:
            yield {"sampler": name, "draft": step.text}
        yield {"sampler": name, "text": run.text(), "law": SAMPLERS[name].law, **run.cost()}


# ---- completions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """One completion: its text without the prompt, how many tokens it has, and whether it filled the room."""

    index: int
    text: str
    tokens: int
    finish_reason: str


def complete(shelf: Shelf, fields: Fields) -> Work:
    """The choices of a completion as they are ready: `Choice` as a line, with the tokens of the prompt."""
    for name in ("logprobs", "echo", "best_of", "logit_bias"):
        if fields.body.get(name):
            raise Refused(f"The field {name!r} is not served here.")
    shelved = opened(shelf, fields)
    codec = shelved.model.codec
    before, after = _prompt(fields), fields.text("suffix", "")
    if BLANKS.search(before + after):
        raise Refused(f"A prompt cannot hold {MASK} or {GAP}: what comes after the blank is the suffix.")
    given = len(codec.encode(before)) + len(codec.encode(after))
    room = shelved.model.length - given
    if room < 1:
        raise Refused(f"Prompt and suffix have {given} tokens, which leaves no room in this model's {shelved.model.length}.")
    most = fields.whole("max_tokens", 1, room, min(16, room))
    count = fields.whole("n", 1, VARIANTS, 1)
    seed = fields.whole("seed", 0, SEED, secrets.randbelow(2**31))
    fields.body.setdefault("steps", min(STEPS, max(16, most)))
    how = writing(shelved, fields)
    stops = _stops(fields)
    template = before + (GAP if shelved.model.process.variable else MASK * most) + after
    for i in range(count):
        run = Run(shelved.model, template, given + most, how | {"seed": seed + i})
        for _ in run:
            yield None
        text = "".join(piece.text for piece in run.pieces() if piece.new)
        tokens = len(codec.encode(text))
        cut = min([at for at in map(text.find, stops) if at >= 0], default=len(text))
        reason = "stop" if cut < len(text) or tokens < most else "length"
        yield asdict(Choice(i, text[:cut], tokens, reason)) | {"given": given, "model": shelved.name}


def _prompt(fields: Fields) -> str:
    prompt = fields.body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        fields.body["prompt"] = prompt[0]
    return fields.text("prompt", "")


def _stops(fields: Fields) -> list[str]:
    if isinstance(fields.body.get("stop"), str):
        fields.body["stop"] = [fields.body["stop"]]
    return [stop for stop in fields.texts("stop", 4) if stop]
