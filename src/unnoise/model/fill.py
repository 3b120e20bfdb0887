"""Filling in words: for each [WORD] of a text what could stand there, ranked by the model's own probability."""

import math
import re
from typing import TYPE_CHECKING, NamedTuple

import torch

from unnoise.families.autoregressive import NextToken
from unnoise.model import word_left_to_right, word_search
from unnoise.model.template import GAP, MARKS, WORD
from unnoise.model.word_search import Found, Place
from unnoise.model.word_tokens import INSIDE, WordTokens, is_word
from unnoise.process.masked import Masked

if TYPE_CHECKING:
    from unnoise.model.model import Model

WINDOW = 128  # tokens that are read, the word's included
DRAWS = 32  # fillings that are drawn from a model of variable length
DRAW_STEPS = 16
FIRST_WORD = re.compile(rf"\s*([\w{INSIDE}]+)")


class Candidate(NamedTuple):
    """A word that could stand at a mark, and its probability among those that were considered."""

    text: str
    probability: float


class Mark(NamedTuple):
    """A [WORD]: the character at which it starts, and the text between it and the marks beside it."""

    start: int
    before: str
    after: str


@torch.no_grad()
def fill(
    model: "Model", text: str, most: int = 5, label: int | str | None = None, guidance: float = 1.0
) -> list[list[Candidate]]:
    """For each [WORD] its `most` likeliest words; marks are filled one after another, the surest first.

    A mark is read with the text up to the marks beside it, those with their first candidates where they are filled already.
    """
    if most < 1:
        raise ValueError(f"the number of candidates must be ≥ 1, found {most}")
    pieces = text.split(WORD)
    if len(pieces) == 1:
        raise ValueError(f"no word to fill in: mark each with {WORD}")
    finder = WordFinder(model, label, guidance)
    chosen: dict[int, list[Candidate]] = {}
    ranked: dict[int, list[Candidate]] = {}
    for _ in pieces[1:]:
        for i in range(len(pieces) - 1):
            if i not in chosen and i not in ranked:
                ranked[i] = finder.candidates(*_context(pieces, chosen, i))
        surest = max(ranked, key=lambda i: ranked[i][0].probability if ranked[i] else 0.0)
        chosen[surest] = ranked.pop(surest)
        for beside in _unfilled_beside(surest, len(pieces) - 1, chosen):  # they have more context now
            ranked.pop(beside, None)
    return [chosen[i][:most] for i in range(len(pieces) - 1)]


def filled_in(found: list[list[Candidate]], n: int) -> list[tuple[list[str], float]]:
    """The n likeliest ways to fill in all marks together, a word for each, with the product of their probabilities."""
    ways: list[tuple[list[str], float]] = [([], 1.0)]
    for candidates in found:
        longer = [([*words, one.text], p * one.probability) for words, p in ways for one in candidates or [Candidate(WORD, 1.0)]]
        ways = sorted(longer, key=lambda way: -way[1])[:n]
    return ways


def with_words(text: str, words: list[str]) -> str:
    """The text with these words in the place of its marks."""
    pieces = text.split(WORD)
    return pieces[0] + "".join(word + piece for word, piece in zip(words, pieces[1:], strict=True))


def _context(pieces: list[str], chosen: dict[int, list[Candidate]], i: int) -> tuple[str, str]:
    """The text before and after mark i, up to the next mark that is not filled."""
    before, after = pieces[i], pieces[i + 1]
    for j in range(i - 1, -1, -1):
        if not chosen.get(j):
            break
        before = pieces[j] + chosen[j][0].text + before
    for j in range(i + 1, len(pieces) - 1):
        if not chosen.get(j):
            break
        after += chosen[j][0].text + pieces[j + 1]
    return MARKS.split(before)[-1], MARKS.split(after)[0]


def _unfilled_beside(i: int, count: int, chosen: dict[int, list[Candidate]]) -> list[int]:
    """The nearest marks on either side that are not filled."""
    left = next((j for j in range(i - 1, -1, -1) if j not in chosen), None)
    right = next((j for j in range(i + 1, count) if j not in chosen), None)
    return [j for j in (left, right) if j is not None]


class WordFinder:
    """A model that is asked for words."""

    def __init__(self, model: "Model", label: int | str | None = None, guidance: float = 1.0):
        if model.codec.grid:
            raise ValueError("this is a model of images: there are no words to fill in")
        self.model, self.label, self.guidance = model, label, guidance
        self.denoiser = model.denoiser.condition(model.label_number(label), guidance)
        self.words = model.word_tokens.to(model.device)
        model.network.eval()

    def candidates(self, before: str, after: str) -> list[Candidate]:
        """What could stand between two texts, the likeliest first, with probabilities that sum to 1."""
        model, place = self.model, self.place(before, after)
        scores: dict[str, float] = {}
        if isinstance(model.process, Masked):
            found = word_search.find_words(model, self.denoiser, self.words, place)
        elif isinstance(self.denoiser, NextToken):
            found = word_left_to_right.find_words(model, self.denoiser, self.words, place)
        elif model.process.variable_length:
            found = self._drawn(place)
        else:
            raise ValueError(
                f"{WORD} needs a model of masked noise such as mdlm, or flexmdm or ar, found {model.method.name}: "
                "use [MASK] for each token"
            )
        for tokens, log_p in found:
            word = model.codec.decode(tokens).removeprefix(" ")
            if is_word(word):  # tokens that differ may make the same word
                scores[word] = float(torch.logaddexp(*torch.tensor([scores.get(word, -math.inf), log_p], dtype=torch.float64)))
        if not scores:
            return []
        probabilities = torch.softmax(torch.tensor([*scores.values()], dtype=torch.float64), 0).tolist()
        return sorted(map(Candidate, scores, probabilities), key=lambda one: -one.probability)

    def place(self, before: str, after: str) -> Place:
        """The place between two texts, with as much of them as is read: of what comes after a third at least."""
        model, blank = self.model, self.words.blank
        given, following = model.codec.encode_before(before).tolist(), model.codec.encode(after).tolist()
        if not model.codec.joins_blanks and blank is not None:  # words are between blanks
            given = given or [blank] * (not model.whole_texts)
            following = following or [blank]
        window = min(WINDOW, model.length)
        longest = max(1, min(self.words.longest, window // 2))
        room = window - longest - 1
        following = following[: max(room // 3, room - len(given))]
        given = given[max(0, len(given) - (room - len(following))) :]
        return Place(given, following, longest, model.codec.joins_blanks and before.endswith(" "))

    def _drawn(self, place: Place) -> list[Found]:
        """Words that a model of variable length writes into a gap, each with the number of times it does."""
        codec = self.model.codec
        before = codec.decode(place.before) + " " * place.after_blank
        after = codec.decode(place.after)
        length = len(place.before) + place.longest + len(place.after)
        texts = self.model.infill(
            f"{before}{GAP}{after}", DRAWS, length, steps=DRAW_STEPS, label=self.label, guidance=self.guidance
        )
        words = [FIRST_WORD.match(text[len(before) : len(text) - len(after)]) for text in texts]
        return [Found(tuple(codec.encode(word[1]).tolist()), 0.0) for word in words if word]
