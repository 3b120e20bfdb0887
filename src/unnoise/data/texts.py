"""What a split of a corpus gives to a model: batches to train on, windows to measure on; fixed by a seed and a number.

Texts are rows of tokens, padded with −1 at their end where they are shorter than the longest of them.

What every kind of training data offers.
"""

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from unnoise.data.codec import Codec
from unnoise.process.state import PAD
from unnoise.rng import RowGenerator, seed_of, shuffled

Cut = Literal["windows", "sentences", "whole"]
"""How a corpus is cut: windows of one stream; sentences, or short documents, each by itself; or whole texts (a line of a file,
a record), each followed by the end token."""


class Batch(NamedTuple):
    """Texts x [B, L] long and, where they have classes, their labels [B] long."""

    x: Tensor
    label: Tensor | None = None


class TokenArray(Protocol):
    """Tokens [n] by their places: a tensor, or shards on a disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Tensor, /) -> Tensor: ...


class Texts(ABC):
    """characters: how many characters of raw text there are to a token, mean_length: how many tokens to a text, on average."""

    characters: float = 1.0
    mean_length: float

    @abstractmethod
    def batch(self, numbers: Tensor, seed: int) -> Batch:
        """The texts with these numbers [B] in an endless random order: which text a number has, the seed alone decides.

        So a run can go on anywhere, and several processes can each read their own part of a batch.
        """

    @property
    @abstractmethod
    def num_windows(self) -> int:
        """How many texts `windows` has."""

    @abstractmethod
    def windows(self, limit: int | None = None) -> Tensor:
        """All texts in order, evenly thinned to at most `limit`: [n, L] long."""


class EpochData(Texts):
    """Texts that are read epoch by epoch, each of them once in every epoch, in another order each time."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many texts an epoch has."""

    @abstractmethod
    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        """The texts at these places [B] of these epochs [B]."""

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        epoch, place = shuffled(numbers, self.count, seed)
        return self.read(place, epoch, seed)


class Stream(EpochData):
    """One long stream of tokens [n], seen through windows of `length`.

    In each epoch the windows lie side by side, from a place that is drawn for the epoch. There are as many of them as fit
    wherever they begin: all but one or two windows' tokens are read in every epoch, other ones each time.
    """

    def __init__(self, tokens: TokenArray, length: int, characters: float = 1.0):
        if len(tokens) < length:
            raise ValueError(
                f"the training or held-out part has {len(tokens)} tokens, fewer than the model's length of {length}: "
                "give more text, or a shorter length"
            )
        self.tokens, self.length, self.characters, self.mean_length = tokens, length, characters, float(length)

    @property
    def count(self) -> int:
        return max(1, (len(self.tokens) + 1) // self.length - 1)

    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        return Batch(self.at(self.first(epoch, seed) + place * self.length))

    def first(self, epoch: Tensor, seed: int) -> Tensor:
        """Where the first window of an epoch begins: [B] → [B] long."""
        spare = len(self.tokens) - self.count * self.length
        return (RowGenerator(seed_of(seed, self.length), epoch).uniform(tuple(epoch.shape)) * (spare + 1)).long()

    @property
    def num_windows(self) -> int:
        return len(self.tokens) // self.length

    def windows(self, limit: int | None = None) -> Tensor:
        return self.at(thinned(self.num_windows, limit) * self.length)

    def at(self, start: Tensor) -> Tensor:
        """The windows that begin at `start` [n]: [n, length]."""
        return self.tokens[start[:, None] + torch.arange(self.length)].long()


class LabelledWindows(EpochData):
    """A stream for each label; a window lies in one of them and has its label."""

    def __init__(self, streams: dict[int, Stream]):
        self.streams = list(streams.values())
        self.labels = torch.tensor(list(streams))
        self.counts = torch.tensor([stream.count for stream in self.streams])
        tokens = sum(len(stream.tokens) for stream in self.streams)
        self.characters = sum(stream.characters * len(stream.tokens) for stream in self.streams) / tokens
        self.mean_length = self.streams[0].mean_length

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        which, within = part_of(place, self.counts)
        x = torch.empty(len(place), self.streams[0].length, dtype=torch.long)
        for i in which.unique().tolist():
            here = which == i
            x[here] = self.streams[i].read(within[here], epoch[here], seed).x
        return Batch(x, self.labels[which])

    @property
    def num_windows(self) -> int:
        return sum(stream.num_windows for stream in self.streams)

    def windows(self, limit: int | None = None) -> Tensor:
        every = torch.cat([stream.windows() for stream in self.streams])
        return every[thinned(len(every), limit)]


class Rows(EpochData):
    """Texts that begin and end by themselves: sentences, or images. tokens: [n], all rows one after the other; labels: [N]."""

    def __init__(self, tokens: Tensor, lengths: np.ndarray, characters: float = 1.0, labels: Tensor | None = None):
        if not len(lengths):
            raise ValueError("there are no texts in the data, or all are longer than the model's length")
        self.tokens, self.lengths, self.characters = tokens, torch.from_numpy(lengths.astype(np.int64)), characters
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.mean_length = len(tokens) / len(lengths)
        self.labels = labels

    @staticmethod
    def of(rows: Tensor, labels: Tensor | None = None, characters: float = 1.0) -> "Rows":
        """Texts from a table [N, L] long, padded with −1."""
        there = rows != PAD
        return Rows(rows[there], there.sum(1).numpy(), characters, labels)

    @property
    def count(self) -> int:
        return len(self.lengths)

    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        return Batch(self._at(place), None if self.labels is None else self.labels[place])

    @property
    def num_windows(self) -> int:
        return len(self.lengths)

    def windows(self, limit: int | None = None) -> Tensor:
        return self._at(thinned(len(self.lengths), limit))

    def _at(self, place: Tensor) -> Tensor:
        return padded_rows(self.tokens, self.starts[place], self.lengths[place])


class PaddedSequences(Texts):
    """Whole texts, filled up to `length` with their end token, for models that write texts of one length."""

    def __init__(self, texts: Texts, end: int, length: int):
        self.texts, self.end, self.length = texts, end, length
        self.characters, self.mean_length = texts.characters * texts.mean_length / length, float(length)

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        batch = self.texts.batch(numbers, seed)
        return Batch(self._filled(batch.x), batch.label)

    @property
    def num_windows(self) -> int:
        return self.texts.num_windows

    def windows(self, limit: int | None = None) -> Tensor:
        return self._filled(self.texts.windows(limit))

    def _filled(self, rows: Tensor) -> Tensor:
        wide = torch.nn.functional.pad(rows, (0, self.length - rows.shape[1]), value=PAD)
        return torch.where(wide == PAD, self.end, wide)


def padded_rows(tokens: TokenArray, start: Tensor, length: Tensor) -> Tensor:
    """The texts that begin at `start` [n] and have `length` [n] tokens, padded at their end: [n, longest] long."""
    column = torch.arange(int(length.max()))
    place = (start[:, None] + column).clamp_max(len(tokens) - 1)
    return torch.where(column < length[:, None], tokens[place].long(), PAD)


def part_of(place: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Which of several parts with so many texts each a place lies in, and where in it: [B] → [B] and [B]."""
    ends = counts.cumsum(0)
    which = torch.searchsorted(ends, place, right=True)
    return which, place - (ends - counts)[which]


def thinned(count: int, limit: int | None) -> Tensor:
    """The numbers 0…count − 1, evenly thinned to at most `limit` of them."""
    if limit is None or limit >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, limit, dtype=torch.float64).round().long()


class Source(ABC):
    """Where training data come from: texts, or images. label_names: of their classes, none where they have none."""

    name: str
    label_names: tuple[str, ...] = ()

    @property
    @abstractmethod
    def splits(self) -> list[str]:
        """The names of its parts."""

    @property
    def train_documents(self) -> list[str]:
        """The raw texts to train on; none where there are no texts."""
        return []

    def lossless(self, codec: Codec, split: str, cut: Cut = "windows") -> bool:
        """Whether a codec gives the texts of a split back as they are, by their first characters."""
        return True

    @abstractmethod
    def codec(self, name: str, cut: Cut = "windows") -> Codec:
        """The codec of this name for these data; `auto` chooses. Whole texts need an end token, as do windows of a stream in
        which documents end; sentences need none."""

    @abstractmethod
    def texts(self, codec: Codec, split: str, length: int, cut: Cut = "windows") -> Texts:
        """A split as a model of this length reads it."""

    def check_split(self, split: str) -> None:
        """Raise ValueError unless there is such a split."""
        if split not in self.splits:
            raise ValueError(f"{self.name} has no {split} split; it has {', '.join(self.splits)}")
