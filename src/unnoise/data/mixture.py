"""Several corpora mixed by weights: `--data "data/a:0.7,data/b:0.3"`.

The number n of a text alone determines the corpus it comes from. Among the first n texts, each corpus has its share to within
one text, for every n.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

import torch
from torch import Tensor

from unnoise.data.codec import Codec
from unnoise.data.texts import Batch, Segmentation, SequenceData, Source
from unnoise.process.state import PAD

LONGEST = 10_000  # characters in the description of a mixture
FINEST = 10_000  # largest denominator of a weight
PART = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)")


def mixture_parts(data: str) -> list[tuple[str, float]]:
    """Return the corpora and weights of "A:0.7,B:0.3", or an empty list for anything else."""
    if len(data) > LONGEST:
        return []
    found = [PART.fullmatch(part.strip()) for part in data.split(",")]
    parts = [(part[1], float(part[2])) for part in found if part is not None]
    return parts if len(parts) == len(found) > 1 else []


def check_same_weights(saved: str, now: str, run: str) -> None:
    """Raise ValueError if a resumed run would change the weights of its corpora. Their paths may change."""
    before, after = ([weight for _, weight in mixture_parts(data)] for data in (saved, now))
    if before != after:
        words = [":".join(f"{weight:g}" for weight in weights) or "one corpus" for weights in (before, after)]
        raise ValueError(f"the run in {run} mixes its corpora {words[0]}, not {words[1]}: resume it with the same weights")


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Return integers in the proportions of the weights."""
    if any(not 0 < weight < FINEST for weight in weights):
        raise ValueError(f"the weight of a corpus must be > 0, found {', '.join(f'{weight:g}' for weight in weights)}")
    total = sum(Fraction(str(weight)) for weight in weights)
    shares = [(Fraction(str(weight)) / total).limit_denominator(FINEST) for weight in weights]
    common = min(FINEST, lcm(*(share.denominator for share in shares)))
    return [max(1, round(share * common)) for share in shares]


class Turns:
    """Schedule of the corpora by integer weights w, with period Σw.

    Text k of a corpus has its turn between k·Σw/w and (k + 1)·Σw/w; among the corpora that are due, the one with the earliest
    deadline goes first. Each corpus then has n·w/Σw of the first n texts, to within one (Baruah et al. 1996, "Proportionate
    progress").
    """

    def __init__(self, weights: Sequence[int]):
        total = sum(weights)
        done = [0] * len(weights)
        which, nth = [], []
        for turn in range(total):
            may = [i for i, weight in enumerate(weights) if done[i] < weight and turn >= done[i] * total // weight]
            chosen = min(may, key=lambda i: -(-(done[i] + 1) * total // weights[i]))
            which.append(chosen)
            nth.append(done[chosen])
            done[chosen] += 1
        self.weights, self.which, self.nth = torch.tensor(weights), torch.tensor(which), torch.tensor(nth)

    def assign(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the corpus of each text, and the index of the text within it: [B] → [B] and [B] long."""
        turn = numbers % len(self.which)
        which = self.which[turn]
        return which, numbers // len(self.which) * self.weights[which] + self.nth[turn]

    def shares(self, count: int) -> list[int]:
        """Return the number of texts of each corpus among the first `count` texts."""
        rounds, turns = divmod(count, len(self.which))
        return (rounds * self.weights + torch.bincount(self.which[:turns], minlength=len(self.weights))).tolist()


class Mixture(Source):
    """Sources mixed by weights, with one codec. Held-out splits are mixed by the same weights."""

    def __init__(self, parts: Mapping[str, tuple[Source, float]]):
        if len(parts) < 2:
            raise ValueError("a mixture needs at least two corpora")
        self.parts = {name: source for name, (source, _) in parts.items()}
        self.weights = whole_weights([weight for _, weight in parts.values()])
        self.name = "+".join(source.name for source in self.parts.values())
        for name, source in self.parts.items():
            if source.label_names:
                raise ValueError(f"corpora with labels cannot be mixed: {name} has some")

    @property
    def splits(self) -> list[str]:
        first, *others = self.parts.values()
        return [split for split in first.splits if all(split in other.splits for other in others)]

    @property
    def train_documents(self) -> list[str]:
        return [text for source in self.parts.values() for text in source.train_documents]

    def lossless(self, codec: Codec, split: str, segment: Segmentation = "windows") -> bool:
        return all(source.lossless(codec, split, segment) for source in self.parts.values())

    def codec(self, name: str, segment: Segmentation = "windows") -> Codec:
        (first, codec), *others = ((part, source.codec(name, segment)) for part, source in self.parts.items())
        for part, other in others:
            if other.identity() != codec.identity():
                raise ValueError(
                    f"{first} and {part} have different codecs, {codec!r} and {other!r}: mixed corpora need one; "
                    "name it with --codec, or prepare the second with the first's folder as --codec"
                )
        return codec

    def texts(self, codec: Codec, split: str, length: int, segment: Segmentation = "windows") -> SequenceData:
        self.check_split(split)
        return MixedData([source.texts(codec, split, length, segment) for source in self.parts.values()], self.weights)


class MixedData(SequenceData):
    """Sequences of several parts, mixed by weights."""

    def __init__(self, parts: Sequence[SequenceData], weights: Sequence[int]):
        self.parts, self.turns = list(parts), Turns(weights)
        tokens = [weight * part.mean_length for part, weight in zip(parts, weights, strict=True)]
        self.mean_length = sum(tokens) / sum(weights)
        self.characters = sum(n * part.characters for n, part in zip(tokens, parts, strict=True)) / sum(tokens)

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        which, own = self.turns.assign(numbers)
        rows = {i: self.parts[i].batch(own[which == i], seed).x for i in which.unique().tolist()}
        x = torch.full((len(numbers), max(some.shape[1] for some in rows.values())), PAD)
        for i, some in rows.items():
            x[which == i] = _widened(some, x.shape[1])
        return Batch(x)

    @property
    def num_windows(self) -> int:
        """Maximum number of windows in which every part has its share."""
        total = len(self.turns.which)
        most = min(-(-(part.num_windows + 1) * total // int(w)) for part, w in zip(self.parts, self.turns.weights, strict=True))
        while any(n > part.num_windows for n, part in zip(self.turns.shares(most), self.parts, strict=True)):
            most -= 1
        return most

    def windows(self, limit: int | None = None) -> Tensor:
        """Return windows of all parts in the proportions of the weights, evenly thinned: [n, L] long."""
        count = self.num_windows if limit is None else min(limit, self.num_windows)
        rows = [part.windows(n) for n, part in zip(self.turns.shares(count), self.parts, strict=True) if n]
        if not rows:
            raise ValueError("the held-out splits are too small to mix: use a single corpus")
        return torch.cat([_widened(some, max(one.shape[1] for one in rows)) for some in rows])


def _widened(rows: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, width - rows.shape[1]), value=PAD)
