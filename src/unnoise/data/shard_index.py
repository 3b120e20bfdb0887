"""What a folder of token shards says of itself: index.json, written when all shards are there, and how it is checked.

For each split there are shards, `train-00000.tokens` and so on: tokens one after the other, as numbers of one kind (uint8,
uint16 or int32). Beside each lies a table of its documents, `train-00000.documents`: int64 [4, n], one column a document, the
shortest first; the rows are its tokens, where in the shard it begins, and the tokens and characters of all documents up to it.
A document of more than 262,144 characters is in no table.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.codec import Codec
from unnoise.data.codec_table import codec_from, codec_kind
from unnoise.data.splits import SPLITS
from unnoise.files import read_bytes, write_atomically

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
