"""Filling in words: for each [WORD] of a text what could stand there, ranked by the model's own probability."""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

from unnoise.families.autoregressive import NextToken
from unnoise.families.block.process import Blocks
from unnoise.model import word_in_blocks, word_left_to_right, word_search
from unnoise.model.template import GAP, MARKS, WORD
from unnoise.model.word_search import Found, Place
from unnoise.model.word_tokens import INSIDE, is_word
from unnoise.process.masked import Masked

if TYPE_CHECKING:
    from unnoise.model.model import Model

WINDOW = 96  # tokens that are read, the word's included
READ = 12 * WINDOW  # characters on each side that the window is taken from
DRAWS = 32  # fillings that are drawn from a model of variable length
DRAW_STEPS = 16
FIRST_WORD = re.compile(rf"\s*([\w{INSIDE}]+)")


class Candidate(NamedTuple):
    """A word that could stand at a mark, and its probability among those that were considered."""

    text: str
    probability: float


class Filling:
    """Fills the [WORD]s of a text one after another, the surest first; iterating does the work, a search at a time, and yields
    the number of the mark it was for.

    A mark is read with the text up to the marks beside it that are not filled, so that it is searched for again when one of
    them is filled nearby. found: the candidates of each mark by its number, likeliest first.
    """

    def __init__(self, model: "Model", text: str, label: int | str | None = None, guidance: float = 1.0):
        self.pieces = text.split(WORD)
        if len(self.pieces) == 1:
            raise ValueError(f"no word to fill in: mark each with {WORD}")
        self.finder = WordFinder(model, label, guidance)
        self.read = [model.codec.begun(self.pieces[0]), *self.pieces[1:]]
        self.found: dict[int, list[Candidate]] = {}

    @property
    def count(self) -> int:
        """How many marks there are."""
        return len(self.pieces) - 1

    def __iter__(self) -> Iterator[int]:
        places: dict[int, Place] = {}
        ranked: dict[int, list[Candidate]] = {}
        changed = list(range(self.count))
        while len(self.found) < self.count:
            for i in changed:
                place = self.finder.place(*self.context(i), begins=not i and not self.pieces[0].strip())
                if places.get(i) != place:
                    places[i], ranked[i] = place, self.finder.candidates(place)
                    yield i
            surest = max(ranked, key=lambda i: ranked[i][0].probability if ranked[i] else 0.0)
            self.found[surest] = ranked.pop(surest)
            beside = (range(surest - 1, -1, -1), range(surest + 1, self.count))
            nearest = (next((i for i in side if i not in self.found), None) for side in beside)
            changed = [i for i in nearest if i is not None]

    def context(self, i: int) -> tuple[str, str]:
        """The text before and after mark i, with the first candidates of marks that are filled, up to one that is not."""
        before, after = self.read[i], self.read[i + 1]
        for j in range(i - 1, -1, -1):
            if len(before) > READ or not self.found.get(j):
                break
            before = self.read[j] + self.found[j][0].text + before
        for j in range(i + 1, self.count):
            if len(after) > READ or not self.found.get(j):
                break
            after += self.found[j][0].text + self.read[j + 1]
        return MARKS.split(before[-READ:])[-1], MARKS.split(after[:READ])[0]

    def candidates(self, most: int) -> list[list[Candidate]]:
        """At most so many of each mark."""
        return [self.found[i][:most] for i in range(self.count)]

    def ways(self, n: int) -> list[tuple[list[str], float]]:
        """The n likeliest ways to fill in all marks, a word for each, with the product of their probabilities; a mark that
        nothing was found for stays."""
        ways: list[tuple[list[str], float]] = [([], 1.0)]
        for i in range(self.count):
            here = self.found[i][:n] or [Candidate(WORD, 1.0)]
            longer = [([*words, one.text], p * one.probability) for words, p in ways for one in here]
            ways = sorted(longer, key=lambda way: -way[1])[:n]
        return ways

    def text(self, words: list[str]) -> str:
        """The text with these words in the place of its marks."""
        return self.pieces[0] + "".join(word + piece for word, piece in zip(words, self.pieces[1:], strict=True))

    def finished(self) -> "Filling":
        """This, with all marks filled."""
        for _ in self:
            pass
        return self


class WordFinder:
    """A model that is asked for words."""

    def __init__(self, model: "Model", label: int | str | None = None, guidance: float = 1.0):
        if model.codec.grid:
            raise ValueError("this is a model of images: there are no words to fill in")
        self.model, self.label, self.guidance = model, label, guidance
        self.denoiser = model.denoiser.condition(model.label_number(label), guidance)
        self.words = model.word_tokens.to(model.device)
        model.network.eval()

    @torch.no_grad()
    def candidates(self, place: Place) -> list[Candidate]:
        """What could stand at a place, the likeliest first, with probabilities that sum to 1."""
        model = self.model
        scores: dict[str, float] = {}
        if isinstance(model.process, Blocks):
            found = word_in_blocks.find_words(model.process, self.denoiser, self.words, place)
        elif isinstance(model.process, Masked):
            found = word_search.find_words(model.process, self.denoiser, self.words, place)
        elif isinstance(self.denoiser, NextToken):
            found = word_left_to_right.find_words(self.denoiser, self.words, place)
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
        scores = {word: score for word, score in scores.items() if self._is_known(word)} or scores
        if place.begins:  # with a capital, where the model writes any
            scores = {word: score for word, score in scores.items() if word[:1].isupper()} or scores
        if not scores:
            return []
        probabilities = torch.softmax(torch.tensor([*scores.values()], dtype=torch.float64), 0).tolist()
        return sorted(map(Candidate, scores, probabilities), key=lambda one: -one.probability)

    def _is_known(self, word: str) -> bool:
        """Whether the training text has a word, if that is known; of a compound, its parts. Pieces of words can make others."""
        words = self.model.words
        if words is None or not self.model.codec.joins_blanks or words.knows(word.lower()):
            return True
        return all(part.isdigit() or words.knows(part) for part in re.split(f"[{INSIDE}]", word.lower()))

    def place(self, before: str, after: str, begins: bool = False) -> Place:
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
        within = begins and isinstance(model.process, Masked)  # a masked model reads it as a part of a longer text
        after_blank = model.codec.joins_blanks and (within or before.endswith(" "))
        return Place(given, following, longest, after_blank, begins)

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
