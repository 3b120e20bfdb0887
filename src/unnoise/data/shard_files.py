"""The parts of a corpus, train, valid and test, and which document belongs to which.

What a folder of token shards says of itself: index.json, written when all shards are there, and how it is checked.

For each split there are shards, `train-00000.tokens` and so on: tokens one after the other, as numbers of one kind (uint8,
uint16 or int32). Beside each lies a table of its documents, `train-00000.documents`: int64 [4, n], one column a document, the
shortest first; the rows are its tokens, where in the shard it begins, and the tokens and characters of all documents up to it.
A document of more than 262,144 characters is in no table.

Writing the shards of one split, so that a writer that is killed at any moment goes on where it last said it was.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from unnoise.data.codec import Codec
from unnoise.data.codec_names import codec_from, codec_kind
from unnoise.files import read_bytes, write_atomically

SPLITS = ("train", "valid", "test")
ALIASES = {"validation": "valid", "val": "valid", "dev": "valid"}
Item = TypeVar("Item")


def split_name(name: str) -> str:
    """The split that a name means: validation, val and dev are valid."""
    return ALIASES.get(name, name)


def split_documents(texts: Sequence[Item]) -> dict[str, list[Item]]:
    """Whole documents to each split: of every twenty, the tenth to valid and the last to test."""
    if len(texts) < 20:
        few = list(texts)
        return {"train": few[:-2] or few, "valid": few[-2:-1] or few, "test": few[-1:]}
    sides = {9: "valid", 19: "test"}
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for i, text in enumerate(texts):
        splits[sides.get(i % 20, "train")].append(text)
    return splits


def split_of(content: bytes, valid_share: float, test_share: float) -> int:
    """The number of the split of a document in a stream, by a hash of its content: equal documents are never divided."""
    place = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") / 2**64
    return 1 if place < valid_share else 2 if place < valid_share + test_share else 0


INDEX, PROGRESS = "index.json", "progress.json"
FORMAT = "unnoise-tokens-1"
LARGEST_INDEX = 2**28  # bytes
TABLE_ROWS = 4
AGAIN = "prepare it again into a new folder"


@dataclass
class Shard:
    """One shard: its tokens, the documents that end in it and how many of them are in its table, the characters and bytes of
    raw text, and the hashes of its two files."""

    tokens: int = 0
    documents: int = 0
    listed: int = 0
    characters: int = 0
    bytes: int = 0
    hash: str = ""
    table_hash: str = ""


@dataclass
class SplitShards:
    """The shards of a split. lossless: whether the codec gives its first text back as it is."""

    shards: list[Shard] = field(default_factory=list)
    lossless: bool | None = None

    def total(self, name: str) -> int:
        """The sum of a field over all shards."""
        return sum(vars(shard)[name] for shard in self.shards)

    @staticmethod
    def of(found: dict[str, Any]) -> "SplitShards":
        """From JSON."""
        return SplitShards([Shard(**shard) for shard in found["shards"]], found["lossless"])


@dataclass
class Index:
    """codec: as a model's configuration has it. options: those of `prepare`, with what tells the inputs from others."""

    codec: dict[str, Any]
    codec_identity: str
    dtype: str
    options: dict[str, Any]
    splits: dict[str, SplitShards]

    def write(self, folder: Path) -> None:
        """Write index.json, with a hash of itself."""
        content = {"format": FORMAT, **asdict(self)}
        write_atomically(folder / INDEX, json.dumps({**content, "hash": hash_of(content)}, indent=1).encode() + b"\n")

    def read_codec(self, folder: Path) -> Codec:
        """The codec that was saved with the shards."""
        codec = codec_from(self.codec, folder)
        if codec_hash(codec) != self.codec_identity:
            raise ValueError(f"the codec in {folder} is not the one that the shards were made with: {AGAIN}")
        return codec


def codec_config(codec: Codec) -> dict[str, Any]:
    """What an index says of a codec."""
    return {"kind": codec_kind(codec), **codec.config()}


def codec_hash(codec: Codec) -> str:
    """What tells codecs apart, short enough for an index."""
    return hashlib.blake2b(codec.identity().encode(), digest_size=16).hexdigest()


def hash_of(content: Any) -> str:
    """The hash of what can be written as JSON."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_hash(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def tokens_path(folder: Path, split: str, number: int) -> Path:
    """The file of a shard's tokens."""
    return folder / f"{split}-{number:05d}.tokens"


def table_path(folder: Path, split: str, number: int) -> Path:
    """The file of a shard's documents."""
    return folder / f"{split}-{number:05d}.documents"


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds token shards, all of them or some; it may have an index.json of another kind."""
    return any(folder.glob("*-00000.tokens")) or any(_is_ours(folder / name) for name in (INDEX, PROGRESS))


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return FORMAT.rstrip("0123456789").encode() in file.read(100)


def remove_progress(folder: Path) -> None:
    """Delete what a finished folder no longer needs."""
    for path in (folder / PROGRESS, *folder.glob("*.records")):
        path.unlink(missing_ok=True)


def read_index(folder: Path) -> Index:
    """What index.json holds, and that every file has the length that it says; ValueError otherwise."""
    if (folder / PROGRESS).exists() and not (folder / INDEX).exists():
        raise ValueError(f"{folder} is not finished: run the same `unnoise prepare` again, and it goes on")
    if not (folder / INDEX).exists():
        raise ValueError(f"{folder} holds no prepared data: {INDEX} is missing")
    try:
        found = json.loads(read_bytes(folder / INDEX, LARGEST_INDEX, "index"))
        claimed = found.pop("hash")
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, and this version of unnoise reads {FORMAT!r}")
        if hash_of(found) != claimed:
            raise ValueError("it is not as it was written")
        splits = {split: SplitShards.of(shards) for split, shards in found["splits"].items()}
        index = Index(found["codec"], found["codec_identity"], found["dtype"], found["options"], splits)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / INDEX} is damaged ({error}): {AGAIN}") from error
    for path, size, _ in files_of(index, folder):
        there = path.stat().st_size if path.is_file() else None
        if there != size:
            state = "is missing" if there is None else f"has {there:,} bytes, not {size:,}"
            raise ValueError(f"{path} {state}: {AGAIN}")
    return index


def files_of(index: Index, folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Each file of the shards, its length in bytes, and its hash."""
    width = np.dtype(index.dtype).itemsize
    for split in (split for split in SPLITS if split in index.splits):
        for number, shard in enumerate(index.splits[split].shards):
            yield tokens_path(folder, split, number), shard.tokens * width, shard.hash
            yield table_path(folder, split, number), shard.listed * TABLE_ROWS * 8, shard.table_hash


def verify(index: Index, folder: Path) -> int:
    """Read every shard and compare its hash: how many files there are, or ValueError naming the first that is damaged."""
    count = 0
    for path, _, claimed in files_of(index, folder):
        if file_hash(path) != claimed:
            raise ValueError(f"{path} is damaged: its content is not what was written; {AGAIN}")
        count += 1
    return count


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
