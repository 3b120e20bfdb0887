"""The views of the page: generators that parse a request and yield messages step by step.

The view of noise: a text along one path of noise, and the model's denoising from one of its times.

The view of models: texts by several models with the same seed and their recommended options.
"""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from unnoise.apps.filling.word_filling import Filling, check_only_words
from unnoise.apps.plots.chain import write_replay
from unnoise.apps.plots.noise import NOISES, NoisedText, NoisePath, denoise_from, model_path, noise_named
from unnoise.apps.plots.schedules import mean_curves
from unnoise.apps.spelling import correct as correct_text
from unnoise.apps.studio.chain import (
    ChainRun,
    Piece,
    compare_images,
    open_named,
    requested_chain,
    requested_model,
    requested_samplers,
    requested_text_model,
    sampling_options,
    state_message,
)
from unnoise.apps.studio.jobs import Message, Steps
from unnoise.apps.studio.models import Models
from unnoise.apps.studio.request import MOST_SEED, MOST_STEPS, BadRequest, RequestFields
from unnoise.cli.info_command import learned_exponents
from unnoise.data import Pixels
from unnoise.model.model import Model
from unnoise.model.sampling_options import SamplingOptions
from unnoise.model.template import GAP, MASK, WORD
from unnoise.process import Masked
from unnoise.sampler.sampler_base import GridSampler
from unnoise.sampler_table import named_sampler

MOST_VARIANTS = 8
MOST_WORDS = 8  # [WORD]s of a text
MOST_SAMPLERS = 20
SPELLING_PIECE = 480  # characters checked at once
SPELLING_CONTEXT = 96  # characters of context before them; twice as many after them
CURVE_POINTS = 101
MOST_EXPONENTS = 60  # tokens whose exponents are shown


def chain(models: Models, fields: RequestFields) -> Steps:
    """Yield every state of a chain, then its text."""
    run = requested_chain(models, fields)
    known: set[int] = set()
    for step in run:
        yield state_message(step, known)
    yield {"text": run.text(), **run.cost.message()}


def replay(models: Models, fields: RequestFields) -> Steps:
    """Yield the same chain as an animated HTML page."""
    run = requested_chain(models, fields)
    steps = []
    for step in run:
        steps.append(step)
        yield None
    with tempfile.TemporaryDirectory() as folder:
        title = f"{run.model.method.name}: a text from noise, seed {run.options.get('seed')}"
        yield {"page": write_replay(Path(folder) / "replay.html", steps, title).read_text(encoding="utf-8")}


def infill(models: Models, fields: RequestFields) -> Steps:
    """Yield variants of a text with blanks, each with its own seed."""
    model = requested_text_model(models, fields)
    template = fields.text("template")
    count = fields.whole("variants", 1, MOST_VARIANTS, default=3)
    options = sampling_options(model, fields)
    fields.done()
    if WORD in template:
        yield from fill_words(model, template, count, options)
        return
    for i in range(count):
        run = ChainRun(model, template, None, options | {"seed": options.get("seed", 0) + i})
        for step in run:
            yield {"variant": i, "draft": step.text}
        pieces = run.pieces()
        yield {"variant": i, "text": "".join(piece.text for piece in pieces), "pieces": [p._asdict() for p in pieces]}


def fill_words(model: Model, text: str, count: int, options: dict[str, Any]) -> Steps:
    """Yield the likeliest variants of a text with [WORD]s, and the probability of each word."""
    if text.count(WORD) > MOST_WORDS:
        raise BadRequest(f"A text may have {MOST_WORDS} marks {WORD}, found {text.count(WORD)}.", param="template")
    check_only_words(text)
    filling = Filling(model, text, options.get("label"), options.get("guidance_scale", 1.0))
    for _ in filling:
        yield None
    for i, (words, _) in enumerate(filling.ways(count)):
        pieces = [Piece(filling.pieces[0])]
        for word, here, given in zip(words, filling.candidates(count), filling.pieces[1:], strict=True):
            pieces += [Piece(word, new=True, confidence=round(dict(here).get(word, 0.0), 6), tokens=1), Piece(given)]
        shown = [piece._asdict() for piece in pieces if piece.text]
        yield {"variant": i, "text": filling.text(words), "pieces": shown}


def blank(models: Models, fields: RequestFields) -> Steps:
    """Yield the blanks for a selected text: a [MASK] for each token, or a [GAP] if the model chooses the length."""
    model = requested_text_model(models, fields)
    text = fields.text("text")
    fields.done()
    inside = f" {text.removeprefix(' ')}" if model.codec.prepends_space else text  # tokenized as after a blank
    yield {"blank": GAP if model.process.variable_length else MASK * len(model.codec.encode(inside))}


def candidates(models: Models, fields: RequestFields) -> Steps:
    """Yield the likeliest tokens at a position of a state; masked noise masks the position first."""
    model = requested_text_model(models, fields)
    ids = fields.wholes("ids", model.process.states - 1, model.length)
    place = fields.whole("place", 0, model.length - 1)
    t = fields.number("t", 0, 1, default=0)
    fields.done()
    if isinstance(model.process, Masked):
        ids[place : place + 1] = [model.process.mask] * (place < len(ids))
    yield {"candidates": [[token, round(p, 4)] for token, p in model.candidates(ids, place, t)]}


def correct(models: Models, fields: RequestFields) -> Steps:
    """Yield the corrections of a text piece by piece; each piece is checked with the text around it as context."""
    model = requested_text_model(models, fields)
    text = fields.text("text")
    strength = fields.number("strength", 0, 1, default=0.5)
    keep = fields.texts("keep", 200)
    fields.done()
    covered = 0
    for start in range(0, max(1, len(text)), SPELLING_PIECE):
        first, end = max(0, start - SPELLING_CONTEXT), start + SPELLING_PIECE
        found = []
        for edit in correct_text(model, text[first : end + 2 * SPELLING_CONTEXT], strength, keep).edits:
            at = first + edit.start
            if covered <= at and start <= at < end:
                covered = at + len(edit.before)
                found.append(asdict(edit) | {"start": at})
        yield {"edits": found, "read": min(len(text), end)}


def schedule(models: Models, fields: RequestFields) -> Steps:
    """Yield the curves α(t), the expected number of new tokens of each step, and the learned exponents."""
    model = requested_model(models, fields).model
    steps = fields.whole("steps", 1, MOST_STEPS, default=64)
    fields.done()
    sampler = model.method.sampler.with_nfe(steps)
    times = sampler.times() if isinstance(sampler, GridSampler) else [1 - i / steps for i in range(steps)]
    ticks = torch.linspace(1e-4, 1, CURVE_POINTS, dtype=torch.float64)
    means = mean_curves(model.process)
    counts: list[float] = []
    if means:  # the last step reveals all remaining tokens
        alpha = next(iter(means.values()))(torch.tensor(times[1:], dtype=torch.float64)) if steps > 1 else torch.zeros(0)
        levels = torch.cat([torch.zeros(1), alpha.cpu(), torch.ones(1)])
        counts = (model.length * levels.diff()).tolist()
    ranked = learned_exponents(model)
    half = MOST_EXPONENTS // 2
    yield {
        "t": ticks.tolist(),
        "curves": {name: alpha(ticks).tolist() for name, alpha in means.items()},
        "counts": counts,
        "length": model.length,
        "exponents": ranked if len(ranked) <= MOST_EXPONENTS else ranked[:half] + ranked[-half:],
        "tokens": len(ranked),
    }


def compare(models: Models, fields: RequestFields) -> Steps:
    """Yield samples of the same task and seed by several samplers, one after another."""
    model = requested_model(models, fields).model
    if isinstance(model.codec, Pixels):
        yield from compare_images(models, fields, MOST_SAMPLERS)
        return
    names = requested_samplers(model, fields, MOST_SAMPLERS)
    template = fields.text("template", "")
    length = fields.whole("length", 1, model.length, default=model.length)
    options = sampling_options(model, fields)
    fields.done()
    for name in names:
        run = ChainRun(model, template, length, options | {"sampler": name})
        for step in run:
            yield {"sampler": name, "draft": step.text}
        yield {"sampler": name, "text": run.text(), "distribution": named_sampler(name).distribution, **run.cost.message()}


INTERVALS = 40  # of a path


def noise(models: Models, fields: RequestFields) -> Steps:
    """Yield a text at the times 0, 1/40, …, 1 along one path of noise; an empty name is the model's own process."""
    model = requested_text_model(models, fields)
    path = _requested_path(model, fields, fields.choice("noise", ["", *NOISES], ""))
    fields.done()
    shown: dict[int, str] = {}
    yield {"states": [_state(one, shown) for one in path.texts()], "shown": shown}


def back(models: Models, fields: RequestFields) -> Steps:
    """Yield the states of denoising from one of these times, by its index, with the model's own process."""
    model = requested_text_model(models, fields)
    moment = fields.whole("moment", 1, INTERVALS)
    steps = fields.whole("steps", 1, MOST_STEPS, default=128)
    path = _requested_path(model, fields, "")
    fields.done()
    for noised in denoise_from(model, path, SamplingOptions(steps=steps, seed=path.seed), moment):
        shown: dict[int, str] = {}
        yield _state(noised, shown) | {"shown": shown}


def _requested_path(model: Model, fields: RequestFields, name: str) -> NoisePath:
    text = fields.text("text")
    seed = fields.whole("seed", 0, MOST_SEED, default=0)
    times = [i / INTERVALS for i in range(INTERVALS + 1)]
    if not name:
        return model_path(model, text, times, seed)
    tokens = model.codec.encode(text).tolist()
    if len(tokens) > model.length:
        raise BadRequest(
            f"The text may have {model.length} tokens, the length of the model, found {len(tokens)}.", param="text"
        )
    return NoisePath(noise_named(name, model.codec), model.codec, tokens, times, seed)


def _state(noised: NoisedText, shown: dict[int, str]) -> Message:
    """Return a text as a message for the page and add the texts of its tokens to `shown`."""
    shown.update(zip(noised.ids, noised.tokens, strict=True))
    return {"t": round(noised.t, 4), "ids": noised.ids}


MOST_MODELS = 12
LONGEST = 4096  # tokens; the length of a model is a further limit


def side_by_side(models: Models, fields: RequestFields) -> Steps:
    """Yield the states of a text by each of the named models, one model after another, then its text and cost."""
    names = list(dict.fromkeys(fields.texts("models", MOST_MODELS)))
    length = fields.whole("length", 1, LONGEST) if fields.given("length") else LONGEST
    seed = fields.whole("seed", 0, MOST_SEED, default=0)
    fields.ignore("model")  # the selected model of the page
    fields.done()
    if not names:
        raise BadRequest(f"The field 'models' must name at least one of: {', '.join(models.text_names)}.", param="models")
    opened = [open_named(models, name) for name in names]
    for one in opened:
        if isinstance(one.model.codec, Pixels):
            raise BadRequest(f"{one.name} is a model of images: choose models of text.", param="models")
    for one in opened:
        run = ChainRun(one.model, "", min(length, one.model.length), {"seed": seed})
        for step in run:
            yield {"name": one.name, "draft": step.text}
        yield {"name": one.name, "text": run.text(), "method": one.model.method.name, **run.cost.message()}
