"""Beam search for the likeliest words at a place in a text, with an autoregressive model.

Words w that follow the text a are ranked by log p(w | a) + log p(c | a, w), where c is the text after the place.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.families.autoregressive import NextTokenPrediction
from unnoise.model.word_search import Found, Place, selected
from unnoise.model.word_tokens import WordTokens
from unnoise.network.batches import rows_at_once
from unnoise.process.base import gather

BEAM = 16  # beginnings of words
RANKED = 24  # words that are scored with the text after them
FOLLOWING = 24  # tokens of that text
ROWS = 64  # maximum number of rows of a network call


def find_words(denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Return words for a place, with log p(w, c | a)."""
    following = place.after[:FOLLOWING]
    beginnings, found = [Found((), 0.0)], []
    for n in range(place.longest + 1):
        rows = [[*place.before, *word.tokens, 0] for word in beginnings]  # the network does not condition on the last token
        log_p = _log_p(denoiser, rows, [[len(row) - 1] for row in rows], words.inside.device)
        if n:
            ends = log_p[:, following[0]] if following else log_p.masked_fill(words.inside, -torch.inf).logsumexp(1)
            found += [word._replace(log_p=word.log_p + end) for word, end in zip(beginnings, ends.tolist(), strict=True)]
            found = sorted(found, key=lambda word: -word.log_p)[:RANKED]
        if n == place.longest:
            break
        allowed = words.inside if n else words.beginnings(place.after_blank)
        scores = log_p.masked_fill(~allowed, -torch.inf) + torch.tensor([w.log_p for w in beginnings]).to(log_p)[:, None]
        best = scores.flatten().topk(min(BEAM, scores.numel()))
        least = found[-1].log_p if len(found) == RANKED else -torch.inf  # no continuation is likelier than its beginning
        beginnings = [
            Found((*beginnings[at // log_p.shape[1]].tokens, at % log_p.shape[1]), score)
            for score, at in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if score > least
        ]
        if not beginnings:
            break
    rest = following[1:]  # log p of the first token is already included
    if not rest:
        return found
    rows = [[*place.before, *word.tokens, *following] for word in found]
    asked = [range(len(row) - len(rest), len(row)) for row in rows]
    longest = max(map(len, rows))
    log_p = _log_p(denoiser, [row + [0] * (longest - len(row)) for row in rows], asked, words.inside.device)
    more = gather(log_p, torch.tensor(rest * len(rows), device=log_p.device)).view(-1, len(rest)).sum(1).tolist()
    return [word._replace(log_p=word.log_p + one) for word, one in zip(found, more, strict=True)]


def _log_p(denoiser: Denoiser, rows: list[list[int]], places: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return log p of the tokens at the given positions of each row, given the tokens before them: [n, K]."""
    x, where = selected(rows, places, device)
    at_once = rows_at_once(x.shape[1], ROWS, x.device)
    found = []
    for part, there in zip(x.split(at_once), where.split(at_once), strict=True):
        prediction = denoiser(part, torch.zeros(len(part), device=x.device), there)
        assert isinstance(prediction, NextTokenPrediction)
        found.append(prediction.log_probs)
    return torch.cat(found)
