"""The likeliest words for a place in a text, by an autoregressive model: beams of words that follow the text a before it,
ranked by log p(w | a) + log p(c | a, w), where c is what comes after it."""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.families.autoregressive import NextTokenPrediction
from unnoise.model.word_search import Found, Place
from unnoise.model.word_tokens import WordTokens
from unnoise.network.batches import rows_at_once
from unnoise.process.base import gather

BEAM = 16  # beginnings that are kept
RANKED = 24  # words that are read with what comes after them
FOLLOWING = 24  # tokens of that
ROWS = 64  # rows of a network call, at most


def find_words(denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Words for a place, with log p(w, c | a)."""
    following = place.after[:FOLLOWING]
    beginnings, found = [Found((), 0.0)], []
    for n in range(place.longest + 1):
        rows = [[*place.before, *word.tokens, 0] for word in beginnings]  # what is asked for is not read
        log_p = _log_p(words.inside.device, denoiser, rows, [range(len(row) - 1, len(row)) for row in rows])
        if n:
            ends = log_p[:, following[0]] if following else log_p.masked_fill(words.inside, -torch.inf).logsumexp(1)
            found += [word._replace(log_p=word.log_p + end) for word, end in zip(beginnings, ends.tolist(), strict=True)]
            found = sorted(found, key=lambda word: -word.log_p)[:RANKED]
        if n == place.longest:
            break
        allowed = words.inside if n else words.beginnings(place.after_blank)
        scores = log_p.masked_fill(~allowed, -torch.inf) + torch.tensor([w.log_p for w in beginnings]).to(log_p)[:, None]
        best = scores.flatten().topk(min(BEAM, scores.numel()))
        least = found[-1].log_p if len(found) == RANKED else -torch.inf  # a beginning never becomes likelier
        beginnings = [
            Found((*beginnings[at // log_p.shape[1]].tokens, at % log_p.shape[1]), score)
            for score, at in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if score > least
        ]
        if not beginnings:
            break
    return _with_following(denoiser, words, place, found, following) if len(following) > 1 else found


def _with_following(
    denoiser: Denoiser, words: WordTokens, place: Place, found: list[Found], following: list[int]
) -> list[Found]:
    """The words with the whole of what follows: log p of its first token is there already."""
    rest = len(following) - 1
    rows = [[*place.before, *word.tokens, *following] for word in found]
    asked = [range(len(row) - rest, len(row)) for row in rows]
    longest = max(map(len, rows))
    log_p = _log_p(words.inside.device, denoiser, [row + [0] * (longest - len(row)) for row in rows], asked)
    tokens = torch.tensor(following[1:] * len(rows), device=log_p.device)
    more = gather(log_p, tokens).view(-1, rest).sum(1).tolist()
    return [word._replace(log_p=word.log_p + one) for word, one in zip(found, more, strict=True)]


def _log_p(device: torch.device, denoiser: Denoiser, rows: list[list[int]], asked: list[range]) -> Tensor:
    """log p of the token at these places of each row, given those before it: [n, K]."""
    chosen = [[place in places for place in range(len(row))] for row, places in zip(rows, asked, strict=True)]
    x, where = torch.tensor(rows, device=device), torch.tensor(chosen, device=device)
    at_once = rows_at_once(x.shape[1], ROWS, x.device)
    found = []
    for part, there in zip(x.split(at_once), where.split(at_once), strict=True):
        prediction = denoiser(part, torch.zeros(len(part), device=x.device), there)
        assert isinstance(prediction, NextTokenPrediction)
        found.append(prediction.log_probs)
    return torch.cat(found)
