"""Context scores of candidates: log p(candidate | both sides), in nats.

With masked noise, a candidate w between a and c is replaced by as many masks as it has tokens, which are revealed in order:

    log p(w | a, c) = Σ_j log μ(w_j | a, w_{<j}, masks, c),

which holds for any order of reveals (ARDM, arXiv:2110.02037). With uniform noise, Σ_j log p(x_0 = w_j | x_t) is evaluated with
the candidate itself in x_t at a small t.

Models over characters score candidates with `letter_scores`. `WordContext` is for models over word pieces, in which most words
are one token: one masked position scores all candidates of one token, and a row masks several words that are far apart, so a
text takes about `APART` + 1 rows for each window.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch

from unnoise.apps.spelling.words import WORD
from unnoise.data.codec import LETTERS, Codec, Text8
from unnoise.denoiser import predict_clean
from unnoise.distributed import calls_at_once, rows_at_once
from unnoise.process import Masked, Uniform

if TYPE_CHECKING:
    from unnoise.model.model import Model

Result = TypeVar("Result")
LEVEL = 0.05  # time of the text for a model over characters
LETTERS_AROUND = 32  # characters of context on either side
SPANS = 512  # candidates over characters whose rows are in memory at once
APART = 6  # tokens between two words that are masked in the same row
WINDOW = 32  # tokens of a row that scores a candidate of several tokens
ROWS = 64  # maximum number of rows of a network call
ROUND = 8  # row lengths of a model over word pieces are multiples of this
RANKED = 96  # number of most probable tokens that are kept for a place


class Row(NamedTuple):
    """A network input, and the positions to predict."""

    tokens: list[int]
    places: list[int]


class Scored(NamedTuple):
    """A candidate as tokens, between the tokens of its context."""

    before: list[int]
    word: list[int]
    after: list[int]


class Answer(NamedTuple):
    """Log-probabilities of one masked token: of the requested tokens, and of the most probable ones."""

    asked: dict[int, float]
    likeliest: list[tuple[int, float]]


def log_probs(
    model: "Model", rows: Sequence[Row], use: Callable[[int, torch.Tensor], Result], level: float | None, multiple: int = 1
) -> Iterator[Result]:
    """Yield use(i, log p(x_0 | x_t) [n, K] at the places of row i) for all rows, in batches of equal length.

    level: the time t, or None to compute it from the share of masks.
    multiple: rows are padded with masks to a multiple of this many tokens, so that a network call evaluates many.
    """
    process, device = model.process, model.device
    assert isinstance(process, Masked | Uniform)
    model.network.eval()
    by_length: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        length = len(row.tokens)
        by_length.setdefault(max(length, min(model.length, -(-length // multiple) * multiple)), []).append(i)
    batches = []
    for length, some in by_length.items():
        at_once = rows_at_once(length, ROWS, device)
        batches += [(length, some[first : first + at_once]) for first in range(0, len(some), at_once)]

    def evaluate(batch: tuple[int, list[int]]) -> list[Result]:
        length, some = batch
        x = torch.full((len(some), length), process.vocab)  # the mask of masked noise; rows of uniform noise have equal lengths
        where = torch.zeros(x.shape, dtype=torch.bool)
        for line, i in enumerate(some):
            x[line, : len(rows[i].tokens)] = torch.tensor(rows[i].tokens)
            where[line, rows[i].places] = True
        if level is None:
            share = (x == process.vocab).double().mean(1)
            t = share if process.per_token else process.schedule.inverse(1 - share)
        else:
            t = torch.full((len(some),), level, dtype=torch.float64)
        log_p = predict_clean(model.denoiser, process, x.to(device), t.to(device), where.to(device)).cpu()
        parts = log_p.split([len(rows[i].places) for i in some])
        return [use(i, part) for i, part in zip(some, parts, strict=True)]

    for results in calls_at_once(evaluate, batches, device):
        yield from results


def chain_scores(model: "Model", scored: Sequence[Scored], level: float | None, multiple: int = 1) -> list[float]:
    """Return Σ_j log μ(w_j | a, w_{<j}, masks, c) of candidates with masked noise; a common beginning shares rows."""
    rows: dict[tuple[int, ...], Row] = {}
    wanted: dict[tuple[int, ...], list[tuple[int, int]]] = {}  # for each row, the candidates and their tokens
    for i, (before, word, after) in enumerate(scored):
        for j, token in enumerate(word):
            row = [*before, *word[:j], *[model.process.vocab] * (len(word) - j), *after]
            key = (len(before) + j, *row)
            rows.setdefault(key, Row(row, [len(before) + j]))
            wanted.setdefault(key, []).append((i, token))
    needed = list(wanted.values())

    def terms(which: int, log_p: torch.Tensor) -> list[tuple[int, float]]:
        return [(i, float(log_p[0, token])) for i, token in needed[which]]

    totals = [0.0] * len(scored)
    for pairs in log_probs(model, list(rows.values()), terms, level, multiple):
        for i, term in pairs:
            totals[i] += term
    return totals


# ---- models over characters ----------------------------------------------------------------------------------------------


def in_letters(model: "Model", text: str, start: int, stop: int, candidate: str) -> Scored:
    """Return a candidate in place of the characters from start to stop; a short model gets less context."""
    codec = model.codec
    inside = codec.encode(candidate)[: model.length]
    room = model.length - len(inside)  # left for the context
    before = codec.encode(text[max(0, start - LETTERS_AROUND) : start])
    before = before[max(0, len(before) - room // 2) :]
    after = codec.encode(text[stop : stop + LETTERS_AROUND])[: room - len(before)]
    return Scored(before.tolist(), inside.tolist(), after.tolist())


def letter_scores(model: "Model", scored: Sequence[Scored]) -> list[float]:
    """Return log p of each candidate in its context, by a model over characters."""
    parts = [scored[first : first + SPANS] for first in range(0, len(scored), SPANS)]
    if isinstance(model.process, Masked):
        return [value for part in parts for value in chain_scores(model, part, LEVEL)]
    found = [0.0] * len(scored)

    def keep(i: int, log_p: torch.Tensor) -> None:
        found[i] = float(log_p[torch.arange(len(log_p)), scored[i].word].sum())

    rows = [Row([*a, *w, *c], list(range(len(a), len(a) + len(w)))) for a, w, c in scored]
    for _ in log_probs(model, rows, keep, LEVEL):
        pass
    return found


# ---- models over word pieces ---------------------------------------------------------------------------------------------


class Reading:
    """A text as units of tokens: each word with the blank before it, and the text between words.

    starts: the first token of each unit, and the number of all tokens.
    unit_at: the unit of each word, by the word's first character.
    """

    def __init__(self, units: list[list[int]], unit_at: dict[int, int]):
        self.units = units
        self.tokens = [token for unit in units for token in unit]
        self.starts = [0, *np.cumsum([len(unit) for unit in units]).tolist()]
        self.unit_at = unit_at

    def with_words(self, words: Mapping[int, list[int]]) -> "Reading":
        """Return a copy with other tokens for some units."""
        return Reading([words.get(i, unit) for i, unit in enumerate(self.units)], self.unit_at)


class Place(NamedTuple):
    """The tokens of a reading, from start to stop, that a candidate replaces."""

    start: int
    stop: int


class WordContext:
    """Context scores with a codec in which a blank belongs to the word after it.

    words: the tokens that are a blank and letters, without the blank.
    plain: the normalization of texts, if the codec has only the 27 symbols of text8.
    """

    def __init__(self, model: "Model"):
        self.model, self.codec, self.mask = model, model.codec, model.process.vocab
        self.words = words_of(model.codec)
        self.plain = Text8() if has_letters_only(model.codec) else None

    # ---- texts as tokens ----------------------------------------------------------------------------------------------------

    def encode(self, text: str, blank: bool = True) -> list[int]:
        """Return the tokens of words, with or without a blank before them."""
        if self.plain:
            text = " ".join(self.plain.normalize(text).split())
        return self.codec.encode(" " * (blank and bool(text)) + text).tolist()

    def read(self, text: str, is_hidden: Callable[[str], bool] = lambda word: False) -> Reading:
        """Return a text as tokens, in lower case and with digits spelled out if the model has letters only.

        is_hidden: whether a word, in lower case, is masked in the context of other words.
        """
        units: list[list[int]] = []
        unit_at: dict[int, int] = {}
        last = 0
        for match in WORD.finditer(text):
            between = text[last : match.start()]
            blank = self.plain is not None or between.endswith(" ")
            self._add_between(units, between.removesuffix(" "), last > 0)
            unit_at[match.start()] = len(units)
            hidden = is_hidden(match.group().lower())
            units.append([self.mask] if hidden else self.encode(match.group(), blank))
            last = match.end()
        self._add_between(units, text[last:], last > 0)
        return Reading(units, unit_at)

    def _add_between(self, units: list[list[int]], between: str, inside: bool) -> None:
        if self.plain:
            units += [self.encode(word) for word in self.plain.normalize(between).split()]
        elif between:
            units.append(self.encode(between, blank=False))

    def place(self, reading: Reading, start: int, words: int = 1) -> Place:
        """Return the tokens of `words` units from the word that begins at a character."""
        unit = reading.unit_at[start]
        return Place(reading.starts[unit], reading.starts[unit + words])

    # ---- scores -------------------------------------------------------------------------------------------------------------

    def one_token(self, reading: Reading, places: Sequence[Place], asked: Sequence[Sequence[int]]) -> list[Answer]:
        """Return log p of single tokens at each place, given the text around it.

        Rows are windows around stretches of the text; each masks places that are at least `APART` tokens apart.
        """
        rows: list[Row] = []
        owners: list[list[int]] = []
        for some, first, last in self._stretches(reading, places):
            for group in _far_apart(places, some):
                rows.append(self._hide(reading, [places[i] for i in group], first, last))
                owners.append(group)

        def answers_of(which: int, log_p: torch.Tensor) -> list[tuple[int, Answer]]:
            best, order = log_p.topk(min(RANKED, log_p.shape[1]))
            found = []
            for i, line, values, tokens in zip(owners[which], log_p, best.tolist(), order.tolist(), strict=True):
                wanted = dict(zip(asked[i], line[list(asked[i])].tolist(), strict=True))
                found.append((i, Answer(wanted, list(zip(tokens, values, strict=True)))))
            return found

        answers = dict(pair for pairs in log_probs(self.model, rows, answers_of, None, ROUND) for pair in pairs)
        return [answers[i] for i in range(len(places))]

    def chain(self, reading: Reading, candidates: Sequence[tuple[Place, list[int]]]) -> list[float]:
        """Return the exact log p(w | both sides) of candidates of any length."""
        scored = []
        for place, word in candidates:
            side = max(0, min(self.model.length, WINDOW) - len(word)) // 2
            before = reading.tokens[max(0, place.start - side) : place.start]
            scored.append(Scored(before, word, reading.tokens[place.stop : place.stop + side]))
        return chain_scores(self.model, scored, level=None, multiple=ROUND)

    def _stretches(self, reading: Reading, places: Sequence[Place]) -> Iterator[tuple[list[int], int, int]]:
        """Yield the places of each stretch of the text, and the first and last token of its window."""
        margin = self.model.length // 8  # tokens of context on either side
        stretches: list[list[int]] = []
        for i in sorted(range(len(places)), key=places.__getitem__):
            if not stretches or places[i].stop - places[stretches[-1][0]].start > self.model.length - 2 * margin:
                stretches.append([])
            stretches[-1].append(i)
        for some in stretches:
            first, last = places[some[0]].start, max(places[i].stop for i in some)
            yield some, max(0, first - margin), min(len(reading.tokens), last + margin)

    def _hide(self, reading: Reading, places: Sequence[Place], first: int, last: int) -> Row:
        """Return the tokens from first to last with one mask for each place."""
        tokens: list[int] = []
        asked = []
        at = first
        for place in places:
            tokens += reading.tokens[at : place.start]
            asked.append(len(tokens))
            tokens.append(self.mask)
            at = place.stop
        tokens += reading.tokens[at : max(at, last)]
        return Row(tokens[: self.model.length], asked)


def reads_words(model: "Model") -> bool:
    """Return whether a model has masked noise over word pieces, so that most words are one token."""
    return isinstance(model.process, Masked) and model.codec.prepends_space


@lru_cache(maxsize=8)
def words_of(codec: Codec) -> dict[int, str]:
    """Return the tokens of a codec that are a blank and letters, without the blank."""
    shown = ((token, codec.decode([token])) for token in range(codec.vocab) if token != codec.eos)
    return {token: text[1:] for token, text in shown if text[:1] == " " and text[1:].isalpha() and text.isascii()}


@lru_cache(maxsize=8)
def has_letters_only(codec: Codec) -> bool:
    """Return whether all tokens longer than one character consist of a…z and blanks."""
    texts = (codec.decode([token]) for token in range(codec.vocab) if token != codec.eos)
    longer = [text for text in texts if len(text) > 1]
    return bool(longer) and all(not text.strip(LETTERS) for text in longer)


def _far_apart(places: Sequence[Place], some: list[int]) -> list[list[int]]:
    """Group the places so that at least `APART` tokens lie between any two in a group."""
    groups: list[list[int]] = []
    for i in some:
        free = next((group for group in groups if places[group[-1]].stop + APART <= places[i].start), None)
        if free is None:
            groups.append([i])
        else:
            free.append(i)
    return groups
