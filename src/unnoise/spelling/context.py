"""What a model says of a candidate in its context: log p(candidate | the text around it), in nats."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from unnoise.denoiser import predict_clean
from unnoise.process import Masked, Process, Uniform

if TYPE_CHECKING:
    from unnoise.model.model import Model

LEVEL = 0.05  # how noised a text is taken to be by a model of uniform noise
CONTEXT = 32  # characters of context on either side
ROWS = 64  # rows evaluated at once
SPANS = 512  # candidates whose rows are kept at once


class TokenSpan(NamedTuple):
    """A candidate in its context as tokens, and where it stands."""

    row: np.ndarray
    start: int
    stop: int


def can_correct(process: Process) -> bool:
    """Whether a model of this process can correct spelling."""
    return isinstance(process, Masked | Uniform)


def token_span(model: "Model", text: str, start: int, stop: int, candidate: str) -> TokenSpan:
    """A candidate for the characters from start to stop in a text."""
    codec = model.codec
    inside = codec.encode(candidate)[: model.length]
    room = model.length - len(inside)  # what a short model has left for the context
    before = codec.encode(text[max(0, start - CONTEXT) : start])
    before = before[max(0, len(before) - room // 2) :]
    after = codec.encode(text[stop : stop + CONTEXT])[: room - len(before)]
    return TokenSpan(np.concatenate([before, inside, after]), len(before), len(before) + len(inside))


def context_scores(model: "Model", spans: Sequence[TokenSpan]) -> list[float]:
    """log p of each candidate in its context."""
    score = _masked if isinstance(model.process, Masked) else _uniform
    parts = (spans[first : first + SPANS] for first in range(0, len(spans), SPANS))
    return [value for part in parts for value in score(model, part)]


def _masked(model: "Model", spans: Sequence[TokenSpan]) -> list[float]:
    """Masked noise: Σ_j log p(c_j | c_{<j}, the rest), the letters after j masked: the model's exact conditional.

    Candidates of one length that begin alike share rows.
    """
    asked: dict[bytes, TokenSpan] = {}
    tokens: dict[bytes, list[tuple[int, int]]] = {}  # for each row which token's probability which span needs
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
    """Uniform noise: Σ_j log p(x_0 = c_j | x_t), with the candidate in a text that is a little noised."""
    totals = [0.0] * len(spans)
    for which, log_p in _log_p(model, spans):
        row, start, stop = spans[which]
        totals[which] = float(log_p[np.arange(stop - start), row[start:stop]].sum())
    return totals


@torch.no_grad()
def _log_p(model: "Model", spans: Sequence[TokenSpan]) -> Iterator[tuple[int, np.ndarray]]:
    """For each span, by its place in the sequence, log p(x_0 | x_t) from its start to its stop: [n, K]."""
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
