"""Text of any size → token shards in a folder, as a stream: it is read, tokenised by several processes, and written.

torch is not imported here, so that each process stays small.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from unnoise.data.codec import SAMPLE, Codec, token_dtype
from unnoise.data.codec_names import codec_from
from unnoise.data.formats import Input
from unnoise.data.inputs import digest, divided, find_inputs
from unnoise.data.shard_files import (
    FORMAT,
    INDEX,
    LARGEST_INDEX,
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
from unnoise.registry import check_keywords

SAVE_EVERY = 5.0  # seconds between checkpoints, where no shard is closed before


class PrepareKeywords(TypedDict, total=False):
    """The fields of `PrepareOptions` as keywords."""

    codec: str
    field: str
    lines: bool
    valid_share: float
    test_share: float
    shard_size: int


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """What the shards depend on; the same options and inputs give the same bytes."""

    codec: str = "auto"
    """auto, text8, bytes, chars, bpe, bpe-4096, gpt2:FOLDER, a registered one, or a folder with a model or shards, for its."""
    field: str = "text"
    """The field or column with the text, of JSON, Parquet and Arrow."""
    lines: bool = False
    """Each line of a text file is a document."""
    valid_share: float = 0.005
    """Share of the documents, or of a single text, that is held out to evaluate on while training."""
    test_share: float = 0.005
    """Share that is held out for the end."""
    shard_size: int = 50_000_000
    """Tokens of a shard, about."""

    def __post_init__(self) -> None:
        for name in ("valid_share", "test_share"):
            if not 0 <= vars(self)[name] < 1:
                raise ValueError(f"{name} must lie in [0, 1), found {vars(self)[name]}")
        if self.valid_share + self.test_share >= 1:
            raise ValueError("valid_share and test_share leave nothing to train on: together they must be below 1")
        if self.shard_size < 1:
            raise ValueError(f"shard_size must be ≥ 1, found {self.shard_size}")


class PrepareReport(NamedTuple):
    """How far it has come: the share of the bytes that is read, the tokens so far, and the seconds since it was started."""

    progress: float
    tokens: int
    seconds: float


def prepare(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    workers: int = 1,
    on_progress: Callable[[PrepareReport], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    **options: Unpack[PrepareKeywords],
) -> bool:
    """Tokenise text of any size into shards that are memory-mapped when they are read: `unnoise.corpus(out)`, `--data out`.

    sources: files (text, .jsonl, .parquet, .arrow; packed as .gz, .zst, .bz2, .xz), folders of them, 🤗 datasets that were
    saved, or hf:NAME; split=SOURCE puts all of it into a split. See `PrepareOptions` for the options. workers: processes that
    tokenise; more than one in a script need its `if __name__ == "__main__":`, as ever with multiprocessing. say: is told what
    is done. stop: asked now and then whether to stop.

    Returns whether it is finished. Stopped or killed, the same call goes on, to the same shards.
    """
    check_keywords(PrepareOptions, options, "prepare")
    chosen = PrepareOptions(**options)
    if workers < 1:
        raise ValueError(f"workers must be ≥ 1, found {workers}")
    names = [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    inputs = find_inputs(names, chosen.field, chosen.lines)
    described = {**asdict(chosen), "files": len(inputs), "inputs": digest(inputs)}
    out = Path(out)
    if check_target(out, described):
        remove_progress(out)  # which a process that was killed at the very end has left
        say("all of it is there already")
        return True
    if not any(piece.text for one in inputs for piece in one.pieces()):
        raise ValueError(f"there is no text in {', '.join(names)}")
    inputs = divided(inputs, chosen.valid_share, chosen.test_share)
    begun = read_progress(out)
    codec = begun and begun.read_codec(out)
    if begun is not None:
        say(f"going on after {sum(shards.total('tokens') for shards in begun.splits.values()):,} tokens")
    if codec is None:
        codec = choose_codec(chosen.codec, inputs, (chosen.valid_share, chosen.test_share), say)
    with locked(out):
        return check_target(out, described) or _Preparation(out, inputs, described, codec).run(workers, on_progress, stop)


# ---- where it stands --------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """What is on the disk so far. position: where reading goes on; split: of the document that it is inside of, or −1."""

    options: dict[str, Any]
    codec: dict[str, Any] | None
    position: Position
    split: int
    splits: dict[str, SplitShards]

    def read_codec(self, folder: Path) -> Codec | None:
        """The codec that was chosen, if that had come about."""
        return None if self.codec is None else codec_from(self.codec, folder)

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        content = {"format": FORMAT, **asdict(self), "position": list(self.position)}
        write_atomically(folder / PROGRESS, json.dumps(content).encode())


def read_progress(folder: Path) -> Progress | None:
    """What a preparation that was stopped has left, or None."""
    if not (folder / PROGRESS).exists():
        return None
    try:
        found = json.loads(read_bytes(folder / PROGRESS, LARGEST_INDEX))
        splits = {split: SplitShards.of(shards) for split, shards in found["splits"].items()}
        return Progress(found["options"], found["codec"], Position(*found["position"]), found["split"], splits)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / PROGRESS} is damaged ({error}): delete {folder} and prepare it again") from error


def check_target(out: Path, described: dict[str, Any]) -> bool:
    """Whether all is there already; ValueError if `out` holds anything but what these options have made, or a part of it."""
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
    """One run: its shards, and how far it has come."""

    def __init__(self, out: Path, inputs: list[Input], described: dict[str, Any], codec: Codec):
        self.out, self.inputs, self.codec = out, inputs, codec
        self.state = read_progress(out) or Progress(described, None, Position(), -1, {})
        if self.state.codec is None:
            self.state.write(out)  # first, so that a folder with nothing but a codec is known as ours
            codec.save(out)
            self.state.codec = codec_config(codec)
            self.state.write(out)
        dtype, size = token_dtype(codec.vocab), int(described["shard_size"])
        self.writers = [
            SplitWriter(out, split, dtype, size, self.state.splits.setdefault(split, SplitShards())) for split in SPLITS
        ]
        self.encoder = Encoder(codec, (described["valid_share"], described["test_share"]))

    def run(self, workers: int, on_progress: Callable[[PrepareReport], None], stop: Callable[[], bool]) -> bool:
        """Read, tokenise and write to the end, or until stop() says so."""
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
        """How many there are so far."""
        return sum(writer.state.total("tokens") for writer in self.writers)

    def add(self, batch: TextBatch, pieces: Encoded) -> bool:
        """Write a batch to the splits that its documents belong to; whether a shard was closed."""
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
            closed += writer.add(pieces.of_split(split))
        return closed > 0

    def save(self, position: Position) -> None:
        """Say what is there, after it is on the disk."""
        for writer in self.writers:
            writer.sync()
        self.state.position = position
        self.state.write(self.out)
        for writer in self.writers:
            writer.remove_stale()

    def finish(self) -> None:
        """Close the last shards, and write the index."""
        for writer in self.writers:
            writer.close_shard()
        splits = {split: shards for split, shards in self.state.splits.items() if shards.shards}
        dtype = token_dtype(self.codec.vocab).name
        assert self.state.codec is not None
        Index(self.state.codec, codec_hash(self.codec), dtype, self.state.options, splits).write(self.out)
        remove_progress(self.out)
