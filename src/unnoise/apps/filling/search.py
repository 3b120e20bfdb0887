"""The tokens of a codec that can begin or continue a word.

Beam search for the likeliest words at a place in a text, with a model of masked noise; the search also chooses the length.

With a before the place and c after it, all in one window, a word w of n tokens has the probability

    p(w, c | a) = p(c | a, n tokens between) · p(w | a, c)

up to a factor that all words share. Each factor is a chain rule over reveals, Σ log μ(token | tokens revealed so far), and any
order of reveals gives the same law (ARDM, arXiv:2110.02037). The tokens of c are revealed in their order, and only the nearest
count, since those further away hardly depend on n. Then the most confident position of w is revealed first. All rows end in
masks up to one common length, so they describe the same window. A state determines the next position, so the search reaches
each word once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from unnoise.data import Codec
from unnoise.denoiser import Denoiser, predict_clean
from unnoise.network.network_base import calls_at_once, rows_at_once
from unnoise.process.masked import Masked

INSIDE = "'’-"  # characters of a word besides letters and digits
PART_OF_CHARACTER = "�"  # a single byte of a longer UTF-8 sequence
LONGEST = {False: 14, True: 4}  # by `Codec.prepends_space`
REACH = {False: 4, True: 2}


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

    def to(self, device: torch.device) -> "WordTokens":
        """Return a copy on a device."""
        return replace(self, inside=self.inside.to(device), after_blank=self.after_blank.to(device))

    def beginnings(self, after_blank: bool) -> Tensor:
        """Return the tokens that can begin a word, with or without a blank: [K] bool."""
        return self.after_blank if after_blank else self.inside


@lru_cache(maxsize=8)
def word_tokens(codec: Codec) -> WordTokens:
    """Return the word tokens of a codec."""
    texts = ["" if token == codec.end else codec.decode([token]) for token in range(codec.vocab)]
    inside = torch.tensor([is_piece(text) for text in texts])
    if not bool(inside.any()):
        raise ValueError(f"no token of this {codec.kind} codec is a letter or a digit, so there are no words to fill in")
    return WordTokens(
        inside=inside,
        after_blank=torch.tensor([text[:1] == " " and is_piece(text[1:]) for text in texts]),
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


BEAM = 8  # states of each length
CHILDREN = 8  # tokens tried at a position
LAST = 24  # tokens tried at the last position of a word, which needs no further network call
RANKED = 16  # states below this many complete words are dropped
ROWS = 64  # maximum number of rows of a network call


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


def find_words(process: Masked, denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Return words for a place, with log p(w, c | a)."""
    return MaskedSearch(process, denoiser, words, place).run()


class MaskedSearch:
    """Beams of partly masked words of every length; each network call evaluates states of all lengths."""

    def __init__(self, process: Masked, denoiser: Denoiser, words: WordTokens, place: Place):
        self.process, self.denoiser, self.words, self.place = process, denoiser, words, place
        self.start = len(place.before)
        self.length = len(place.before) + place.longest + len(place.after)
        self.begins = words.beginnings(place.after_blank)

    def run(self) -> list[Found]:
        """Run the search and return all complete words."""
        mask = self.process.mask
        found: list[Found] = []
        states = [Found((mask,) * n, score) for n, score in enumerate(self._length_scores(), 1)]
        while states:
            children = self._expand(states)
            found += [child for child in children if mask not in child.tokens]
            bound = sorted((word.log_p for word in found), reverse=True)[RANKED - 1 : RANKED] or [-torch.inf]
            open_states = [child for child in children if mask in child.tokens and child.log_p > bound[0]]
            states = _best_of_each_length(open_states)
        return found if self.place.after else self._with_ends(found)

    def _length_scores(self) -> list[float]:
        """Return Σ_j log p(c_j | a, n tokens between, c_{<j}) over the nearest tokens of c, for n = 1, 2, …"""
        near = self.place.after[: self.words.reach]
        if not near:
            return [0.0] * self.place.longest
        rows, places = [], []
        for n in range(1, self.place.longest + 1):
            for j in range(len(near)):
                rows.append(self._row((self.process.mask,) * n, near[:j]))
                places.append([self.start + n + j])
        log_p = self._log_p(rows, places)
        tokens = torch.tensor(near * self.place.longest, device=log_p.device)
        return log_p.gather(1, tokens[:, None]).view(-1, len(near)).sum(1).tolist()

    def _expand(self, states: Sequence[Found]) -> list[Found]:
        """Reveal the most confident position of each state, with each of its likeliest tokens."""
        hidden = [[i for i, token in enumerate(state.tokens) if token == self.process.mask] for state in states]
        rows = [self._row(state.tokens, self.place.after) for state in states]
        log_p = self._log_p(rows, [[self.start + i for i in places] for places in hidden])
        is_first = torch.tensor([i == 0 for places in hidden for i in places], device=log_p.device)[:, None]
        allowed = torch.where(is_first, self.begins, self.words.inside)
        best = log_p.masked_fill(~allowed, -torch.inf).topk(min(LAST, log_p.shape[1]))
        values = best.values.split([len(places) for places in hidden])
        indices = best.indices.split([len(places) for places in hidden])
        children = []
        for state, places, value, index in zip(states, hidden, values, indices, strict=True):
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
        x, where = selected(rows, places, self.process.device)
        share = (x == self.process.mask).double().mean(1)
        t = share if self.process.per_token else self.process.schedule.inverse(1 - share)
        at_once = rows_at_once(x.shape[1], ROWS, x.device)
        parts = list(zip(x.split(at_once), t.split(at_once), where.split(at_once), strict=True))
        found = calls_at_once(lambda part: predict_clean(self.denoiser, self.process, *part), parts, x.device)
        return torch.cat(list(found))


def selected(rows: list[list[int]], places: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the rows as a tensor [B, L], and where each has the given positions [B, L] bool."""
    where = [[position in some for position in range(len(row))] for row, some in zip(rows, places, strict=True)]
    return torch.tensor(rows, device=device), torch.tensor(where, device=device)


def _best_of_each_length(states: list[Found]) -> list[Found]:
    by_length: dict[int, list[Found]] = {}
    for state in sorted(states, key=lambda state: -state.log_p):
        by_length.setdefault(len(state.tokens), []).append(state)
    return [state for some in by_length.values() for state in some[:BEAM]]
