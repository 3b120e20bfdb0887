"""Sources of training data, and the sequences of their splits: batches for training and windows for evaluation.

A seed and a number determine each sequence of a batch. Sequences are padded with −1 to the longest of the batch.
"""

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from unnoise.data.codec import Codec
from unnoise.process.state import PAD
from unnoise.rng import RowGenerator, seed_of, shuffled

Segmentation = Literal["windows", "sentences", "documents"]
"""Windows of one stream; single sentences, or short documents; or whole documents (lines, records), each with the EOS token."""


class Batch(NamedTuple):
    """Sequences x [B, L] long, and labels [B] long if they have classes."""

    x: Tensor
    label: Tensor | None = None


class TokenArray(Protocol):
    """Tokens [n] indexed by position: a tensor, or shards on a disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Tensor, /) -> Tensor: ...


class SequenceData(ABC):
    """Sequences of tokens. characters: mean characters of raw text per token. mean_length: mean tokens per sequence."""

    characters: float = 1.0
    mean_length: float

    @abstractmethod
    def batch(self, numbers: Tensor, seed: int) -> Batch:
        """Return the sequences with these indices [B] in an endless random order that depends on the seed alone.

        A run can therefore resume anywhere, and each process can load its own part of a batch.
        """

    @property
    @abstractmethod
    def num_windows(self) -> int:
        """Number of sequences that `windows` returns."""

    @abstractmethod
    def windows(self, limit: int | None = None) -> Tensor:
        """Return all sequences in order, evenly thinned to at most `limit`: [n, L] long."""


class EpochData(SequenceData):
    """Sequences in epochs: each occurs once per epoch, in a new order each time."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of sequences in an epoch."""

    @property
    def num_windows(self) -> int:
        return self.count

    @abstractmethod
    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        """Return the sequences at these places [B] of these epochs [B]."""

    def batch(self, numbers: Tensor, seed: int) -> Batch:
        epoch, place = shuffled(numbers, self.count, seed)
        return self.read(place, epoch, seed)


class Windows(EpochData):
    """Windows of `length` tokens of one long stream [n].

    In each epoch the windows are adjacent, starting at a random place. Their number fits for every start, so each epoch skips
    the tokens of at most two windows, different ones each time.
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
        """Return the start of the first window of each epoch: [B] → [B] long."""
        spare = len(self.tokens) - self.count * self.length
        return (RowGenerator(seed_of(seed, self.length), epoch).uniform(tuple(epoch.shape)) * (spare + 1)).long()

    @property
    def num_windows(self) -> int:
        return len(self.tokens) // self.length

    def windows(self, limit: int | None = None) -> Tensor:
        return self.at(thinned(self.num_windows, limit) * self.length)

    def at(self, start: Tensor) -> Tensor:
        """Return the windows that begin at `start` [n]: [n, length]."""
        return self.tokens[start[:, None] + torch.arange(self.length)].long()


class LabelledWindows(EpochData):
    """Windows of one stream per label."""

    def __init__(self, streams: dict[int, Windows]):
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
        which, within = locate(place, self.counts)
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


class Sequences(EpochData):
    """Separate sequences: sentences, documents or images. tokens: concatenated sequences [n]. labels: [N]."""

    def __init__(self, tokens: Tensor, lengths: np.ndarray, characters: float = 1.0, labels: Tensor | None = None):
        if not len(lengths):
            raise ValueError("there are no texts in the data, or all are longer than the model's length")
        self.tokens, self.lengths, self.characters = tokens, torch.from_numpy(lengths.astype(np.int64)), characters
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.mean_length = len(tokens) / len(lengths)
        self.labels = labels

    @staticmethod
    def from_table(rows: Tensor, labels: Tensor | None = None, characters: float = 1.0) -> "Sequences":
        """Return the sequences of a table [N, L] long, padded with −1."""
        there = rows != PAD
        return Sequences(rows[there], there.sum(1).numpy(), characters, labels)

    @property
    def count(self) -> int:
        return len(self.lengths)

    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        return Batch(self._at(place), None if self.labels is None else self.labels[place])

    def windows(self, limit: int | None = None) -> Tensor:
        return self._at(thinned(len(self.lengths), limit))

    def _at(self, place: Tensor) -> Tensor:
        return padded_rows(self.tokens, self.starts[place], self.lengths[place])


class PaddedSequences(SequenceData):
    """Whole documents filled up to `length` with the EOS token, for models of fixed length."""

    def __init__(self, texts: SequenceData, end: int, length: int):
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
    """Return the sequences at `start` [n] of `length` [n] tokens, padded at the end: [n, longest] long."""
    column = torch.arange(int(length.max()))
    place = (start[:, None] + column).clamp_max(len(tokens) - 1)
    return torch.where(column < length[:, None], tokens[place].long(), PAD)


def locate(place: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of each place, and the place within it, given the number of sequences per part: [B] → [B] and [B]."""
    ends = counts.cumsum(0)
    which = torch.searchsorted(ends, place, right=True)
    return which, place - (ends - counts)[which]


def thinned(count: int, limit: int | None) -> Tensor:
    """Return the numbers 0…count − 1, evenly thinned to at most `limit`."""
    if limit is None or limit >= count:
        return torch.arange(count)
    return torch.linspace(0, count - 1, limit, dtype=torch.float64).round().long()


class Source(ABC):
    """A source of texts or images. label_names: names of the classes, if there are any."""

    name: str
    label_names: tuple[str, ...] = ()

    @property
    @abstractmethod
    def splits(self) -> list[str]:
        """Names of the splits."""

    @property
    def train_documents(self) -> list[str]:
        """Raw texts to train on, if the data are texts."""
        return []

    def lossless(self, codec: Codec, split: str, segment: Segmentation = "windows") -> bool:
        """Return whether a codec preserves the first characters of a split."""
        return True

    @abstractmethod
    def codec(self, name: str, segment: Segmentation = "windows") -> Codec:
        """Return the codec of this name for these data; `auto` chooses one.

        Whole texts need an EOS token, and so do windows of a stream with several documents. Sentences need none.
        """

    @abstractmethod
    def texts(self, codec: Codec, split: str, length: int, segment: Segmentation = "windows") -> SequenceData:
        """Return the sequences of a split, of at most this length."""

    def check_split(self, split: str) -> None:
        """Raise ValueError unless there is such a split."""
        if split not in self.splits:
            raise ValueError(f"{self.name} has no {split} split; it has {', '.join(self.splits)}")
