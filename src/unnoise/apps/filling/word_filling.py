"""Fill in words: for each [WORD] of a text, rank the words that fit by the model's own probability."""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

from unnoise.apps.filling.search import (
    INSIDE,
    Found,
    MaskedSearch,
    Place,
    is_word,
    search_in_blocks,
    search_left_to_right,
    word_tokens,
)
from unnoise.apps.spelling.words import model_words
from unnoise.families.autoregressive import NextToken
from unnoise.families.block import Blocks
from unnoise.model.generate import BLANKS, GAP, MARKS, MASK, WORD
from unnoise.process.masked import Masked

if TYPE_CHECKING:
    from unnoise.model.model import Model

WINDOW = 96  # tokens of a network input, including the word
CONTEXT = 12 * WINDOW  # characters on each side that are tokenized for the window
NUM_DRAWS = 32  # samples from a model of variable length
DRAW_STEPS = 16
FIRST_WORD = re.compile(rf"\s*([\w{INSIDE}]+)")


class Candidate(NamedTuple):
    """A word for a mark, and its probability among the candidates."""

    text: str
    probability: float


def check_only_words(text: str) -> None:
    """Raise ValueError if a text has a [MASK] or a [GAP]."""
    if BLANKS.search(text):
        raise ValueError(f"fill in each {WORD} first, then {MASK} and {GAP}: a text cannot have both here")


class Filling:
    """A text whose [WORD]s are filled one after another, the most confident first.

    Iterate to do the work: each search yields the number of its mark. A mark is conditioned on the text up to the nearest
    unfilled mark on either side, so the search is repeated when a neighbour nearby has been filled.

    found: the candidates of each filled mark, by its index, most probable first.
    """

    def __init__(self, model: "Model", text: str, label: int | str | None = None, guidance_scale: float = 1.0):
        self.pieces = text.split(WORD)
        if len(self.pieces) == 1:
            raise ValueError(f"no word to fill in: mark each with {WORD}")
        if model.codec.grid:
            raise ValueError("this is a model of images: there are no words to fill in")
        self.model, self.label, self.guidance_scale = model, label, guidance_scale
        self.denoiser = model.denoiser.condition(model.label_number(label), guidance_scale)
        self.words = word_tokens(model.codec, model.device)
        self.inputs = [model.codec.with_leading_space(self.pieces[0]), *self.pieces[1:]]
        self.found: dict[int, list[Candidate]] = {}
        model.network.eval()

    @property
    def count(self) -> int:
        """Number of marks."""
        return len(self.pieces) - 1

    def __iter__(self) -> Iterator[int]:
        places: dict[int, Place] = {}
        ranked: dict[int, list[Candidate]] = {}
        changed = list(range(self.count))
        while len(self.found) < self.count:
            for i in changed:
                place = self._place(*self.context(i), begins=not i and not self.pieces[0].strip())
                if places.get(i) != place:
                    places[i], ranked[i] = place, self._ranked(place)
                    yield i
            surest = max(ranked, key=lambda i: ranked[i][0].probability if ranked[i] else 0.0)
            self.found[surest] = ranked.pop(surest)
            sides = (range(surest - 1, -1, -1), range(surest + 1, self.count))
            nearest = (next((i for i in side if i not in self.found), None) for side in sides)
            changed = [i for i in nearest if i is not None]

    def finished(self) -> "Filling":
        """Fill all marks and return this object."""
        for _ in self:
            pass
        return self

    def candidates(self, most: int) -> list[list[Candidate]]:
        """Return the first candidates of each mark, at most `most`."""
        return [self.found[i][:most] for i in range(self.count)]

    def ways(self, n: int) -> list[tuple[list[str], float]]:
        """Return the n most probable choices of a word for every mark, each with the product of its probabilities.

        A mark without candidates stays as it is.
        """
        ways: list[tuple[list[str], float]] = [([], 1.0)]
        for i in range(self.count):
            here = self.found[i][:n] or [Candidate(WORD, 1.0)]
            longer = [([*words, one.text], p * one.probability) for words, p in ways for one in here]
            ways = sorted(longer, key=lambda way: -way[1])[:n]
        return ways

    def text(self, words: list[str]) -> str:
        """Return the text with these words in place of its marks."""
        return self.pieces[0] + "".join(word + piece for word, piece in zip(words, self.pieces[1:], strict=True))

    def context(self, i: int) -> tuple[str, str]:
        """Return the text before and after mark i up to the nearest unfilled mark, with the best word in each filled one."""
        before, after = self.inputs[i], self.inputs[i + 1]
        for j in range(i - 1, -1, -1):
            if len(before) > CONTEXT or not self.found.get(j):
                break
            before = self.inputs[j] + self.found[j][0].text + before
        for j in range(i + 1, self.count):
            if len(after) > CONTEXT or not self.found.get(j):
                break
            after += self.found[j][0].text + self.inputs[j + 1]
        return MARKS.split(before[-CONTEXT:])[-1], MARKS.split(after[:CONTEXT])[0]

    def _place(self, before: str, after: str, begins: bool) -> Place:
        """Return the window around a mark; the text after the mark gets at least a third of it."""
        model, blank = self.model, self.words.blank
        given, following = model.codec.encode_prefix(before).tolist(), model.codec.encode(after).tolist()
        if not model.codec.prepends_space and blank is not None:  # a blank on either side delimits the word
            given = given or [blank] * (not model.whole_texts)
            following = following or [blank]
        window = min(WINDOW, model.length)
        longest = max(1, min(self.words.longest, window // 2))
        room = window - longest - 1
        following = following[: max(room // 3, room - len(given))]
        given = given[max(0, len(given) - (room - len(following))) :]
        within = begins and isinstance(model.process, Masked)  # to a masked model, the text is part of a longer one
        after_blank = model.codec.prepends_space and (within or before.endswith(" "))
        return Place(before=given, after=following, longest=longest, after_blank=after_blank, begins=begins)

    @torch.no_grad()
    def _ranked(self, place: Place) -> list[Candidate]:
        """Return the words for a place, most probable first, with probabilities that sum to 1."""
        scores: dict[str, float] = {}
        for tokens, log_p in self._search(place):
            word = self.model.codec.decode(tokens).removeprefix(" ")
            if is_word(word):  # different tokens may spell the same word
                scores[word] = float(torch.logaddexp(*torch.tensor([scores.get(word, -math.inf), log_p], dtype=torch.float64)))
        scores = {word: score for word, score in scores.items() if self._is_known(word)} or scores
        if place.begins:  # prefer a capital if the model has any
            scores = {word: score for word, score in scores.items() if word[:1].isupper()} or scores
        if not scores:
            return []
        probabilities = torch.softmax(torch.tensor([*scores.values()], dtype=torch.float64), 0).tolist()
        return sorted(map(Candidate, scores, probabilities), key=lambda one: -one.probability)

    def _search(self, place: Place) -> list[Found]:
        process = self.model.process
        if isinstance(process, Blocks):
            return search_in_blocks(process, self.denoiser, self.words, place)
        if isinstance(process, Masked):
            return MaskedSearch(process, self.denoiser, self.words, place).run()
        if isinstance(self.denoiser, NextToken):
            return search_left_to_right(self.denoiser, self.words, place)
        if process.variable_length:
            return self._drawn(place)
        raise ValueError(
            f"{WORD} needs a model of masked noise such as mdlm, or flexmdm or ar, found {self.model.method.name}: "
            f"use {MASK} for each token"
        )

    def _is_known(self, word: str) -> bool:
        """Return whether the training text has a word, or each part of a compound; true if the words are not recorded."""
        words = model_words(self.model)
        if words is None or not self.model.codec.prepends_space or words.knows(word.lower()):
            return True
        return all(part.isdigit() or words.knows(part) for part in re.split(f"[{INSIDE}]", word.lower()))

    def _drawn(self, place: Place) -> list[Found]:
        """Return the words that a model of variable length samples into a gap, one entry per sample."""
        codec = self.model.codec
        before = codec.decode(place.before) + " " * place.after_blank
        after = codec.decode(place.after)
        texts = self.model.infill(
            f"{before}{GAP}{after}",
            n=NUM_DRAWS,
            length=len(place.before) + place.longest + len(place.after),
            steps=DRAW_STEPS,
            label=self.label,
            guidance_scale=self.guidance_scale,
        )
        words = [FIRST_WORD.match(text[len(before) : len(text) - len(after)]) for text in texts]
        return [Found(tuple(codec.encode(word[1]).tolist()), 0.0) for word in words if word]
