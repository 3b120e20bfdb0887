"""What a split of a corpus gives to a model: batches to train on, windows to measure on; fixed by a seed and a step.

Texts are rows of tokens, padded with −1 at their end where they are shorter than the longest of them.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unnoise.process.state import PAD
from unnoise.rng import RowGenerator


class Batch(NamedTuple):
    """Texts x [B, L] long and, where they have classes, their labels [B] long."""

    x: Tensor
    label: Tensor | None = None


class Texts(ABC):
    """characters: how many characters of raw text there are to a token, on average."""

    characters: float = 1.0

    @abstractmethod
    def batch(self, numbers: Tensor, seed: int) -> Batch:
        """The texts with these numbers [B] in an endless random order: which text a number has, the seed alone decides.

        So a run can go on anywhere, and several processes can each read their own part of a batch.
        """

    @abstractmethod
    def windows(self, limit: int | None = None) -> Tensor:
        """All texts in order, evenly thinned to at most `limit`: [n, L] long."""


class Stream(Texts):
    """One long stream of tokens [n], seen through windows of `length`."""

    def __init__(self, tokens: Tensor, length: int, characters: float = 1.0):
        if len(tokens) < length:
            raise ValueError(
                f"the training or held-out part has {len(tokens)} tokens, fewer than the model's length of {length}: "
                "give more text, or a shorter length"
            )
        self.tokens, self.length, self.characters = tokens, length, characters

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        start = _random(len(self.tokens) - self.length + 1, numbers, seed)
        return Batch(self.at(start))

    def windows(self, limit: int | None = None) -> Tensor:
        return self.at(_thinned(len(self.tokens) // self.length, limit) * self.length)

    def at(self, start: Tensor) -> Tensor:
        """The windows that begin at `start` [n]: [n, length]."""
        return self.tokens[start[:, None] + torch.arange(self.length)].long()


class LabelledStreams(Texts):
    """A stream for each label; a window lies in one of them and has its label."""

    def __init__(self, streams: dict[int, Stream]):
        self.streams = list(streams.values())
        self.labels = torch.tensor(list(streams))
        self.counts = torch.tensor([len(stream.tokens) - stream.length + 1 for stream in self.streams])
        tokens = sum(len(stream.tokens) for stream in self.streams)
        self.characters = sum(stream.characters * len(stream.tokens) for stream in self.streams) / tokens

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        start = _random(int(self.counts.sum()), numbers, seed)
        which = torch.searchsorted(self.counts.cumsum(0), start, right=True)
        within = start - (self.counts.cumsum(0) - self.counts)[which]
        rows = [self.streams[i].at(within[k : k + 1]) for k, i in enumerate(which.tolist())]
        return Batch(torch.cat(rows), self.labels[which])

    def windows(self, limit: int | None = None) -> Tensor:
        every = torch.cat([stream.windows() for stream in self.streams])
        return every[_thinned(len(every), limit)]


class Rows(Texts):
    """Texts that begin and end by themselves: sentences, or images. tokens: [n], all rows one after the other; labels: [N]."""

    def __init__(self, tokens: Tensor, lengths: np.ndarray, characters: float = 1.0, labels: Tensor | None = None):
        if not len(lengths):
            raise ValueError("there are no texts in the data, or all are longer than the model's length")
        self.tokens, self.lengths, self.characters = tokens, torch.from_numpy(lengths.astype(np.int64)), characters
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.labels = labels

    @staticmethod
    def of(rows: Tensor, labels: Tensor | None = None, characters: float = 1.0) -> "Rows":
        """Texts from a table [N, L] long, padded with −1."""
        there = rows != PAD
        return Rows(rows[there], there.sum(1).numpy(), characters, labels)

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        chosen = _random(len(self.lengths), numbers, seed)
        return Batch(self._at(chosen), None if self.labels is None else self.labels[chosen])

    def windows(self, limit: int | None = None) -> Tensor:
        return self._at(_thinned(len(self.lengths), limit))

    def _at(self, chosen: Tensor) -> Tensor:
        length = self.lengths[chosen][:, None]
        column = torch.arange(int(length.max()))
        place = (self.starts[chosen][:, None] + column).clamp_max(len(self.tokens) - 1)
        return torch.where(column < length, self.tokens[place].long(), PAD)


def _thinned(count: int, limit: int | None) -> Tensor:
    if limit is None or limit >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, limit).round().long()


def _random(count: int, numbers: Tensor, seed: int) -> Tensor:
    """A uniform whole number below `count` for each of the numbers: [B] → [B] long."""
    return (RowGenerator(seed, numbers).uniform(tuple(numbers.shape)) * count).long()
