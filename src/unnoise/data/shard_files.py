"""The files of a folder of token shards: their index, and the writer of the shards of one split.

index.json is written when all shards are complete. Each split has shards `train-00000.tokens` and so on, arrays of tokens of
one type (uint8, uint16 or int32). Next to each is a table of its documents, `train-00000.documents`: int64 [4, n] with one
column for each document, the shortest first. Its rows are the number of tokens, the start in the shard, and the cumulative
tokens and characters of the documents so far. Documents of more than 262,144 characters are not in the table. The writer
resumes from its last checkpoint after a crash.
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
INDEX, PROGRESS = "index.json", "progress.json"
FORMAT = "unnoise-tokens-1"
MAX_INDEX_BYTES = 2**28
TABLE_ROWS = 4
AGAIN = "prepare it again into a new folder"
RECORD = 3  # numbers per document of an open shard: tokens, start, characters
Item = TypeVar("Item")


def split_name(name: str) -> str:
    """Return the split for a name: validation, val and dev mean valid."""
    return ALIASES.get(name, name)


def split_documents(texts: Sequence[Item]) -> dict[str, list[Item]]:
    """Split documents: of every twenty, the tenth goes to valid and the last to test."""
    if len(texts) < 20:
        few = list(texts)
        return {"train": few[:-2] or few, "valid": few[-2:-1] or few, "test": few[-1:]}
    sides = {9: "valid", 19: "test"}
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for i, text in enumerate(texts):
        splits[sides.get(i % 20, "train")].append(text)
    return splits


def hash_split(content: bytes, valid_share: float, test_share: float) -> int:
    """Return the index of a document's split, by a hash of its content: equal documents share a split."""
    place = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") / 2**64
    return 1 if place < valid_share else 2 if place < valid_share + test_share else 0


@dataclass
class Shard:
    """Counts of one shard, and the hashes of its two files.

    documents: number of documents that end in the shard.
    listed: number of documents in its table.
    characters, bytes: length of the raw text.
    """

    tokens: int = 0
    documents: int = 0
    listed: int = 0
    characters: int = 0
    bytes: int = 0
    hash: str = ""
    table_hash: str = ""


@dataclass
class SplitShards:
    """Shards of a split. lossless: whether the codec preserves its first text."""

    shards: list[Shard] = field(default_factory=list)
    lossless: bool | None = None

    def total(self, name: str) -> int:
        """Return the sum of a field over all shards."""
        return sum(vars(shard)[name] for shard in self.shards)

    @staticmethod
    def from_json(found: dict[str, Any]) -> "SplitShards":
        """Return the shards of a split described in JSON."""
        return SplitShards([Shard(**shard) for shard in found["shards"]], found["lossless"])


@dataclass
class Index:
    """Contents of index.json. codec: configuration of the codec. options: those of `prepare`, and a digest of the inputs."""

    codec: dict[str, Any]
    codec_identity: str
    dtype: str
    options: dict[str, Any]
    splits: dict[str, SplitShards]

    def write(self, folder: Path) -> None:
        """Write index.json with a hash of its contents."""
        content = {"format": FORMAT, **asdict(self)}
        write_atomically(folder / INDEX, json.dumps({**content, "hash": json_hash(content)}, indent=1).encode() + b"\n")

    def read_codec(self, folder: Path) -> Codec:
        """Load the codec that was saved with the shards."""
        codec = codec_from(self.codec, folder)
        if codec_hash(codec) != self.codec_identity:
            raise ValueError(f"the codec in {folder} differs from the one that encoded the shards: {AGAIN}")
        return codec


def codec_config(codec: Codec) -> dict[str, Any]:
    """Return the configuration of a codec with its kind."""
    return {"kind": codec_kind(codec), **codec.config()}


def codec_hash(codec: Codec) -> str:
    """Return a hash of a codec's identity."""
    return hashlib.blake2b(codec.identity().encode(), digest_size=16).hexdigest()


def json_hash(content: Any) -> str:
    """Return the hash of an object as JSON."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_hash(path: Path) -> str:
    """Return the hash of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def tokens_path(folder: Path, split: str, number: int) -> Path:
    """Return the path of a shard's tokens."""
    return folder / f"{split}-{number:05d}.tokens"


def table_path(folder: Path, split: str, number: int) -> Path:
    """Return the path of a shard's table of documents."""
    return folder / f"{split}-{number:05d}.documents"


def is_prepared(folder: Path) -> bool:
    """Return whether a folder holds token shards, complete or not. It may have an unrelated index.json."""
    return any(folder.glob("*-00000.tokens")) or any(_is_ours(folder / name) for name in (INDEX, PROGRESS))


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return FORMAT.rstrip("0123456789").encode() in file.read(100)


def remove_progress(folder: Path) -> None:
    """Delete the temporary files of a finished folder."""
    for path in (folder / PROGRESS, *folder.glob("*.records")):
        path.unlink(missing_ok=True)


def read_index(folder: Path) -> Index:
    """Return the index; raise ValueError if it is damaged or the length of a file differs from the recorded one."""
    if (folder / PROGRESS).exists() and not (folder / INDEX).exists():
        raise ValueError(f"{folder} is not complete: run the same `unnoise prepare` again to resume it")
    if not (folder / INDEX).exists():
        raise ValueError(f"{folder} holds no prepared data: {INDEX} is missing")
    try:
        found = json.loads(read_bytes(folder / INDEX, MAX_INDEX_BYTES, "index"))
        claimed = found.pop("hash")
        if found["format"] != FORMAT:
            raise ValueError(f"its format must be {FORMAT!r}, found {found['format']!r}")
        if json_hash(found) != claimed:
            raise ValueError("its hash does not match its contents")
        splits = {split: SplitShards.from_json(shards) for split, shards in found["splits"].items()}
        index = Index(found["codec"], found["codec_identity"], found["dtype"], found["options"], splits)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / INDEX} is damaged ({error}): {AGAIN}") from error
    for path, size, _ in shard_files(index, folder):
        there = path.stat().st_size if path.is_file() else None
        if there != size:
            state = "is missing" if there is None else f"has {there:,} bytes, not {size:,}"
            raise ValueError(f"{path} {state}: {AGAIN}")
    return index


def shard_files(index: Index, folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield each file of the shards with its length in bytes and its hash."""
    width = np.dtype(index.dtype).itemsize
    for split in (split for split in SPLITS if split in index.splits):
        for number, shard in enumerate(index.splits[split].shards):
            yield tokens_path(folder, split, number), shard.tokens * width, shard.hash
            yield table_path(folder, split, number), shard.listed * TABLE_ROWS * 8, shard.table_hash


def verify(index: Index, folder: Path) -> int:
    """Compare the hash of every file and return the number of files; raise ValueError naming the first damaged one."""
    count = 0
    for path, _, claimed in shard_files(index, folder):
        if file_hash(path) != claimed:
            raise ValueError(f"{path} is damaged: its hash does not match; {AGAIN}")
        count += 1
    return count


class Encoded(NamedTuple):
    """Encoded pieces of documents.

    tokens: tokens of all pieces [n].
    lengths, characters, bytes: size of each piece [p].
    first, last: whether a document begins and ends with the piece [p].
    split: split of the piece [p]; −1 means the split of the previous piece.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    characters: np.ndarray
    bytes: np.ndarray
    first: np.ndarray
    last: np.ndarray
    split: np.ndarray

    def select_split(self, split: int) -> "Encoded":
        """Return the pieces of one split."""
        chosen = self.split == split
        if chosen.all():
            return self
        return Encoded(self.tokens[np.repeat(chosen, self.lengths)], *(column[chosen] for column in self[1:]))

    def part(self, start: int, stop: int) -> "Encoded":
        """Return the pieces from start to stop."""
        before = int(self.lengths[:start].sum())
        tokens = self.tokens[before : before + int(self.lengths[start:stop].sum())]
        return Encoded(tokens, *(column[start:stop] for column in self[1:]))


class SplitWriter:
    """Writer that appends to the open shard of a split and closes it at `size` tokens. It cuts documents only between pieces.

    state: shards so far; the last one is open. When resuming, its files are truncated to the recorded lengths.
    """

    def __init__(self, folder: Path, split: str, dtype: np.dtype[Any], size: int, state: SplitShards):
        self.folder, self.split, self.dtype, self.size, self.state = folder, split, dtype, size, state
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._stale: list[Path] = []

    @property
    def open_shard(self) -> Shard:
        """Shard that pieces are appended to."""
        if not self.state.shards or self.state.shards[-1].hash:
            self.state.shards.append(Shard())
        return self.state.shards[-1]

    def add(self, pieces: Encoded) -> int:
        """Append pieces and return the number of shards that were closed."""
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
        """Return the files of the open shard, tokens and document records, truncated to the recorded lengths."""
        if self._files is None:
            shard = self.open_shard
            files = []
            for path, size in zip(self._paths(), (shard.tokens * self.dtype.itemsize, shard.listed * RECORD * 8), strict=True):
                if size and (not path.exists() or path.stat().st_size < size):
                    raise ValueError(f"{path} is shorter than recorded: delete {self.folder} and prepare it again")
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
        """Flush everything to the disk."""
        for file in self._files or ():
            file.flush()
            os.fsync(file.fileno())

    def close_shard(self) -> None:
        """Close the open shard: sort its documents by length and compute its hashes."""
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
        """Delete records of closed shards. Call this only after the progress is on the disk."""
        while self._stale:
            self._stale.pop().unlink(missing_ok=True)

    def release(self) -> None:
        """Close the open files."""
        for file in self._files or ():
            file.close()
        self._files = None
