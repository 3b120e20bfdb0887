"""A corpus of memory-mapped token shards, as written by `prepare`.

Pages are released after each batch, so the memory of a process does not grow with the corpus. The operating system may keep
them cached.
"""

import mmap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.data.codec import Codec, check_end
from unnoise.data.codec_names import AUTO, codec_kind
from unnoise.data.shard_files import SPLITS, TABLE_ROWS, Index, SplitShards, codec_hash, read_index, table_path, tokens_path
from unnoise.data.texts import Batch, EpochData, Segmentation, SequenceData, Source, Windows, locate, padded_rows, thinned

MAX_MAPPED = 64  # files that are mapped at the same time


@dataclass(frozen=True)
class ShardedCorpus(Source):
    """Source of the shards in a folder."""

    name: str
    folder: Path
    index: Index

    @staticmethod
    def open(folder: str | Path) -> "ShardedCorpus":
        """Open a folder; raise ValueError if its index is damaged or a file has the wrong length."""
        return ShardedCorpus(Path(folder).name, Path(folder), read_index(Path(folder)))

    @property
    def splits(self) -> list[str]:
        return [split for split in SPLITS if split in self.index.splits]

    def lossless(self, codec: Codec, split: str, segment: Segmentation = "windows") -> bool:
        return self.index.splits[split].lossless is not False

    def codec(self, name: str, segment: Segmentation = "windows") -> Codec:
        """Return the codec that encoded the shards."""
        codec = self.index.read_codec(self.folder)
        if name not in (AUTO, self.index.options["codec"], codec_kind(codec)):
            raise ValueError(
                f"{self.folder} was prepared with the codec {self.index.options['codec']}: leave --codec out, or prepare "
                f"the text again with {name}"
            )
        return codec

    def texts(self, codec: Codec, split: str, length: int, segment: Segmentation = "windows") -> SequenceData:
        """Return windows of one stream, or the documents of at most `length` tokens, as sentences or as whole documents.

        A split with a single document, such as text8, is cut into windows instead of sentences.
        """
        self.check_split(split)
        if codec_hash(codec) != self.index.codec_identity:
            raise ValueError(
                f"{self.folder} holds tokens of a different codec ({self.index.codec['kind']}) than the model's "
                f"({codec_kind(codec)}, {codec.vocab} tokens): prepare the text again with --codec and the model's folder"
            )
        found = self._texts(codec, split, length, segment)
        if codec.unit == "byte":
            found.characters = 1.0  # bits are counted per byte, and each token is one
        return found

    def _texts(self, codec: Codec, split: str, length: int, segment: Segmentation) -> SequenceData:
        shards = self.index.splits[split]
        tokens = ShardTokens(self.folder, split, shards, np.dtype(self.index.dtype))
        ends = codec.eos is not None
        if segment == "documents":
            check_end(codec)
            return ShardDocuments(self.folder, split, shards, tokens, length=length, ends=ends, keep_end=True)
        if segment == "sentences" and shards.total("documents") > 1 and shards.total("listed"):
            return ShardDocuments(self.folder, split, shards, tokens, length=length, ends=ends)
        characters = shards.total("characters") + (shards.total("documents") if ends else 0)  # the end counts as one
        return Windows(tokens, length, characters / len(tokens))


class MappedFiles:
    """Files as arrays of one type, mapped when they are first used. At most `MAX_MAPPED` files stay mapped."""

    def __init__(self, paths: list[Path], dtype: np.dtype[Any]):
        self.paths, self.dtype = paths, dtype
        self._mapped = lru_cache(MAX_MAPPED)(self._map)

    def _map(self, number: int) -> tuple[np.ndarray, mmap.mmap]:
        with open(self.paths[number], "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, self.dtype), mapped

    def __getitem__(self, number: int) -> np.ndarray:
        return self._mapped(number)[0]

    def release(self, number: int) -> None:
        """Release the pages of a file from the memory of this process."""
        self._mapped(number)[1].madvise(mmap.MADV_DONTNEED)


class ShardTokens:
    """Tokens [n] of all shards of a split, indexed by position."""

    def __init__(self, folder: Path, split: str, shards: SplitShards, dtype: np.dtype[Any]):
        self.files = MappedFiles([tokens_path(folder, split, number) for number in range(len(shards.shards))], dtype)
        self.ends = np.cumsum([shard.tokens for shard in shards.shards])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, place: Tensor) -> Tensor:
        flat = place.reshape(-1).numpy()
        which = np.searchsorted(self.ends, flat, side="right")
        found = np.empty(len(flat), self.files.dtype)
        for number in np.unique(which):
            here = which == number
            tokens = self.files[number]
            found[here] = tokens[flat[here] - (self.ends[number] - len(tokens))]
            self.files.release(number)
        return torch.from_numpy(found).view(place.shape)


class ShardDocuments(EpochData):
    """The documents of a split with 1 to `length` tokens, as separate sequences.

    ends: each document is followed by the EOS token.
    keep_end: the EOS token is part of the sequence, and counts as a token and a character.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        shards: SplitShards,
        tokens: ShardTokens,
        *,
        length: int,
        ends: bool,
        keep_end: bool = False,
    ):
        self.tokens, self.shards, self.ends = tokens, shards.shards, int(ends and not keep_end)
        self.files = MappedFiles([table_path(folder, split, i) for i in range(len(self.shards))], np.dtype(np.int64))
        self.firsts, self.counts = (torch.zeros(len(self.shards), dtype=torch.long) for _ in range(2))
        token_count = characters = 0
        for i, shard in enumerate(self.shards):
            if shard.listed:
                lengths, _, *sums = self._table(i)
                first, stop = np.searchsorted(lengths, [1 + self.ends, length + self.ends + 1]).tolist()  # sorted by length
                self.firsts[i], self.counts[i] = first, stop - first
                upto, before = ([int(row[place - 1]) if place else 0 for row in sums] for place in (stop, first))
                token_count += upto[0] - before[0] - self.ends * (stop - first)
                characters += upto[1] - before[1] + keep_end * (stop - first)
        if not self.count:
            raise ValueError(f"no document of the {split} split of {folder} has 1 to {length} tokens: raise the length")
        self.characters, self.mean_length = characters / token_count, token_count / self.count

    def _table(self, number: int) -> np.ndarray:
        return self.files[number].reshape(TABLE_ROWS, -1)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def read(self, place: Tensor, epoch: Tensor, seed: int) -> Batch:
        return Batch(self._at(place))

    def windows(self, limit: int | None = None) -> Tensor:
        return self._at(thinned(self.count, limit))

    def _at(self, place: Tensor) -> Tensor:
        which, within = locate(place, self.counts)
        start, length = torch.empty_like(place), torch.empty_like(place)
        for number in which.unique().tolist():
            here = which == number
            lengths, starts, *_ = self._table(number)
            row = (within[here] + self.firsts[number]).numpy()
            length[here] = torch.from_numpy(lengths[row]) - self.ends
            start[here] = torch.from_numpy(starts[row]) + (int(self.tokens.ends[number]) - self.shards[number].tokens)
            self.files.release(number)
        return padded_rows(self.tokens, start, length)
