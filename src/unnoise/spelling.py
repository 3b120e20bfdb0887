"""Spell checking: a text is taken as a slightly noised one, and each word is weighed against its rivals in their context.

With w what stands there and c a word that could have been meant,

    log p(c | w, the rest) = a·log p(c) + b·log p_model(c | the rest) + log p(w | c) + constant,

p(c) from the word counts of the training text, p_model the model's own conditional, p(w | c) a channel that makes few mistakes.
Rivals are words at a distance of one or two (a letter more, less or other, two neighbours swapped), two words run together, and
a word torn apart; so letters can be inserted and deleted with a model of any kind of noise.
"""

import gzip
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unnoise.denoiser import clean_at
from unnoise.files import write_atomically
from unnoise.process import Masked, Uniform

if TYPE_CHECKING:
    from unnoise.model import Model

WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*")
FILE = "words.txt.gz"
LEVEL = 0.05  # how noised a text is taken to be by a model of uniform noise
AROUND = 32  # characters of context on either side
ROWS = 256  # texts evaluated at once


class Words:
    """The words of a training text with their counts."""

    def __init__(self, counts: dict[str, int]):
        if not counts:
            raise ValueError("a word list needs at least one word")
        self.counts = counts
        self.total = sum(counts.values())

    @staticmethod
    def of(texts: Iterable[str], most: int = 60_000, least: int = 2) -> "Words":
        """The most frequent words that occur at least `least` times, in lower case."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(WORD.findall(text.lower()))
        kept = {word: n for word, n in counts.most_common(most) if n >= least}
        return Words(kept or dict(counts.most_common(most)))

    @staticmethod
    def load(path: Path) -> "Words":
        """From a gzipped file with a word and its count on each line."""
        try:
            lines = gzip.decompress(path.read_bytes()).decode().splitlines()
            return Words({word: int(count) for word, count in (line.split() for line in lines)})
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a word list: {error}") from error

    def save(self, path: Path) -> None:
        """Write that file."""
        content = "".join(f"{word} {count}\n" for word, count in self.counts.items())
        write_atomically(path, gzip.compress(content.encode(), mtime=0))

    @cached_property
    def _list(self) -> list[str]:
        return list(self.counts)

    def log_p(self, word: str) -> float:
        """log p of a word by its count; a word that never occurred has half a count."""
        return math.log(self.counts.get(word, 0.5) / self.total)

    def near(self, word: str, distance: int) -> dict[str, int]:
        """Other words within so many edits, and how many these are."""
        from rapidfuzz import process as search
        from rapidfuzz.distance import OSA

        found = search.extract(word, self._list, scorer=OSA.distance, score_cutoff=distance, limit=None)
        return {other: int(edits) for other, edits, _ in found if other != word}


@dataclass(frozen=True)
class Channel:
    """What is believed of mistakes, in nats, and how much each voice counts; fitted to mistakes of school children."""

    edit: float = 7.4  # the first edit of a word
    further: float = 5.5  # the second
    first_letter: float = 5.5  # more for a change of the first letter
    boundary: float = 2.7  # words run together or torn apart
    unknown: float = 6.4  # a word that the training text does not have
    by_count: float = 0.41
    by_context: float = 0.44
    shortlist: int = 5
    wary: float = 8.0  # rivals that are so far behind before context are not considered

    def cost(self, standing: str, meant: str, edits: int) -> float:
        """−log p(standing | meant), up to a constant."""
        if edits == 0:
            return 0.0
        first = self.first_letter if standing[:1] != meant[:1] else 0.0
        return self.edit + self.further * (edits - 1) + first


@dataclass(frozen=True)
class Edit:
    """One change: the character at which it starts, what stood there, what stands there now, how sure it is (0 to 1), and what
    else could be meant, each with its probability."""

    start: int
    before: str
    after: str
    confidence: float
    alternatives: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Correction:
    """The corrected text and its edits, in order; `start` counts in the original text."""

    text: str
    edits: list[Edit]


class Rival(NamedTuple):
    """A reading of a span of the text: the characters it covers, what would stand there, and −log p(what stands | it)."""

    start: int
    stop: int
    text: str
    cost: float


class Speller:
    """A model and a word list that correct together."""

    def __init__(self, model: "Model", words: Words, channel: Channel | None = None):
        if not isinstance(model.process, Masked | Uniform):
            raise ValueError(
                f"spell checking needs a model of masked or uniform noise such as mdlm or udlm, found {model.method.name}"
            )
        self.model, self.words, self.channel = model, words, channel or Channel()

    def correct(self, text: str, strength: float = 0.5, keep: Collection[str] = ()) -> Correction:
        """The text with its likeliest readings; a word changes if another is likelier than 1 − strength (all in all)."""
        if not 0 <= strength <= 1:
            raise ValueError(f"strength must lie in [0, 1], found {strength}")
        kept = {word.lower() for word in keep}
        edits = []
        covered = 0
        for readings, scores in self.weigh(text, kept):
            probabilities = torch.softmax(torch.tensor(scores, dtype=torch.float64), 0).tolist()
            ranked = sorted(zip(probabilities, readings, strict=True), key=lambda pair: -pair[0])
            best, reading = ranked[0]
            if reading == readings[0] or best <= 1 - strength or reading.start < covered:
                continue
            before = text[reading.start : reading.stop]
            others = [(matched_case(before, other.text), p) for p, other in ranked[1:4]]
            edits.append(Edit(reading.start, before, matched_case(before, reading.text), best, others))
            covered = reading.stop
        result = text
        for edit in reversed(edits):
            result = result[: edit.start] + edit.after + result[edit.start + len(edit.before) :]
        return Correction(result, edits)

    def weigh(self, text: str, keep: Collection[str] = ()) -> Iterator[tuple[list[Rival], list[float]]]:
        """For each word in doubt, its readings (the first is what stands) and their log probabilities, up to a constant."""
        doubtful = list(self.doubts(text, keep))
        flat = [reading for readings in doubtful for reading in readings]
        if not flat:
            return
        context = self.context(text, flat)
        place = 0
        for readings in doubtful:
            scores = []
            for reading in readings:
                counted = self.channel.by_count * self._count(reading.text) - self._strange(reading.text)
                scores.append(counted + self.channel.by_context * context[place] - reading.cost)
                place += 1
            yield readings, scores

    def doubts(self, text: str, keep: Collection[str] = ()) -> Iterator[list[Rival]]:
        """The readings of each word that has rivals near enough before context is looked at."""
        found = list(WORD.finditer(text))
        for i, match in enumerate(found):
            word = match.group().lower()
            if "'" in word or word in keep:
                continue
            standing = Rival(match.start(), match.end(), word, self.channel.cost(word, word, 0))
            behind = [
                (self._count(word) - self._strange(word) - (self._count(rival.text) - rival.cost), rival)
                for rival in self._rivals(match, found[i + 1] if i + 1 < len(found) else None, text, keep)
            ]
            near = sorted((pair for pair in behind if pair[0] < self.channel.wary), key=lambda pair: pair[0])
            if near:
                yield self._aligned(text, standing, [rival for _, rival in near[: self.channel.shortlist]])

    def _count(self, reading: str) -> float:
        return sum(map(self.words.log_p, reading.split()))

    def _strange(self, reading: str) -> float:
        return self.channel.unknown * sum(word not in self.words.counts for word in reading.split())

    def _rivals(
        self, match: "re.Match[str]", following: "re.Match[str] | None", text: str, keep: Collection[str]
    ) -> Iterator[Rival]:
        word = match.group().lower()
        known = self.words.counts.get(word, 0)
        reach = 1 if known > 20 or len(word) < 4 else 2
        for other, edits in self.words.near(word, reach).items():
            yield Rival(match.start(), match.end(), other, self.channel.cost(word, other, edits))
        if following is not None and text[match.end() : following.start()] == " ":
            joined = word + following.group().lower()
            if joined in self.words.counts and following.group().lower() not in keep:
                yield Rival(match.start(), following.end(), joined, self.channel.boundary)
        if not known:
            for cut in range(1, len(word)):
                left, right = word[:cut], word[cut:]
                if min(self.words.counts.get(left, 0), self.words.counts.get(right, 0)) > 50:
                    yield Rival(match.start(), match.end(), f"{left} {right}", self.channel.boundary)

    def _aligned(self, text: str, standing: Rival, rivals: list[Rival]) -> list[Rival]:
        """All readings over the same span, so that their probabilities compare."""
        stop = max(rival.stop for rival in rivals)
        tail = {rival: text[rival.stop : stop] for rival in (standing, *rivals)}
        return [Rival(r.start, stop, r.text + tail[r].lower(), r.cost) for r in (standing, *rivals)]

    # ---- what the model says ------------------------------------------------------------------------------------------

    def context(self, text: str, readings: list[Rival]) -> list[float]:
        """log p_model(reading | the text around it), for each: in nats."""
        codec = self.model.codec
        rows: list[np.ndarray] = []
        spans: list[tuple[int, int]] = []
        for reading in readings:
            inside = codec.encode(reading.text)[: self.model.length]
            room = self.model.length - len(inside)  # what a short model has left for the context
            before = codec.encode(text[max(0, reading.start - AROUND) : reading.start])
            before = before[max(0, len(before) - room // 2) :]
            after = codec.encode(text[reading.stop : reading.stop + AROUND])[: room - len(before)]
            rows.append(np.concatenate([before, inside, after]))
            spans.append((len(before), len(before) + len(inside)))
        if isinstance(self.model.process, Masked):
            return self._conditionals(rows, spans)
        return self._contentment(rows, spans)

    def _conditionals(self, rows: list[np.ndarray], spans: list[tuple[int, int]]) -> list[float]:
        """Masked noise: Σ_j log p(c_j | c_{<j}, the rest), the letters after j masked: the model's exact conditional."""
        mask = self.model.process.vocab
        asked: list[tuple[int, np.ndarray, int]] = []
        for i, (row, (start, stop)) in enumerate(zip(rows, spans, strict=True)):
            for place in range(start, stop):
                masked = row.copy()
                masked[place:stop] = mask
                asked.append((i, masked, place))
        totals = [0.0] * len(rows)
        by_length: dict[int, list[tuple[int, np.ndarray, int]]] = {}
        for item in asked:
            by_length.setdefault(len(item[1]), []).append(item)
        for group in by_length.values():
            for first in range(0, len(group), ROWS):
                some = group[first : first + ROWS]
                x = torch.from_numpy(np.stack([row for _, row, _ in some]))
                where = torch.zeros(x.shape, dtype=torch.bool)
                where[torch.arange(len(some)), torch.tensor([place for _, _, place in some])] = True
                t = torch.full((len(some),), LEVEL, dtype=torch.float64)
                log_p = self._clean(x, t, where)
                for (i, _, place), values in zip(some, log_p, strict=True):
                    totals[i] += float(values[rows[i][place]])
        return totals

    def _contentment(self, rows: list[np.ndarray], spans: list[tuple[int, int]]) -> list[float]:
        """Uniform noise: Σ_j log p(x_0 = c_j | x_t), with the reading standing in a text that is a little noised."""
        totals = []
        for row, (start, stop) in zip(rows, spans, strict=True):
            x = torch.from_numpy(row)[None]
            where = torch.zeros(x.shape, dtype=torch.bool)
            where[0, start:stop] = True
            log_p = self._clean(x, torch.full((1,), LEVEL, dtype=torch.float64), where)
            totals.append(float(log_p.gather(1, x[where][:, None]).sum()))
        return totals

    @torch.no_grad()
    def _clean(self, x: Tensor, t: Tensor, where: Tensor) -> Tensor:
        """log p(x_0 | x_t) at the n positions: [n, K]."""
        process = self.model.process
        assert isinstance(process, Masked | Uniform)
        x, where = x.to(self.model.device), where.to(self.model.device)
        self.model.network.eval()
        return clean_at(self.model.denoiser, process, x, t.to(x.device), where).cpu()  # pyright: ignore[reportArgumentType]


def matched_case(before: str, after: str) -> str:
    """`after` written as `before` was: CAPITALS, Title, or as it is."""
    if len(before) > 1 and before.isupper():
        return after.upper()
    return after[:1].upper() + after[1:] if before[:1].isupper() else after
