"""Beam search for the most probable words at a place in a text; the search also chooses their length.

Let a be the text before the place, c the text after it, and w a word of n tokens.

Masked models (`MaskedSearch`). With a, w and c in one window,

    p(w, c | a) = p(c | a, n tokens between) · p(w | a, c)

up to a factor that all words share. Each factor is a chain rule over reveals, Σ log μ(token | tokens revealed so far), and any
order of reveals gives the same law (ARDM, arXiv:2110.02037). The tokens of c are revealed in their order, and only the nearest
count, since those further away hardly depend on n. Then the most confident position of w is revealed first. All rows end in
masks up to one common length, so they describe the same window. A state determines the next position, so the search reaches
each word once.

Autoregressive models (`search_left_to_right`). Words are ranked by log p(w | a) + log p(c | a, w).

Block models (`search_in_blocks`). The words of the masked search are scored again from left to right. With k the block of i,

    log p(x) = Σ_i log μ(x^i | x^{<k}, the block's tokens before i, masks from i on),

an autoregressive factorization, so the tokens of c score the word before them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from unnoise.data import Codec
from unnoise.denoiser import Denoiser, predict_clean
from unnoise.distributed import calls_at_once, rows_at_once
from unnoise.families.autoregressive import NextTokenPrediction
from unnoise.families.block import BlockDenoiser, BlockParameterization, Blocks, block_denoiser
from unnoise.network.attention import KVCache
from unnoise.prediction import MeanPrediction
from unnoise.process.masked import Masked
from unnoise.process.process_base import gather
from unnoise.process.state import PAD

INSIDE = "'’-"  # characters of a word besides letters and digits
PART_OF_CHARACTER = "�"  # a single byte of a longer UTF-8 sequence
LONGEST = {False: 14, True: 4}  # tokens of a word, by `Codec.prepends_space`
REACH = {False: 4, True: 2}  # tokens after a word that score its length
ROWS = 64  # maximum number of rows of a network call

BEAM = 8  # masked search: states of each length
CHILDREN = 8  # tokens tried at a position
LAST = 24  # tokens tried at the last position of a word, which needs no further network call
COMPLETE = 16  # states below this many complete words are dropped

BEGINNINGS = 16  # search from left to right: beginnings of words
RESCORED = 24  # words that are scored with the text after them, also in blocks
FOLLOWING = 24  # tokens of that text
FOLLOWING_IN_BLOCKS = 12
BEHIND = 8.0  # words more nats than this behind the most probable word are not scored again
FEWEST = 2  # tokens before the place; with fewer, the chain rule over blocks would assume that the text starts there


@dataclass(frozen=True)
class WordTokens:
    """The word tokens among the K tokens of a codec, and limits of a search.

    inside: [K] bool, tokens that begin or continue a word; any other token ends it.
    after_blank: [K] bool, tokens that hold a blank and the beginning of a word.
    blank: the token that is a single blank, if any.
    longest: maximum number of tokens of a word.
    reach: number of tokens after a word that score its length.
    """

    inside: Tensor
    after_blank: Tensor
    blank: int | None
    longest: int
    reach: int

    def beginnings(self, after_blank: bool) -> Tensor:
        """Return the tokens that can begin a word, with or without a blank: [K] bool."""
        return self.after_blank if after_blank else self.inside


@lru_cache(maxsize=8)
def word_tokens(codec: Codec, device: torch.device | None = None) -> WordTokens:
    """Return the word tokens of a codec, with tensors on a device."""
    texts = ["" if token == codec.eos else codec.decode([token]) for token in range(codec.vocab)]
    inside = torch.tensor([is_piece(text) for text in texts], device=device)
    if not bool(inside.any()):
        raise ValueError(f"no token of this {codec.kind} codec is a letter or a digit, so there are no words to fill in")
    return WordTokens(
        inside=inside,
        after_blank=torch.tensor([text[:1] == " " and is_piece(text[1:]) for text in texts], device=device),
        blank=texts.index(" ") if " " in texts else None,
        longest=LONGEST[codec.prepends_space],
        reach=REACH[codec.prepends_space],
    )


def is_piece(text: str) -> bool:
    """Return whether a text can be part of a word."""
    return bool(text) and all(c.isalnum() or c in INSIDE + PART_OF_CHARACTER or "\udc80" <= c <= "\udcff" for c in text)


def is_word(text: str) -> bool:
    """Return whether a text is a word: letters and digits, with apostrophes and hyphens only between them."""
    return bool(text) and all(c.isalnum() or c in INSIDE for c in text) and text[0].isalnum() and text[-1].isalnum()


class Place(NamedTuple):
    """A place for a word.

    before, after: the tokens on both sides.
    longest: maximum number of tokens of the word.
    after_blank: whether the first token of the word includes a blank.
    begins: whether a text begins here.
    """

    before: list[int]
    after: list[int]
    longest: int
    after_blank: bool
    begins: bool = False


class Found(NamedTuple):
    """A word as tokens, and its log-probability."""

    tokens: tuple[int, ...]
    log_p: float


class MaskedSearch:
    """Beams of partly masked words of every length; each network call evaluates states of all lengths."""

    def __init__(self, process: Masked, denoiser: Denoiser, words: WordTokens, place: Place):
        self.process, self.denoiser, self.words, self.place = process, denoiser, words, place
        self.start = len(place.before)
        self.length = len(place.before) + place.longest + len(place.after)
        self.begins = words.beginnings(place.after_blank)

    def run(self) -> list[Found]:
        """Run the search and return all complete words, each with log p(w, c | a)."""
        mask = self.process.mask
        found: list[Found] = []
        states = [Found((mask,) * n, score) for n, score in enumerate(self._length_scores(), 1)]
        while states:
            children = self._expand(states)
            found += [child for child in children if mask not in child.tokens]
            bound = sorted((word.log_p for word in found), reverse=True)[COMPLETE - 1 : COMPLETE] or [-torch.inf]
            by_length: dict[int, list[Found]] = {}
            for child in sorted(children, key=lambda child: -child.log_p):
                if mask in child.tokens and child.log_p > bound[0]:
                    by_length.setdefault(len(child.tokens), []).append(child)
            states = [state for some in by_length.values() for state in some[:BEAM]]
        return found if self.place.after else self._with_ends(found)

    def _length_scores(self) -> list[float]:
        """Return Σ_j log p(c_j | a, n tokens between, c_{<j}) over the nearest tokens of c, for n = 1, 2, …"""
        near = self.place.after[: self.words.reach]
        if not near:
            return [0.0] * self.place.longest
        lengths = range(1, self.place.longest + 1)
        rows = [self._row((self.process.mask,) * n, near[:j]) for n in lengths for j in range(len(near))]
        places = [[self.start + n + j] for n in lengths for j in range(len(near))]
        log_p = self._log_p(rows, places)
        tokens = torch.tensor(near * self.place.longest, device=log_p.device)
        return log_p.gather(1, tokens[:, None]).view(-1, len(near)).sum(1).tolist()

    def _expand(self, states: Sequence[Found]) -> list[Found]:
        """Reveal the most confident position of each state, with each of its most probable tokens."""
        hidden = [[i for i, token in enumerate(state.tokens) if token == self.process.mask] for state in states]
        rows = [self._row(state.tokens, self.place.after) for state in states]
        log_p = self._log_p(rows, [[self.start + i for i in places] for places in hidden])
        is_first = torch.tensor([i == 0 for places in hidden for i in places], device=log_p.device)[:, None]
        allowed = torch.where(is_first, self.begins, self.words.inside)
        best = log_p.masked_fill(~allowed, -torch.inf).topk(min(LAST, log_p.shape[1]))
        sizes = [len(places) for places in hidden]
        children = []
        for state, places, value, index in zip(
            states, hidden, best.values.split(sizes), best.indices.split(sizes), strict=True
        ):
            surest = int(value[:, 0].argmax())
            at = places[surest]
            tried = CHILDREN if len(places) > 1 else LAST
            for log_q, token in zip(value[surest, :tried].tolist(), index[surest, :tried].tolist(), strict=True):
                if log_q > -torch.inf:
                    children.append(Found((*state.tokens[:at], token, *state.tokens[at + 1 :]), state.log_p + log_q))
        return children

    def _with_ends(self, found: list[Found]) -> list[Found]:
        """Add the log-probability that each word ends where it does, for a place with no text after it."""
        if not found:
            return []
        rows = [self._row(word.tokens, ()) for word in found]
        log_p = self._log_p(rows, [[self.start + len(word.tokens)] for word in found])
        ends = log_p.masked_fill(self.words.inside, -torch.inf).logsumexp(1)
        return [word._replace(log_p=word.log_p + end) for word, end in zip(found, ends.tolist(), strict=True)]

    def _row(self, word: Sequence[int], after: Sequence[int]) -> list[int]:
        row = [*self.place.before, *word, *after]
        return row + [self.process.mask] * (self.length + (not self.place.after) - len(row))

    def _log_p(self, rows: list[list[int]], places: list[list[int]]) -> Tensor:
        """Return log μ at the given positions of each row: [n, K]."""

        def predict(x: Tensor, where: Tensor) -> Tensor:
            share = (x == self.process.mask).double().mean(1)
            t = share if self.process.per_token else self.process.schedule.inverse(1 - share)
            return predict_clean(self.denoiser, self.process, x, t, where)

        return _predicted(predict, rows, places, self.process.device)


def search_left_to_right(denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Return words for a place and log p(w, c | a) for each, by an autoregressive model."""
    following = place.after[:FOLLOWING]
    beginnings, found = [Found((), 0.0)], []
    for n in range(place.longest + 1):
        rows = [[*place.before, *word.tokens, 0] for word in beginnings]  # the network does not condition on the last token
        log_p = _next_log_p(denoiser, words, rows, 1)
        if n:
            ends = log_p[:, following[0]] if following else log_p.masked_fill(words.inside, -torch.inf).logsumexp(1)
            found += [word._replace(log_p=word.log_p + end) for word, end in zip(beginnings, ends.tolist(), strict=True)]
            found = sorted(found, key=lambda word: -word.log_p)[:RESCORED]
        if n == place.longest:
            break
        allowed = words.inside if n else words.beginnings(place.after_blank)
        scores = log_p.masked_fill(~allowed, -torch.inf) + torch.tensor([w.log_p for w in beginnings]).to(log_p)[:, None]
        best = scores.flatten().topk(min(BEGINNINGS, scores.numel()))
        least = found[-1].log_p if len(found) == RESCORED else -torch.inf  # no continuation is likelier than its beginning
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
    log_p = _next_log_p(denoiser, words, [[*place.before, *word.tokens, *following] for word in found], len(rest))
    more = gather(log_p, torch.tensor(rest * len(found), device=log_p.device)).view(-1, len(rest)).sum(1).tolist()
    return [word._replace(log_p=word.log_p + one) for word, one in zip(found, more, strict=True)]


def _next_log_p(denoiser: Denoiser, words: WordTokens, rows: list[list[int]], last: int) -> Tensor:
    """Return log p of the `last` tokens of each row, given the tokens before them: [n, K]."""

    def predict(x: Tensor, where: Tensor) -> Tensor:
        prediction = denoiser(x, torch.zeros(len(x), device=x.device), where)
        assert isinstance(prediction, NextTokenPrediction)
        return prediction.log_probs

    return _predicted(predict, rows, [range(len(row) - last, len(row)) for row in rows], words.inside.device)


def _predicted(
    predict: Callable[[Tensor, Tensor], Tensor], rows: list[list[int]], places: Sequence[Sequence[int]], device: torch.device
) -> Tensor:
    """Return predict(x [B, L], where [B, L]) at the given positions of each row, in batches of rows: [n, K]."""
    x = pad_sequence(list(map(torch.tensor, rows)), batch_first=True).to(device)
    where = torch.tensor([[i in some for i in range(x.shape[1])] for some in places], device=device)
    at_once = rows_at_once(x.shape[1], ROWS, device)
    parts = list(zip(x.split(at_once), where.split(at_once), strict=True))
    return torch.cat(list(calls_at_once(lambda part: predict(*part), parts, device)))


def search_in_blocks(process: Blocks, denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Return words for a place and log p(w, c | a) for each, by a block model.

    A model that was also trained on texts as one block gives two scores: the masked search, which treats the text as one block,
    and the chain rule over its blocks, Σ log p(token | all tokens before it) over w and the nearest tokens of c. Their mean, a
    product of experts, finds more words than either. Other block models use the chain rule alone.
    """
    found = sorted(MaskedSearch(process, denoiser, words, place).run(), key=lambda word: -word.log_p)[:RESCORED]
    found = [word for word in found if word.log_p > found[0].log_p - BEHIND]
    too_few = process.whole_text and len(place.before) < FEWEST
    if not found or not place.after or too_few:  # without text after the place, the search has scored the end of the word
        return found
    rows = [[*place.before, *word.tokens, *place.after[:FOLLOWING_IN_BLOCKS]] for word in found]
    x = pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=PAD).to(process.device)
    chain = left_to_right(block_denoiser(denoiser, "filling in"), process, x, len(place.before)).double().sum(1).tolist()
    if not process.whole_text:
        return [word._replace(log_p=log_p) for word, log_p in zip(found, chain, strict=True)]
    return [word._replace(log_p=(word.log_p + log_p) / 2) for word, log_p in zip(found, chain, strict=True)]


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
    found, cache = torch.zeros(x.shape, device=x.device), KVCache()
    for begin in range(0, x.shape[1], process.block):
        here = slice(begin, begin + process.block)
        if begin == first:
            cache.select_rows(torch.zeros(len(x), dtype=torch.long, device=x.device))
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
