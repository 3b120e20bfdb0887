"""Context scores of candidates with a model over characters: log p(candidate | context), in nats."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from unnoise.denoiser import predict_clean
from unnoise.process import Masked, Process, Uniform

if TYPE_CHECKING:
    from unnoise.model.model import Model

LEVEL = 0.05  # time at which a model of uniform noise sees the text
CONTEXT = 32  # characters of context on either side
ROWS = 64  # maximum number of rows of a network call
SPANS = 512  # candidates whose rows are in memory at once


class TokenSpan(NamedTuple):
    """The tokens of a candidate in its context, and the candidate's first and last position in them."""

    row: np.ndarray
    start: int
    stop: int


def can_correct(process: Process) -> bool:
    """Return whether a model of this process can correct spelling."""
    return isinstance(process, Masked | Uniform)


def token_span(model: "Model", text: str, start: int, stop: int, candidate: str) -> TokenSpan:
    """Return the tokens of a text with a candidate in place of the characters from start to stop."""
    codec = model.codec
    inside = codec.encode(candidate)[: model.length]
    room = model.length - len(inside)  # left for the context in a short model
    before = codec.encode(text[max(0, start - CONTEXT) : start])
    before = before[max(0, len(before) - room // 2) :]
    after = codec.encode(text[stop : stop + CONTEXT])[: room - len(before)]
    return TokenSpan(np.concatenate([before, inside, after]), len(before), len(before) + len(inside))


def context_scores(model: "Model", spans: Sequence[TokenSpan]) -> list[float]:
    """Return log p of each candidate in its context."""
    score = _masked if isinstance(model.process, Masked) else _uniform
    parts = (spans[first : first + SPANS] for first in range(0, len(spans), SPANS))
    return [value for part in parts for value in score(model, part)]


def _masked(model: "Model", spans: Sequence[TokenSpan]) -> list[float]:
    """Return Σ_j log p(c_j | c_{<j}, context) with the letters after j masked, the exact conditional of masked noise.

    Candidates of equal length share rows for a common beginning.
    """
    asked: dict[bytes, TokenSpan] = {}
    tokens: dict[bytes, list[tuple[int, int]]] = {}  # for each row, the spans and their tokens
    for i, (row, start, stop) in enumerate(spans):
        for place in range(start, stop):
            masked = row.copy()
            masked[place:stop] = model.process.vocab
            key = masked.tobytes()
            asked.setdefault(key, TokenSpan(masked, place, place + 1))
            tokens.setdefault(key, []).append((i, int(row[place])))
    totals = [0.0] * len(spans)
    needed = list(tokens.values())
    for which, log_p in _log_p(model, list(asked.values())):
        for i, token in needed[which]:
            totals[i] += float(log_p[0, token])
    return totals


def _uniform(model: "Model", spans: Sequence[TokenSpan]) -> list[float]:
    """Return Σ_j log p(x_0 = c_j | x_t) for uniform noise, with the candidate itself in x_t at a small t."""
    totals = [0.0] * len(spans)
    for which, log_p in _log_p(model, spans):
        row, start, stop = spans[which]
        totals[which] = float(log_p[np.arange(stop - start), row[start:stop]].sum())
    return totals


@torch.no_grad()
def _log_p(model: "Model", spans: Sequence[TokenSpan]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield for each span its index and log p(x_0 | x_t) from its start to its stop: [n, K]."""
    process = model.process
    assert isinstance(process, Masked | Uniform)
    model.network.eval()
    by_length: dict[int, list[int]] = {}
    for which, span in enumerate(spans):
        by_length.setdefault(len(span.row), []).append(which)
    for group in by_length.values():
        for first in range(0, len(group), ROWS):
            some = group[first : first + ROWS]
            x = torch.from_numpy(np.stack([spans[which].row for which in some])).to(model.device)
            places = torch.arange(x.shape[1])
            where = torch.stack([(places >= spans[w].start) & (places < spans[w].stop) for w in some]).to(model.device)
            t = torch.full((len(some),), LEVEL, dtype=torch.float64, device=model.device)
            log_p = predict_clean(model.denoiser, process, x, t, where).cpu().numpy()
            yield from zip(some, np.split(log_p, where.sum(1).cumsum(0)[:-1].tolist()), strict=True)
