"""Writing the shards of one split, so that a writer that is killed at any moment goes on where it last said it was."""

import os
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from unnoise.data.shard_index import Shard, SplitShards, file_hash, table_path, tokens_path
from unnoise.files import write_atomically

RECORD = 3  # numbers kept of a document while its shard is open: its tokens, where it begins, its characters


class Encoded(NamedTuple):
    """Pieces of documents as tokens [n], one after the other, and for each piece [p]: how many tokens, characters and bytes it
    has, whether a document begins and ends with it, and its split (−1: that of the piece before)."""

    tokens: np.ndarray
    lengths: np.ndarray
    characters: np.ndarray
    bytes: np.ndarray
    first: np.ndarray
    last: np.ndarray
    split: np.ndarray

    def of_split(self, split: int) -> "Encoded":
        """The pieces of one split."""
        chosen = self.split == split
        if chosen.all():
            return self
        return Encoded(self.tokens[np.repeat(chosen, self.lengths)], *(column[chosen] for column in self[1:]))

    def part(self, start: int, stop: int) -> "Encoded":
        """The pieces from start to stop."""
        before = int(self.lengths[:start].sum())
        tokens = self.tokens[before : before + int(self.lengths[start:stop].sum())]
        return Encoded(tokens, *(column[start:stop] for column in self[1:]))


class SplitWriter:
    """Appends to the open shard of a split and closes it once it has `size` tokens; documents are cut between pieces only.

    state: the shards so far, the last of them open; on resuming its files are cut back to what was said of it.
    """

    def __init__(self, folder: Path, split: str, dtype: np.dtype[Any], size: int, state: SplitShards):
        self.folder, self.split, self.dtype, self.size, self.state = folder, split, dtype, size, state
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._stale: list[Path] = []

    @property
    def open_shard(self) -> Shard:
        """The shard that is written to."""
        if not self.state.shards or self.state.shards[-1].hash:
            self.state.shards.append(Shard())
        return self.state.shards[-1]

    def add(self, pieces: Encoded) -> int:
        """Append pieces; returns how many shards were closed."""
        start = closed = 0
        while start < len(pieces.lengths):
            ends = self.open_shard.tokens + pieces.lengths[start:].cumsum()
            stop = start + min(int(np.searchsorted(ends, self.size)) + 1, len(ends))
            self._append(pieces.part(start, stop))
            start = stop
            if self.open_shard.tokens >= self.size:
                self.close_shard()
                closed += 1
        return closed

    def _append(self, pieces: Encoded) -> None:
        shard = self.open_shard
        tokens, records = self._opened()
        whole = (pieces.first & pieces.last).astype(bool)
        starts = shard.tokens + pieces.lengths.cumsum() - pieces.lengths
        tokens.write(pieces.tokens.astype(self.dtype, copy=False).tobytes())
        records.write(np.stack([pieces.lengths, starts, pieces.characters], 1)[whole].astype(np.int64).tobytes())
        shard.tokens += int(pieces.lengths.sum())
        shard.documents += int(pieces.last.sum())
        shard.listed += int(whole.sum())
        shard.characters += int(pieces.characters.sum())
        shard.bytes += int(pieces.bytes.sum())

    def _opened(self) -> tuple[IO[bytes], IO[bytes]]:
        """The files of the open shard, its tokens and the records of its documents, cut back to what belongs to it."""
        if self._files is None:
            shard = self.open_shard
            files = []
            for path, size in zip(self._paths(), (shard.tokens * self.dtype.itemsize, shard.listed * RECORD * 8), strict=True):
                if size and (not path.exists() or path.stat().st_size < size):
                    raise ValueError(f"{path} is shorter than it was: delete {self.folder} and prepare it again")
                file = open(path, "r+b" if size else "wb")  # noqa: SIM115
                file.truncate(size)
                file.seek(size)
                files.append(file)
            self._files = files[0], files[1]
        return self._files

    def _paths(self) -> tuple[Path, Path]:
        number = len(self.state.shards) - 1
        return tokens_path(self.folder, self.split, number), table_path(self.folder, self.split, number).with_suffix(".records")

    def sync(self) -> None:
        """Let everything that was appended be on the disk."""
        for file in self._files or ():
            file.flush()
            os.fsync(file.fileno())

    def close_shard(self) -> None:
        """End the open shard: sort its documents by length, and take its hashes."""
        shard = self.open_shard
        if not shard.tokens:
            self.state.shards.pop()
            return
        tokens, records = self._opened()
        self.sync()
        for file in (tokens, records):
            file.close()
        self._files = None
        path, record_path = self._paths()
        table = table_path(self.folder, self.split, len(self.state.shards) - 1)
        lengths, starts, characters = np.fromfile(record_path, dtype=np.int64).reshape(-1, RECORD).T
        order = np.argsort(lengths, kind="stable")
        lengths = lengths[order]
        columns = (lengths, starts[order], lengths.cumsum(), characters[order].cumsum())
        write_atomically(table, np.concatenate(columns).tobytes())
        shard.hash, shard.table_hash = file_hash(path), file_hash(table)
        self._stale.append(record_path)

    def remove_stale(self) -> None:
        """Delete what closed shards no longer need; only once it is on the disk that they are closed."""
        while self._stale:
            self._stale.pop().unlink(missing_ok=True)

    def release(self) -> None:
        """Close the files as they are."""
        for file in self._files or ():
            file.close()
        self._files = None
