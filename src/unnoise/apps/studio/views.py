"""The views of the page: each takes the fields of a request and yields messages step by step."""

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from unnoise.apps.filling.word_filling import Filling, check_only_words
from unnoise.apps.images import half
from unnoise.apps.plots.chain import write_replay
from unnoise.apps.plots.noise import NoisedText, NoisePath, denoise_from, model_path, noise_named
from unnoise.apps.plots.schedules import mean_curves
from unnoise.apps.spelling import correct as correct_text
from unnoise.apps.studio.jobs import BadRequest, Message, Steps
from unnoise.apps.studio.models import ChainRun, Cost, Models, Piece
from unnoise.apps.studio.request import INTERVALS, MOST_SEED, NAME, Field, RequestFields, requested_model, view
from unnoise.cli.info_command import learned_exponents
from unnoise.data import Pixels
from unnoise.model.generate import GAP, MASK, WORD, Step, Template, frames
from unnoise.model.model import Model
from unnoise.model.sampling_options import SamplingOptions
from unnoise.process import Masked
from unnoise.process.state import TO_FILL
from unnoise.sampler.sampler_base import GridSampler
from unnoise.sampler_table import named_sampler

MOST_WORDS = 8  # [WORD]s of a text
MOST_MODELS = 12
LONGEST = 4096  # tokens of a text by several models; the length of each model is a further limit
SPELLING_PIECE = 480  # characters checked at once
SPELLING_CONTEXT = 96  # characters of context before them; twice as many after them
CURVE_POINTS = 101
MOST_EXPONENTS = 60  # tokens whose exponents are shown

# ---- chains of texts -----------------------------------------------------------------------------------------------------


@view("length", sampling=True, template="")
def chain(model: Model, length: int, template: str, options: dict[str, Any]) -> Steps:
    """Yield every state of a chain, then its text."""
    run = ChainRun(model, template, length, options)
    known: set[int] = set()
    for step in run:
        yield _state_message(step, known)
    yield {"text": run.text(), **run.cost.message()}


@view("length", sampling=True, template="")
def replay(model: Model, length: int, template: str, options: dict[str, Any]) -> Steps:
    """Yield a chain as an animated HTML page."""
    steps = []
    for step in ChainRun(model, template, length, options):
        steps.append(step)
        yield None
    with tempfile.TemporaryDirectory() as folder:
        title = f"{model.method.name}: a text from noise, seed {options['seed']}"
        yield {"page": write_replay(Path(folder) / "replay.html", steps, title).read_text(encoding="utf-8")}


@view("template", "variants", sampling=True)
def infill(model: Model, template: str, variants: int, options: dict[str, Any]) -> Steps:
    """Yield variants of a text with blanks, each with its own seed."""
    if WORD in template:
        yield from _fill_words(model, template, variants, options)
        return
    for i in range(variants):
        run = ChainRun(model, template, None, options | {"seed": options["seed"] + i})
        for step in run:
            yield {"variant": i, "draft": step.text}
        pieces = run.pieces()
        yield {"variant": i, "text": "".join(piece.text for piece in pieces), "pieces": [p._asdict() for p in pieces]}


def _fill_words(model: Model, text: str, count: int, options: dict[str, Any]) -> Steps:
    """Yield the most probable variants of a text with [WORD]s, and the probability of each word."""
    if text.count(WORD) > MOST_WORDS:
        raise BadRequest(f"A text may have {MOST_WORDS} marks {WORD}, found {text.count(WORD)}.", param="template")
    check_only_words(text)
    filling = Filling(model, text, options["label"], options["guidance_scale"])
    for _ in filling:
        yield None
    for i, (words, _) in enumerate(filling.ways(count)):
        pieces = [Piece(filling.pieces[0])]
        for word, here, given in zip(words, filling.candidates(count), filling.pieces[1:], strict=True):
            pieces += [Piece(word, new=True, confidence=round(dict(here).get(word, 0.0), 6), tokens=1), Piece(given)]
        shown = [piece._asdict() for piece in pieces if piece.text]
        yield {"variant": i, "text": filling.text(words), "pieces": shown}


@view("text")
def blank(model: Model, text: str) -> Steps:
    """Yield the blanks for a selected text: a [MASK] for each token, or a [GAP] if the model chooses the length."""
    inside = f" {text.removeprefix(' ')}" if model.codec.prepends_space else text  # tokenized as after a blank
    yield {"blank": GAP if model.process.variable_length else MASK * len(model.codec.encode(inside))}


@view("ids", "place", "t")
def candidates(model: Model, ids: list[int], place: int, t: float) -> Steps:
    """Yield the most probable tokens at a position of a state. For masked noise the position is masked first."""
    if isinstance(model.process, Masked):
        ids[place : place + 1] = [model.process.mask] * (place < len(ids))
    yield {"candidates": [[token, round(p, 4)] for token, p in model.candidates(ids, place, t)]}


def side_by_side(models: Models, fields: RequestFields) -> Steps:
    """Yield the states of a text by each of the named models, then its text and cost. All have the same seed."""
    names = list(dict.fromkeys(fields.take("models", Field(str, (), most=100, count=MOST_MODELS))))
    length = fields.take("length", Field(int, LONGEST, least=1, most=LONGEST))
    seed = fields.take("seed", Field(int, 0, most=MOST_SEED))
    fields.take("model", Field(str, "", most=NAME))  # the selected model of the page
    fields.done()
    if not names:
        raise BadRequest(f"The field 'models' must name at least one of: {', '.join(models.text_names)}.", param="models")
    opened = {name: models.open(name) for name in names}
    for name, model in opened.items():
        if isinstance(model.codec, Pixels):
            raise BadRequest(f"{name} is a model of images: choose models of text.", param="models")
    for name, model in opened.items():
        run = ChainRun(model, "", min(length, model.length), {"seed": seed})
        for step in run:
            yield {"name": name, "draft": step.text}
        yield {"name": name, "text": run.text(), "method": model.method.name, **run.cost.message()}


def compare(models: Models, fields: RequestFields) -> Steps:
    """Yield samples of the same task and seed by several samplers, one after another."""
    of_images = isinstance(requested_model(models, fields, is_image=None).codec, Pixels)
    yield from (_compare_images if of_images else _compare_texts)(models, fields)


@view("samplers", "length", sampling=True, template="")
def _compare_texts(model: Model, samplers: list[str], length: int, template: str, options: dict[str, Any]) -> Steps:
    for name in _checked_samplers(model, samplers):
        run = ChainRun(model, template, length, options | {"sampler": name})
        for step in run:
            yield {"sampler": name, "draft": step.text}
        yield {"sampler": name, "text": run.text(), "distribution": named_sampler(name).distribution, **run.cost.message()}


def _checked_samplers(model: Model, names: list[str]) -> list[str]:
    """Return the samplers without repetitions, or raise an error if one does not fit the model."""
    if not any(names):
        raise BadRequest(f"The field 'samplers' must name at least one of: {', '.join(model.samplers)}.", param="samplers")
    found = [name for name in dict.fromkeys(names) if name]
    for name in found:
        model.check_sampler(name)
    return found


def _state_message(step: Step, known: set[int]) -> Message:
    """Return a state as a message; `shown` holds the texts of tokens that are not in `known`."""
    new = {token: text for token, text in zip(step.ids, step.tokens, strict=True) if token not in known}
    known.update(new)
    return {
        "t": round(step.t, 4),
        "ids": step.ids,
        "confidence": [round(100 * confidence) for confidence in step.confidences],
        "new": [i for i, fresh in enumerate(step.fresh) if fresh],
        "shown": new,
    }


# ---- images --------------------------------------------------------------------------------------------------------------


def images(models: Models, fields: RequestFields) -> Steps:
    """Yield every state of some images of one seed; with `ids` and `given`, one half of that image stays."""
    model = requested_model(models, fields, is_image=True)
    assert isinstance(model.codec, Pixels)
    task = fields.of_model(model, "images", "given")
    tokens = [TO_FILL] * model.length
    if task["given"]:
        ids = fields.of_model(model, "ids")["ids"]
        if len(ids) != model.length:
            raise BadRequest(
                f"The field 'ids' must have {model.length} entries, one for each value, found {len(ids)}.", param="ids"
            )
        known = half(model.codec.shape, task["given"]).reshape(-1).tolist()
        tokens = [token if kept else TO_FILL for token, kept in zip(ids, known, strict=True)]
    options, cost = fields.sampling(model), Cost()
    fields.done()
    yield from _image_states(model, tokens, task["images"], options, cost)
    yield cost.message()


@view("samplers", "images", sampling=True, is_image=True)
def _compare_images(model: Model, samplers: list[str], images: int, options: dict[str, Any]) -> Steps:
    for name in _checked_samplers(model, samplers):
        cost, state = Cost(), {}
        for state in _image_states(model, [TO_FILL] * model.length, images, options | {"sampler": name}, cost):
            yield {"sampler": name, **state}
        yield {"sampler": name, **state, **cost.message()}


def _image_states(model: Model, given: list[int], count: int, options: dict[str, Any], cost: Cost) -> Iterator[Message]:
    """Yield the states of some images and add up their cost. given: tokens that stay, TO_FILL for all others."""
    chosen = model.sampling_options(options)
    states = frames(model, Template([], [], given), range(count), length=None, options=chosen, track_confidence=False)
    for frame in cost.measure(states):
        yield {"t": round(frame.t, 4), "rows": frame.x.tolist()}


# ---- spelling, noise and schedule ----------------------------------------------------------------------------------------


@view("text", "strength", "keep")
def correct(model: Model, text: str, strength: float, keep: list[str]) -> Steps:
    """Yield the corrections of a text piece by piece; each piece is checked with the text around it as context."""
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


@view("text", "noise", "seed")
def noise(model: Model, text: str, noise: str, seed: int) -> Steps:
    """Yield a text at the times 0, 1/40, …, 1 along one path of noise; an empty name is the model's own process."""
    times = [i / INTERVALS for i in range(INTERVALS + 1)]
    if noise:
        tokens = model.codec.encode(text).tolist()
        if len(tokens) > model.length:
            raise BadRequest(f"The text may have {model.length} tokens, found {len(tokens)}.", param="text")
        path = NoisePath(noise_named(noise, model.codec), model.codec, tokens, times, seed)
    else:
        path = model_path(model, text, times, seed)
    shown: dict[int, str] = {}
    yield {"states": [_noised_message(one, shown) for one in path.texts()], "shown": shown}


@view("text", "seed", "moment", steps=128)
def back(model: Model, text: str, seed: int, moment: int, steps: int) -> Steps:
    """Yield the states of denoising from one of these times, by its index, with the model's own process."""
    path = model_path(model, text, [i / INTERVALS for i in range(INTERVALS + 1)], seed)
    for noised in denoise_from(model, path, SamplingOptions(steps=steps, seed=seed), moment):
        shown: dict[int, str] = {}
        yield _noised_message(noised, shown) | {"shown": shown}


def _noised_message(noised: NoisedText, shown: dict[int, str]) -> Message:
    """Return a text as a message and add the texts of its tokens to `shown`."""
    shown.update(zip(noised.ids, noised.tokens, strict=True))
    return {"t": round(noised.t, 4), "ids": noised.ids}


@view(is_image=None, steps=64)
def schedule(model: Model, steps: int) -> Steps:
    """Yield the curves α(t), the expected number of new tokens of each step, and the learned exponents."""
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
