"""Tokenization of text of any size into shards: it is read as a stream, encoded by several processes, and written.

This module does not import torch, so that each process stays small.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unnoise.data.codec import SAMPLE, Codec, token_dtype
from unnoise.data.codec_names import codec_from
from unnoise.data.formats import Input
from unnoise.data.inputs import digest, divided, find_inputs
from unnoise.data.shard_files import (
    FORMAT,
    INDEX,
    MAX_INDEX_BYTES,
    PROGRESS,
    SPLITS,
    Encoded,
    Index,
    SplitShards,
    SplitWriter,
    codec_config,
    codec_hash,
    read_index,
    remove_progress,
)
from unnoise.data.tokenizing import Encoder, Position, TextBatch, choose_codec, encoded_batches, text_batches
from unnoise.files import LOCK, check_folder, locked, read_bytes, write_atomically
from unnoise.registry import check_keywords, check_options, option

SAVE_EVERY = 5.0  # seconds between checkpoints, unless a shard is closed before


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Options that determine the shards: the same options and inputs give the same bytes."""

    codec: str = "auto"
    """auto, text8, bytes, chars, bpe, bpe-4096, gpt2:FOLDER, a registered codec, or a folder with a model or shards to take the
    codec from."""
    field: str = "text"
    """Field or column with the text, in JSON, Parquet and Arrow files."""
    lines: bool = False
    """Treat each line of a text file as a document."""
    valid_share: float = option(0.005, min=0, below=1)
    """Share of the documents, or of a single text, held out for valid."""
    test_share: float = option(0.005, min=0, below=1)
    """Share held out for test."""
    shard_size: int = option(50_000_000, min=1)
    """Tokens per shard, approximately."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.valid_share + self.test_share >= 1:
            raise ValueError("valid_share and test_share leave nothing to train on: together they must be below 1")


class PrepareReport(NamedTuple):
    """Progress: the share of the input bytes that is done, the number of tokens, and the seconds since the start."""

    progress: float
    tokens: int
    seconds: float


def prepare(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    options: PrepareOptions | None = None,
    *,
    workers: int = 1,
    on_progress: Callable[[PrepareReport], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    **overrides: Any,
) -> bool:
    """Tokenize text of any size into memory-mapped shards for `unnoise.corpus(out)` and `--data out`.

    Return whether all input is done. After a stop or a crash, the same call resumes and gives the same shards.

    sources: files (text, .jsonl, .parquet, .arrow; also .gz, .zst, .bz2, .xz), folders of them, saved 🤗 datasets, or hf:NAME.
        split=SOURCE puts a whole source into one split.
    options: options of the shards. Keywords override its fields.
    workers: number of processes that tokenize. A script with more than one needs `if __name__ == "__main__":`.
    on_progress: called after each batch.
    say: called with messages about the progress.
    stop: called regularly; stops the work when it returns True.
    """
    check_keywords(PrepareOptions, overrides, "prepare")
    chosen = replace(options or PrepareOptions(), **overrides)
    if workers < 1:
        raise ValueError(f"workers must be ≥ 1, found {workers}")
    names = [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    inputs = find_inputs(names, chosen.field, chosen.lines)
    described = {**asdict(chosen), "files": len(inputs), "inputs": digest(inputs)}
    out = Path(out)
    if check_target(out, described):
        remove_progress(out)  # left over if a process was killed at the very end
        say("all shards exist already")
        return True
    if not any(piece.text for one in inputs for piece in one.pieces()):
        raise ValueError(f"there is no text in {', '.join(names)}")
    inputs = divided(inputs, chosen.valid_share, chosen.test_share)
    begun = read_progress(out)
    codec = None
    if begun is not None:
        say(f"resuming after {sum(shards.total('tokens') for shards in begun.splits.values()):,} tokens")
        codec = None if begun.codec is None else codec_from(begun.codec, out)
    if codec is None:
        codec = choose_codec(chosen.codec, inputs, (chosen.valid_share, chosen.test_share), say)
    with locked(out):
        return check_target(out, described) or _Preparation(out, inputs, described, codec).run(workers, on_progress, stop)


@dataclass
class Progress:
    """State on the disk. position: where reading resumes. split: split of the document it lies in, or −1 between documents."""

    options: dict[str, Any]
    codec: dict[str, Any] | None
    position: Position
    split: int
    splits: dict[str, SplitShards]

    def write(self, folder: Path) -> None:
        """Write the progress to a folder."""
        content = {"format": FORMAT, **asdict(self), "position": list(self.position)}
        write_atomically(folder / PROGRESS, json.dumps(content).encode())


def read_progress(folder: Path) -> Progress | None:
    """Return the progress of a stopped preparation, or None."""
    if not (folder / PROGRESS).exists():
        return None
    try:
        found = json.loads(read_bytes(folder / PROGRESS, MAX_INDEX_BYTES))
        splits = {split: SplitShards.from_json(shards) for split, shards in found["splits"].items()}
        return Progress(found["options"], found["codec"], Position(*found["position"]), found["split"], splits)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / PROGRESS} is damaged ({error}): delete {folder} and prepare it again") from error


def check_target(out: Path, described: dict[str, Any]) -> bool:
    """Return whether `out` is complete; raise ValueError if it holds anything that these options did not write."""
    if out == Path() or (out.exists() and not out.is_dir()):
        raise ValueError(f"--out needs a folder of its own, found {str(out)!r}")
    check_folder(out)
    finished = (out / INDEX).exists()
    begun = read_progress(out)
    if not finished and begun is None:
        if out.exists() and any(path.name != LOCK for path in out.iterdir()):
            raise ValueError(f"{out} is not empty: choose another --out")
        return False
    saved = read_index(out).options if finished else begun.options if begun else {}
    for name, value in described.items():
        if saved.get(name) != value:
            words = "from other files" if name in ("files", "inputs") else f"with {name} {saved.get(name)}, not {value}"
            raise ValueError(f"{out} was prepared {words}: choose another --out")
    return finished


class _Preparation:
    """One run: its shards and its progress."""

    def __init__(self, out: Path, inputs: list[Input], described: dict[str, Any], codec: Codec):
        self.out, self.inputs, self.codec = out, inputs, codec
        self.state = read_progress(out) or Progress(described, None, Position(), -1, {})
        if self.state.codec is None:
            self.state.write(out)  # first, so that a folder with only a codec is recognized as ours
            codec.save(out)
            self.state.codec = codec_config(codec)
            self.state.write(out)
        dtype, size = token_dtype(codec.vocab), int(described["shard_size"])
        self.writers = [
            SplitWriter(out, split, dtype, size, self.state.splits.setdefault(split, SplitShards())) for split in SPLITS
        ]
        self.encoder = Encoder(codec, (described["valid_share"], described["test_share"]))

    def run(self, workers: int, on_progress: Callable[[PrepareReport], None], stop: Callable[[], bool]) -> bool:
        """Read, tokenize and write until the end or until stop() returns True; return whether the end was reached."""
        assert self.state.codec is not None
        total = max(1, sum(one.size for one in self.inputs))
        start = saved = time.monotonic()
        due = False
        batches = text_batches(self.inputs, self.state.position, begun=self.state.split >= 0)
        try:
            with closing(encoded_batches(batches, self.encoder, self.state.codec, self.out, workers)) as encoded:
                for batch, tokens in encoded:
                    due |= self.add(batch, tokens)
                    now = time.monotonic()
                    on_progress(PrepareReport(batch.done / total, self.tokens, now - start))
                    stopping = stop()
                    if batch.position is not None and (due or stopping or now - saved > SAVE_EVERY):
                        self.save(batch.position)
                        due, saved = False, now
                        if stopping:
                            return False
            self.finish()
        finally:
            for writer in self.writers:
                writer.release()
        return True

    @property
    def tokens(self) -> int:
        return sum(writer.state.total("tokens") for writer in self.writers)

    def add(self, batch: TextBatch, pieces: Encoded) -> bool:
        """Write a batch to the splits of its documents; return whether a shard was closed."""
        if not len(pieces.lengths):
            return False
        for i in np.flatnonzero(pieces.split < 0):
            pieces.split[i] = pieces.split[i - 1] if i else self.state.split
        self.state.split = -1 if pieces.last[-1] else int(pieces.split[-1])
        closed = 0
        for split in np.unique(pieces.split):
            writer = self.writers[split]
            if writer.state.lossless is None:
                text = batch.texts[int(np.argmax(pieces.split == split))]
                writer.state.lossless = self.codec.read_as(text[:SAMPLE]) is None
            closed += writer.add(pieces.select_split(split))
        return closed > 0

    def save(self, position: Position) -> None:
        """Write the progress, after the tokens are on the disk."""
        for writer in self.writers:
            writer.sync()
        self.state.position = position
        self.state.write(self.out)
        for writer in self.writers:
            writer.remove_stale()

    def finish(self) -> None:
        """Close the last shards and write the index."""
        for writer in self.writers:
            writer.close_shard()
        splits = {split: shards for split, shards in self.state.splits.items() if shards.shards}
        dtype = token_dtype(self.codec.vocab).name
        assert self.state.codec is not None
        Index(self.state.codec, codec_hash(self.codec), dtype, self.state.options, splits).write(self.out)
        remove_progress(self.out)
