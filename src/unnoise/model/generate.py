"""Sampling with a model: templates of texts with blanks, the states of a chain, and the finished texts."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from unnoise import distributed
from unnoise.data import Codec
from unnoise.denoiser import predict_clean
from unnoise.distributed import rows_at_once
from unnoise.model.sampling_options import SamplingOptions
from unnoise.process.process_base import Process
from unnoise.process.state import LATEST, OPEN_GAP, TO_FILL
from unnoise.sampler import Frame, sample_frames

if TYPE_CHECKING:
    from unnoise.model.model import Model

T = TypeVar("T")
ROWS = 64  # maximum number of sequences that are sampled together
MOST_SAMPLES = 1_000_000  # maximum number of samples, which are all kept in memory

MASK = "[MASK]"  # one token
GAP = "[GAP]"  # any number of tokens
WORD = "[WORD]"  # a word of any number of tokens
BLANKS = re.compile(rf"((?:{re.escape(MASK)}|{re.escape(GAP)})+)")
MARKS = re.compile("|".join(map(re.escape, (MASK, GAP, WORD))))


# ---- templates -----------------------------------------------------------------------------------------------------------


class Template(NamedTuple):
    """A text with runs of blanks.

    pieces: the given text before, between and after the runs.
    spans: for each run, its range in `given`.
    given: tokens of the whole text; −1 stands for one blank token, −2 for any number of them.
    prepends_space: whether a space before a run belongs to the run's first token and is therefore missing from `given`.
    """

    pieces: list[str]
    spans: list[range]
    given: list[int]
    prepends_space: bool = False

    @staticmethod
    def parse(text: str, codec: Codec) -> "Template":
        """Return the template of a text with [MASK]s and [GAP]s."""
        if WORD in text:
            raise ValueError(
                f"{WORD} has no fixed number of tokens: fill in each {WORD} first with `unnoise fill`, then {MASK} and {GAP}"
            )
        runs = BLANKS.split(text)
        if len(runs) == 1:
            raise ValueError(f"nothing to fill in: mark each blank token with {MASK}, or a word with {WORD}")
        given: list[int] = []
        spans: list[range] = []
        for piece, marks in zip([codec.with_leading_space(runs[0]), *runs[2::2]], [*runs[1::2], ""], strict=True):
            given += (codec.encode_prefix(piece) if marks else codec.encode(piece)).tolist()
            blanks = [OPEN_GAP if mark == GAP else TO_FILL for mark in MARKS.findall(marks)]
            if blanks:
                spans.append(range(len(given), len(given) + len(blanks)))
            given += blanks
        return Template(with_separators(runs[::2], codec.separator), spans, given, codec.prepends_space)

    @staticmethod
    def between(prefix: str, blanks: list[int], suffix: str, codec: Codec) -> "Template":
        """Return the template of one run of blanks between two texts."""
        before, after = given_sides(prefix, suffix, codec)
        span = range(len(before), len(before) + len(blanks))
        pieces = with_separators([prefix, as_suffix(suffix, codec)], codec.separator)
        return Template(pieces, [span], [*before, *blanks, *after], codec.prepends_space)

    def filled(self, places: Sequence[int]) -> list[list[int]]:
        """Return the positions that belong to each run. places: entry of `given` that each position belongs to."""
        return [[position for position, place in enumerate(places) if place in span] for span in self.spans]

    def between_pieces(self, texts: Sequence[str]) -> list[str]:
        """Return the texts of the runs without the spaces that the given pieces next to them already have."""
        if not self.prepends_space:
            return list(texts)
        found = []
        starts = any(self.pieces) and not self.pieces[0]  # the text begins with a run
        for i, (text, before, after) in enumerate(zip(texts, self.pieces[:-1], self.pieces[1:], strict=True)):
            begun = text.lstrip(" ") if before.endswith(" ") or (starts and not i) else text
            found.append(begun.rstrip(" ") if after.startswith(" ") else begun)
        return found

    def woven(self, texts: Sequence[str]) -> str:
        """Return the whole text with the given pieces unchanged and these texts in the runs."""
        return _alternate(self.pieces, self.between_pieces(texts))


def _alternate(outer: Sequence[str], inner: Sequence[str]) -> str:
    return "".join(itertools.chain(*itertools.zip_longest(outer, inner, fillvalue="")))


def given_sides(prefix: str, suffix: str, codec: Codec) -> tuple[list[int], list[int]]:
    """Return the tokens of a prefix and a suffix with blanks between them."""
    before = codec.encode_prefix(codec.with_leading_space(prefix)).tolist() if prefix else []
    return before, codec.encode(as_suffix(suffix, codec)).tolist() if suffix else []


def as_suffix(text: str, codec: Codec) -> str:
    """Return a text that follows blanks, with a leading space if it starts with a word and tokens include that space."""
    return f" {text}" if codec.prepends_space and text[:1].isalnum() else text


def text_as_read(text: str, codec: Codec) -> str | None:
    """Return a text with marks as the codec decodes it, or None if the codec does not change it."""
    pieces = MARKS.split(text)
    read = [codec.read_as(piece) for piece in pieces]
    if all(piece is None for piece in read):
        return None
    kept = [piece if found is None else found for piece, found in zip(pieces, read, strict=True)]
    return _alternate(kept, MARKS.findall(text))


def with_separators(pieces: list[str], separator: str) -> list[str]:
    """Return the pieces with the separator of tokens on each side of a run of blanks."""
    if not separator:
        return pieces
    last = len(pieces) - 1
    after = [
        piece if i == last or piece.endswith(separator) else piece + separator * bool(piece) for i, piece in enumerate(pieces)
    ]
    return [piece if not i or piece.startswith(separator) else separator * bool(piece) + piece for i, piece in enumerate(after)]


# ---- chains --------------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A state of a chain.

    t: time, from 1 to 0.
    text: text of the state, with · for masks.
    confidences, tokens, fresh, ids: for each token its confidence, its text, whether it is new, and its number.
    places: entry of the template that each token belongs to.
    settled: number of tokens at the beginning that can no longer change.
    """

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
    *,
    track_confidence: bool = True,
) -> Iterator[Frame]:
    """Yield the states of the samples with these indices, from noise to data."""
    sampler = options.resolve(model.method.sampler)
    model.check_sampler(sampler)
    model.network.eval()
    return sample_frames(
        model.process,
        model.denoiser.condition(model.label_number(options.label), options.guidance_scale),
        batch=len(rows),
        length=_longest(model, template, length),
        sampler=sampler,
        given=torch.tensor([template.given]).expand(len(rows), -1).contiguous(),
        seed=options.seed,
        first_row=rows.start,
        time_free=model.method.time_free,
        independent_rows=True,
        track_confidence=track_confidence,
    )


def _longest(model: "Model", template: Template, length: int | None) -> int:
    return (length or model.length) if model.process.variable_length else len(template.given)


def sample_rows(
    model: "Model",
    template: Template,
    n: int,
    length: int | None,
    options: SamplingOptions,
    *,
    results: Callable[[Frame], list[T]],
    on_step: OnStep | None = None,
) -> list[T]:
    """Sample n sequences, some at a time and split over the processes, and return `results` of the last states in order."""
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
        for frame in frames(model, template, rows, length, options, track_confidence=watched is not None):
            if watched is not None:
                watched(shown_step(model, frame, before))
                before = frame
        assert frame is not None
        return results(frame)

    return [one for part in distributed.map_ranks(-(-n // at_once), some) for one in part]


def sample_texts(
    model: "Model", template: Template, n: int, length: int | None, options: SamplingOptions, on_step: OnStep | None = None
) -> list[str]:
    """Sample n texts from a template. on_step: function called with every state of the first text."""
    results = lambda last: woven_texts(model, template, last)  # noqa: E731
    return sample_rows(model, template, n, length, options, results=results, on_step=on_step)


def woven_texts(model: "Model", template: Template, last: Frame) -> list[str]:
    """Return the texts of a frame with the given pieces of the template unchanged."""
    found = []
    for row, places in zip(last.x.tolist(), _places(last).tolist(), strict=True):
        spans = template.filled(places)
        filled = [model.codec.decode_after(row[: span[0]] if span else [], [row[i] for i in span]) for span in spans]
        found.append(template.woven(filled))
    return found


def _places(frame: Frame) -> Tensor:
    """Return the entry of the template that each position belongs to: [B, L]."""
    return torch.arange(frame.x.shape[1]).expand(frame.x.shape) if frame.place is None else frame.place


def shown_step(model: "Model", frame: Frame, before: Frame | None) -> Step:
    """Return the first sequence of a frame as a Step. before: the previous frame."""
    fresh = frame.fresh
    if fresh is None:
        fresh = torch.zeros_like(frame.x, dtype=torch.bool) if before is None else frame.x != before.x
    real = frame.x[0] >= 0
    ids, confidences, new, places = (
        values[0][real].tolist() for values in (frame.x, frame.confidence, fresh, _places(frame).to(real.device))
    )
    tokens = model.codec.show_states(ids)
    return Step(
        t=frame.t,
        text="".join(tokens),
        confidences=confidences,
        tokens=tokens,
        fresh=new,
        ids=ids,
        places=places,
        settled=frame.settled if frame.t else len(ids),
    )


def stream(model: "Model", template: Template, row: int, length: int | None, options: SamplingOptions) -> Iterator[str]:
    """Yield pieces of a text as soon as they can no longer change. Together they are the text of `sample_texts`."""
    sent = ""
    for frame in frames(model, template, range(row, row + 1), length, options, track_confidence=False):
        if not frame.t:
            text = woven_texts(model, template, frame)[0]
        elif all(position < frame.settled for span in template.spans for position in span[:1]):
            tokens = frame.x[0, : frame.settled].tolist()
            spans = template.spans[:1]
            text = template.woven([model.codec.decode([tokens[i] for i in span if i < frame.settled]) for span in spans])
            text = text[: len(text) - len("".join(template.pieces[1:]))].rstrip("�")
        else:
            continue
        if text.startswith(sent) and len(text) > len(sent):
            yield text[len(sent) :]
            sent = text


def fills_exactly(model: "Model", template: Template) -> bool:
    """Return whether infilling samples from the model's own conditional, given enough steps.

    This is so for masked noise, and for a causal network if all given tokens come first. Otherwise infilling is a heuristic.
    """
    known = [token >= 0 for token in template.given]
    causal = model.method.parameterization.network_config(model.process, 1, True).get("causal", False)
    return model.process.conditions_exactly(known) or (causal and known == sorted(known, reverse=True))


@torch.no_grad()
def candidates(model: "Model", ids: Sequence[int], place: int, t: float, most: int = 8) -> list[tuple[str, float]]:
    """Return the most probable tokens at one position of a state at time t, with their probabilities.

    ids: tokens of the state, as in `Step.ids`.
    place: position of the token.
    most: maximum number of tokens to return.
    """
    if not isinstance(model.process, Process):
        raise ValueError(f"{model.method.name} has no noised tokens, so its tokens cannot be predicted one by one")
    if not 0 <= place < len(ids) <= model.length:
        raise ValueError(f"there is no position {place} in a sequence of {len(ids)} tokens")
    x = torch.tensor([list(ids)], device=model.device)
    if int(x.min()) < 0 or int(x.max()) >= model.process.states:
        raise ValueError(f"the tokens of a state lie between 0 and {model.process.states - 1}")
    where = torch.zeros_like(x, dtype=torch.bool)
    where[0, place] = True
    at = torch.tensor([t], dtype=torch.float64, device=model.device).clamp(0, LATEST)
    model.network.eval()
    log_p = predict_clean(model.denoiser, model.process, x, at, where)
    best = log_p.exp()[0].topk(min(most, model.codec.vocab))
    return [(model.codec.show(int(token)), float(p)) for p, token in zip(best.values, best.indices, strict=True)]
