"""The command `unnoise prepare`, and the summary of a folder of prepared data."""

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Json, at_least, field_values, show_result
from unnoise.cli.workers import StopRequest, cores
from unnoise.data.prepare import PrepareOptions, prepare
from unnoise.data.shard_files import Index, read_index


@dataclass(frozen=True, kw_only=True)
class PrepareCommand(PrepareOptions):
    """Tokenize text of any size into shards on disk.

    --data reads the shards without loading them into memory. To resume a stopped run, run the same command again.

    Example: unnoise prepare path/to/texts --codec bpe-4096 --out data/texts
    """

    sources: Annotated[
        Positional[tuple[str, ...]],
        arg(
            metavar="SOURCE",
            help="Text files, .jsonl, .parquet, .arrow (also .gz, .zst, .bz2, .xz), folders of them, a saved 🤗 dataset, or "
            "hf:NAME. valid=SOURCE puts all of SOURCE into the valid split.",
        ),
    ] = ()
    out: Annotated[Path | None, arg(help="Output folder.")] = None
    workers: Annotated[int | None, arg(help="Number of processes that tokenize; default: one for each core.")] = None
    as_json: Json = False

    def run(self) -> int:
        from unnoise.cli.terminal import PrepareBar

        if self.out is None:
            raise ValueError("name the output folder with --out")
        at_least(1, workers=self.workers)
        options = PrepareOptions(**field_values(self, PrepareOptions))
        start = time.monotonic()
        with StopRequest() as stop, nullcontext() if self.as_json else PrepareBar() as bar:
            follow = {} if bar is None else {"on_progress": bar.update, "say": bar.say}
            finished = prepare(self.sources, self.out, options, workers=self.workers or cores(), stop=stop, **follow)
        if not finished:
            print("stopped: run the same command again to continue where it stopped", file=sys.stderr)
            return 130
        index = read_index(self.out)
        found = {"out": str(self.out), "seconds": round(time.monotonic() - start, 1), **summary(index)}
        hint = f"train on it: unnoise train mdlm --data {self.out}"
        return show_result(self.as_json, found, chain(summary_lines(index, self.out), [hint]))


def summary(index: Index) -> dict[str, Any]:
    """Return the contents of a prepared folder for JSON."""
    counted = ("tokens", "documents", "characters", "bytes")
    return {
        "codec": index.codec["kind"],
        "dtype": index.dtype,
        "splits": {
            split: {name: shards.total(name) for name in counted} | {"shards": len(shards.shards), "lossless": shards.lossless}
            for split, shards in index.splits.items()
        },
        "options": index.options,
    }


def summary_lines(index: Index, folder: Path) -> Iterator[str]:
    """Yield the contents of a prepared folder as lines of text."""
    codec = index.read_codec(folder)
    yield f"codec      {index.codec['kind']}, {codec.vocab:,} tokens{'' if codec.eos is None else ' with EOS'}"
    yield f"{'split':10s} {'documents':>14s} {'characters':>16s} {'tokens':>16s} {'shards':>7s}"
    for split, shards in index.splits.items():
        documents, characters, tokens = (shards.total(name) for name in ("documents", "characters", "tokens"))
        yield f"{split:10s} {documents:>14,} {characters:>16,} {tokens:>16,} {len(shards.shards):>7,}"
    if missing := [split for split in ("valid", "test") if split not in index.splits]:
        yield (
            f"the {' and '.join(missing)} split got no documents: raise its share, add --lines if lines are documents, "
            "or give valid=FILE"
        )
    if any(shards.lossless is False for shards in index.splits.values()):
        yield "the codec changes the text, because it lacks some letters or words: the shards hold the changed text"
