"""Writing with a model: from a template and options to texts, or to every state on the way."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from unnoise import distributed
from unnoise.data import Pixels
from unnoise.denoiser import predict_clean
from unnoise.distributed import rows_at_once
from unnoise.model.sampling_options import SamplingOptions
from unnoise.model.template import Template
from unnoise.process.process_base import Process
from unnoise.process.state import LATEST
from unnoise.sampler import Frame, sample_frames

if TYPE_CHECKING:
    from unnoise.model.model import Model

T = TypeVar("T")
ROWS = 64  # texts that are drawn together, at most
MOST_SAMPLES = 1_000_000  # that are kept in memory


class Step(NamedTuple):
    """One moment of a chain: the time, the text with masks shown as ·, and for each token of it a confidence, how it is
    shown, whether it is new, its number, and which entry of the template it belongs to; and how many tokens at the beginning
    will not change any more."""

    t: float
    text: str
    confidences: list[float]
    tokens: list[str]
    fresh: list[bool]
    ids: list[int]
    places: list[int]
    settled: int = 0


OnStep = Callable[[Step], None]


def frames(
    model: "Model",
    template: Template,
    rows: range,
    length: int | None,
    options: SamplingOptions,
    track_confidence: bool = True,
) -> Iterator[Frame]:
    """Every state of the texts of these numbers, from noise to data."""
    sampler = options.resolve(model.method.sampler)
    model.check_sampler(sampler)
    given = torch.tensor([template.given]).expand(len(rows), -1).contiguous()
    model.network.eval()
    return sample_frames(
        model.process,
        model.denoiser.condition(model.label_number(options.label), options.guidance_scale),
        batch=len(rows),
        length=_longest(model, template, length),
        sampler=sampler,
        given=given,
        seed=options.seed,
        first_row=rows.start,
        time_free=model.method.time_free,
        independent_rows=True,
        track_confidence=track_confidence,
    )


def _longest(model: "Model", template: Template, length: int | None) -> int:
    return (length or model.length) if model.process.variable_length else len(template.given)


def finished(
    model: "Model",
    template: Template,
    n: int,
    length: int | None,
    options: SamplingOptions,
    results: Callable[[Frame], list[T]],
    on_step: OnStep | None = None,
) -> list[T]:
    """What `results` makes of the ends of n texts, some of them together and shared out over the processes, in their order.

    on_step gets every state of the first on the way.
    """
    if n < 1:
        raise ValueError(f"the number of samples must be ≥ 1, found {n}")
    if n > MOST_SAMPLES:
        raise ValueError(f"at most {MOST_SAMPLES} samples can be drawn at once, found {n}")
    tokens = options.resolve(model.method.sampler).tokens_read(_longest(model, template, length))
    at_once = rows_at_once(tokens, ROWS, model.device)

    def some(number: int) -> list[T]:
        rows = range(n)[number * at_once : (number + 1) * at_once]
        watched = on_step if number == 0 else None
        before, frame = None, None
        for frame in frames(model, template, rows, length, options, watched is not None):
            if watched is not None:
                watched(shown_step(model, frame, before))
                before = frame
        assert frame is not None
        return results(frame)

    return [one for part in distributed.map_ranks(-(-n // at_once), some) for one in part]


def write(
    model: "Model", template: Template, n: int, length: int | None, options: SamplingOptions, on_step: OnStep | None = None
) -> list[str]:
    """n texts, with the raw text that was given put back in its place."""

    return finished(model, template, n, length, options, lambda last: woven(model, template, last), on_step)


def woven(model: "Model", template: Template, last: Frame) -> list[str]:
    """The texts of a frame, with the raw text that was given put back in its place."""
    found = []
    for row, places in zip(last.x.tolist(), template_places(last).tolist(), strict=True):
        spans = template.filled(places)
        filled = [model.codec.decode_after(row[: span[0]] if span else [], [row[i] for i in span]) for span in spans]
        found.append(template.woven(filled))
    return found


def paint(
    model: "Model", codec: Pixels, template: Template, n: int, options: SamplingOptions, on_step: OnStep | None = None
) -> list[np.ndarray]:
    """n images [H, W(, C)] uint8."""

    def images(last: Frame) -> list[np.ndarray]:
        return [codec.decode_image(row) for row in last.x.cpu().numpy()]

    return finished(model, template, n, None, options, images, on_step)


def shown_step(model: "Model", frame: Frame, before: Frame | None) -> Step:
    """The first text of a frame as it is shown."""
    fresh = frame.fresh
    if fresh is None:
        fresh = torch.zeros_like(frame.x, dtype=torch.bool) if before is None else frame.x != before.x
    real = frame.x[0] >= 0
    ids, confidences, new, places = (
        values[0][real].tolist() for values in (frame.x, frame.confidence, fresh, template_places(frame).to(real.device))
    )
    tokens = model.codec.show_states(ids)
    settled = frame.settled if frame.t else len(ids)
    return Step(frame.t, "".join(tokens), confidences, tokens, new, ids, places, settled)


def stream(model: "Model", template: Template, row: int, length: int | None, options: SamplingOptions) -> Iterator[str]:
    """A text piece by piece, as soon as a piece will not change any more; all at once where nothing is settled before the end.

    The pieces make up what `write` returns for the same row.
    """
    sent = ""
    for frame in frames(model, template, range(row, row + 1), length, options, False):
        settled = frame.settled if frame.t else frame.x.shape[1]
        if not frame.t:
            text = woven(model, template, frame)[0]
        elif all(position < settled for span in template.spans for position in span[:1]):
            tokens = frame.x[0, :settled].tolist()
            text = template.woven([model.codec.decode([tokens[i] for i in span if i < settled]) for span in template.spans[:1]])
            text = text[: len(text) - len("".join(template.pieces[1:]))].rstrip("�")
        else:
            continue
        if text.startswith(sent) and len(text) > len(sent):
            yield text[len(sent) :]
            sent = text


def template_places(frame: Frame) -> Tensor:
    """Which entry of the template each position belongs to; its own number, where texts do not grow: [B, L]."""
    return torch.arange(frame.x.shape[1]).expand(frame.x.shape) if frame.place is None else frame.place


def fills_exactly(model: "Model", template: Template) -> bool:
    """Whether filling this in draws from the model's own conditional (with enough steps), and is not a heuristic.

    A masked model's always does; left to right it does where all that is given comes first.
    """
    known = [token >= 0 for token in template.given]
    causal = model.method.parameterization.network_config(model.process, 1, True).get("causal", False)
    return model.process.conditions_exactly(known) or (causal and known == sorted(known, reverse=True))


@torch.no_grad()
def candidates(model: "Model", ids: list[int], place: int, t: float, most: int) -> list[tuple[str, float]]:
    """What could stand at one position of a state at time t, with probabilities, the likeliest first."""
    if not isinstance(model.process, Process):
        raise ValueError(f"{model.method.name} has no noised tokens that could be predicted one by one")
    if not 0 <= place < len(ids) <= model.length:
        raise ValueError(f"there is no position {place} in a text of {len(ids)} tokens")
    x = torch.tensor([ids], device=model.device)
    if int(x.min()) < 0 or int(x.max()) >= model.process.states:
        raise ValueError(f"a text on its way holds tokens 0…{model.process.states - 1}")
    where = torch.zeros_like(x, dtype=torch.bool)
    where[0, place] = True
    at = torch.tensor([t], dtype=torch.float64, device=model.device).clamp(0, LATEST)
    model.network.eval()
    log_p = predict_clean(model.denoiser, model.process, x, at, where)
    best = log_p.exp()[0].topk(min(most, model.codec.vocab))
    return [(model.codec.show(int(token)), float(p)) for p, token in zip(best.values, best.indices, strict=True)]
