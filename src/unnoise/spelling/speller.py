"""Spell checking: a text is taken as a slightly noised one, and each word is weighed against its rivals in their context.

Rivals of what stands there are words that look or sound like it, two words run together, and a word torn apart; so letters can
be inserted and deleted with a model of any kind of noise. What a rival is worth is the sum of what its letters, its count, and
the model's own conditional p(rival | the rest) say (`Channel`).
"""

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unnoise.denoiser import predict_clean
from unnoise.process import Masked, Uniform
from unnoise.spelling.channel import Channel, evidence
from unnoise.spelling.distance import check_installed, edit_distance
from unnoise.spelling.words import WORD, Words

if TYPE_CHECKING:
    from unnoise.model.model import Model

LEVEL = 0.05  # how noised a text is taken to be by a model of uniform noise
CONTEXT = 32  # characters of context on either side
ROWS = 256  # texts evaluated at once
RARE = 20  # words that occur more often have only near rivals
ADDRESS = re.compile(r"\S*(?:@|://|www\.)\S*")
SHREDS = {"nt", "re", "ve", "ll"}  # what is left of wasn't and we've in a text without apostrophes
FREQUENT = 50  # a word is torn apart into words that occur more often
SHORTLIST = 6  # rivals considered in context
OPENERS = '.!?:"“'  # a word after these, with a capital, begins a sentence
CAUTION = 1.5  # at strength 0.5 a candidate must have a probability of 0.35
WARY = 4.0  # rivals that are so far behind, in nats, before context are not considered


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


class Candidate(NamedTuple):
    """What could be meant by a span of the text: the characters it covers, what would stand there, and what speaks for it."""

    start: int
    stop: int
    text: str
    evidence: dict[str, float]


class Speller:
    """A model and a word list that correct together."""

    def __init__(self, model: "Model", words: Words, channel: Channel | None = None):
        if not isinstance(model.process, Masked | Uniform):
            raise ValueError(
                f"spell checking needs a model of masked or uniform noise such as mdlm or udlm, found {model.method.name}"
            )
        check_installed()
        self.model, self.words, self.channel = model, words, channel or Channel()

    def correct(self, text: str, strength: float = 0.5, keep: Collection[str] = ()) -> Correction:
        """The text with its likeliest candidates; a word changes if another is likelier, and more than (1 − strength)^1.5."""
        if not 0 <= strength <= 1:
            raise ValueError(f"strength must lie in [0, 1], found {strength}")
        edits = []
        covered = 0
        for candidates in self.weigh(text, {word.lower() for word in keep}):
            scores = torch.tensor([self.channel.weigh(candidate.evidence) for candidate in candidates], dtype=torch.float64)
            ranked = sorted(zip(torch.softmax(scores, 0).tolist(), candidates, strict=True), key=lambda pair: -pair[0])
            best, candidate = ranked[0]
            if candidate is candidates[0] or best <= (1 - strength) ** CAUTION or candidate.start < covered:
                continue
            before, after, *others = without_shared_end(
                [text[candidate.start : candidate.stop], *(r.text for _, r in ranked[:4])]
            )
            alternatives = [(matched_case(before, other), p) for other, (p, _) in zip(others, ranked[1:], strict=False)]
            edits.append(Edit(candidate.start, before, matched_case(before, after), best, alternatives))
            covered = candidate.start + len(before)
        result = text
        for edit in reversed(edits):
            result = result[: edit.start] + edit.after + result[edit.start + len(edit.before) :]
        return Correction(result, edits)

    def weigh(self, text: str, keep: Collection[str] = (), wary: float = WARY) -> Iterator[list[Candidate]]:
        """For each word in doubt its candidates, with all that speaks for them; the first is what stands."""
        doubtful = list(self.doubts(text, keep, wary))
        context = iter(self.context(text, [candidate for candidates in doubtful for candidate in candidates]))
        for candidates in doubtful:
            yield [candidate._replace(evidence=candidate.evidence | {"context": next(context)}) for candidate in candidates]

    def doubts(self, text: str, keep: Collection[str] = (), wary: float = WARY) -> Iterator[list[Candidate]]:
        """The candidates of each word that has rivals less than `wary` nats behind before context is looked at.

        Addresses are left alone, and so are letters that are part of something longer (sha256, matinée).
        """
        addresses = [(match.start(), match.end()) for match in ADDRESS.finditer(text)]
        found = [match for match in WORD.finditer(text) if not any(a <= match.start() < b for a, b in addresses)]
        for match, following in itertools.zip_longest(found, found[1:]):
            word = match.group().lower()
            if "'" in word or word in keep:
                continue
            rivals = {(match.end(), rival) for rival in self._rivals(word)}
            if following and text[match.end() : following.start()] == " " and following.group().lower() not in keep:
                joined = word + following.group().lower()
                if joined in self.words.counts:
                    rivals.add((following.end(), joined))
            candidates = self._aligned(text, match, [(match.end(), word), *sorted(rivals)])
            standing = self.channel.weigh(candidates[0].evidence)
            behind = [(standing - self.channel.weigh(rival.evidence), rival) for rival in candidates[1:]]
            near = sorted((pair for pair in behind if pair[0] < wary), key=lambda pair: pair[0])
            if near:
                yield [candidates[0], *(rival for _, rival in near[:SHORTLIST])]

    def _rivals(self, word: str) -> Iterator[str]:
        """Words that look or sound like this one, and the two into which it can be torn."""
        known = self.words.counts.get(word, 0)
        reach = 1 if known > RARE or len(word) < 3 else 2
        yield from self.words.near(word, reach)
        yield from (other for other in self.words.alike(word) if edit_distance(word, other) <= reach + 1)
        if not known:
            for cut in range(1, len(word)):
                left, right = word[:cut], word[cut:]
                if {left, right} & SHREDS or (len(left) == 1 and left not in "ai") or (len(right) == 1 and right not in "ai"):
                    continue
                if min(self.words.counts.get(left, 0), self.words.counts.get(right, 0)) > FREQUENT:
                    yield f"{left} {right}"

    def _aligned(self, text: str, match: "re.Match[str]", rivals: list[tuple[int, str]]) -> list[Candidate]:
        """All candidates over the same span, so that their probabilities compare."""
        start, last = match.start(), max(stop for stop, _ in rivals)
        capital = match.group()[0].isupper()
        opens = not text[:start].rstrip() or text[:start].rstrip()[-1] in OPENERS or "\n" in text[:start][-1:]
        standing = text[start:last].lower()
        candidates = []
        for stop, rival in rivals:
            whole = rival + text[stop:last]
            found = evidence(self.words, standing, whole.lower(), capital and not opens, capital and opens)
            candidates.append(Candidate(start, last, whole, found))
        return candidates

    # ---- what the model says ------------------------------------------------------------------------------------------

    def context(self, text: str, candidates: list[Candidate]) -> list[float]:
        """log p_model(candidate | the text around it), for each: in nats."""
        codec = self.model.codec
        rows: list[np.ndarray] = []
        spans: list[tuple[int, int]] = []
        for candidate in candidates:
            inside = codec.encode(candidate.text)[: self.model.length]
            room = self.model.length - len(inside)  # what a short model has left for the context
            before = codec.encode(text[max(0, candidate.start - CONTEXT) : candidate.start])
            before = before[max(0, len(before) - room // 2) :]
            after = codec.encode(text[candidate.stop : candidate.stop + CONTEXT])[: room - len(before)]
            rows.append(np.concatenate([before, inside, after]))
            spans.append((len(before), len(before) + len(inside)))
        if isinstance(self.model.process, Masked):
            return self._conditionals(rows, spans)
        return self._contentment(rows, spans)

    def _conditionals(self, rows: list[np.ndarray], spans: list[tuple[int, int]]) -> list[float]:
        """Masked noise: Σ_j log p(c_j | c_{<j}, the rest), the letters after j masked: the model's exact conditional.

        Readings of one length that begin alike share their questions.
        """
        mask = self.model.process.vocab
        asked: dict[bytes, tuple[np.ndarray, int, list[tuple[int, int]]]] = {}  # canvas, place, which candidates' which letter
        for i, (row, (start, stop)) in enumerate(zip(rows, spans, strict=True)):
            for place in range(start, stop):
                masked = row.copy()
                masked[place:stop] = mask
                asked.setdefault(masked.tobytes(), (masked, place, []))[2].append((i, row[place]))
        totals = [0.0] * len(rows)
        by_length: dict[int, list[tuple[np.ndarray, int, list[tuple[int, int]]]]] = {}
        for question in asked.values():
            by_length.setdefault(len(question[0]), []).append(question)
        for group in by_length.values():
            for first in range(0, len(group), ROWS):
                some = group[first : first + ROWS]
                x = torch.from_numpy(np.stack([canvas for canvas, _, _ in some]))
                where = torch.zeros(x.shape, dtype=torch.bool)
                where[torch.arange(len(some)), torch.tensor([place for _, place, _ in some])] = True
                t = torch.full((len(some),), LEVEL, dtype=torch.float64)
                for (_, _, letters), values in zip(some, self._clean(x, t, where).tolist(), strict=True):
                    for i, letter in letters:
                        totals[i] += values[letter]
        return totals

    def _contentment(self, rows: list[np.ndarray], spans: list[tuple[int, int]]) -> list[float]:
        """Uniform noise: Σ_j log p(x_0 = c_j | x_t), with the candidate standing in a text that is a little noised."""
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
        return predict_clean(self.model.denoiser, process, x, t.to(x.device), where).cpu()


def without_shared_end(texts: list[str]) -> list[str]:
    """Without the last word of each, if it is the same in all and not all of any: an edit need not cover it."""
    shared = {text.rpartition(" ")[2] for text in texts}
    return [text.rpartition(" ")[0] for text in texts] if len(shared) == 1 and all(" " in text for text in texts) else texts


def matched_case(before: str, after: str) -> str:
    """`after` written as `before` was: CAPITALS, Title, or as it is."""
    if len(before) > 1 and before.isupper():
        return after.upper()
    return after[:1].upper() + after[1:] if before[:1].isupper() else after
