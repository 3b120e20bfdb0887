"""Beam search for the likeliest words at a place in a text, with an autoregressive model.

Words w that follow the text a are ranked by log p(w | a) + log p(c | a, w), where c is the text after the place.

Log-probabilities of tokens under block diffusion when each block is revealed from left to right.

Any order of reveals within a block gives the same law (ARDM, arXiv:2110.02037). From left to right, with k the block of i,

    log p(x) = Σ_i log μ(x^i | x^{<k}, the block's tokens before i, masks from i on),

an autoregressive factorisation, so the tokens after a place score the word in it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from unnoise.apps.filling.search import Found, Place, WordTokens, selected
from unnoise.denoiser import Denoiser
from unnoise.families.autoregressive import NextTokenPrediction
from unnoise.families.block import BlockDenoiser, BlockParameterization, Blocks
from unnoise.network.network_base import Cache, rows_at_once
from unnoise.prediction import MeanPrediction
from unnoise.process.process_base import gather
from unnoise.process.state import PAD

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


def left_to_right(denoiser: BlockDenoiser, process: Blocks, x: Tensor, start: int) -> Tensor:
    """Return log μ of the tokens from `start` on, each given all tokens before it: x [B, L] → [B, L − start].

    All rows share the tokens before `start`. Shorter rows are padded with −1, where the result is 0.
    """
    first = start // process.block * process.block
    there = x != PAD
    x = pad(torch.where(there, x, process.mask), (0, -x.shape[1] % process.block), value=process.mask)
    if isinstance(denoiser, BlockParameterization) and denoiser.has_cache:
        found = _with_cache(denoiser, process, x, first)
    else:
        found = _at_once(denoiser, process, x, first)
    return torch.where(there, found[:, : there.shape[1]], 0)[:, start:]


def _at_once(denoiser: BlockDenoiser, process: Blocks, x: Tensor, first: int) -> Tensor:
    """Evaluate all blocks of all rows in one call for each position within a block: x [B, L] → [B, L], from `first` on."""
    found = torch.zeros(x.shape, device=x.device)
    column = torch.arange(x.shape[1], device=x.device)
    for j in range(process.block):
        x_t = x.masked_fill(column % process.block >= j, process.mask)
        where = ((column % process.block == j) & (column >= first)).expand(x.shape)
        t = torch.full(x.shape, 1 - j / process.block, device=x.device)
        log_probs = denoiser.blocks(x_t, x, t, where, process.block).log_probs
        found[where] = _chosen(log_probs, x[where], process.mask)
    return found


def _with_cache(denoiser: BlockParameterization, process: Blocks, x: Tensor, first: int) -> Tensor:
    """Evaluate block after block with a key/value cache; the blocks that all rows share are evaluated once."""
    found, cache = torch.zeros(x.shape, device=x.device), Cache()
    for begin in range(0, x.shape[1], process.block):
        here = slice(begin, begin + process.block)
        if begin == first:
            cache.keep(torch.zeros(len(x), dtype=torch.long, device=x.device))
        if begin < first:
            denoiser.read(x[:1, here], cache)
            continue
        within = denoiser.within(cache)
        for j in range(process.block):
            x_t = x[:, here].clone()
            x_t[:, j:] = process.mask
            where = torch.zeros_like(x_t, dtype=torch.bool)
            where[:, j] = True
            t = torch.full((len(x),), 1 - j / process.block, device=x.device)
            prediction = within(x_t, t, where)
            assert isinstance(prediction, MeanPrediction)
            found[:, begin + j] = _chosen(prediction.log_probs, x[:, begin + j], process.mask)
        denoiser.read(x[:, here], cache)
    return found


def _chosen(log_probs: Tensor, tokens: Tensor, mask: int) -> Tensor:
    return gather(log_probs, torch.where(tokens == mask, 0, tokens)).to(torch.get_default_dtype())
