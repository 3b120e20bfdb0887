"""`unnoise prepare`."""

import json
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Json, at_least
from unnoise.cli.workers import cores
from unnoise.data.prepare import PrepareOptions, PrepareReport, prepare
from unnoise.data.shard_files import Index, read_index


@dataclass(frozen=True, kw_only=True)
class PrepareCommand(PrepareOptions):
    """Turn text of any size into token shards, which --data reads without loading them into memory.

    A stopped run is resumed by the same command.

    Example: unnoise prepare path/to/texts --codec bpe-4096 --out data/texts
    """

    sources: Annotated[
        Positional[tuple[str, ...]],
        arg(
            metavar="SOURCE",
            help="Text files, .jsonl, .parquet, .arrow (also .gz, .zst, .bz2, .xz), folders of them, a saved 🤗 dataset, or "
            "hf:NAME; valid=SOURCE puts all of it into that split.",
        ),
    ] = ()
    out: Annotated[Path | None, arg(help="Folder to write.")] = None
    workers: Annotated[int | None, arg(help="Processes that tokenise; default: one for each core.")] = None
    as_json: Json = False

    def run(self) -> int:
        from unnoise.cli.command_base import StopRequest

        if self.out is None:
            raise ValueError("give the folder to write, with --out")
        at_least(1, workers=self.workers)
        options = PrepareOptions(**{field.name: vars(self)[field.name] for field in fields(PrepareOptions)})
        start = time.monotonic()
        with StopRequest() as stop, nullcontext() if self.as_json else PrepareBar() as bar:
            follow = {} if bar is None else {"on_progress": bar.update, "say": bar.say}
            finished = prepare(self.sources, self.out, options, workers=self.workers or cores(), stop=stop, **follow)
        if not finished:
            print("stopped; the work so far is kept: run the same command again to continue", file=sys.stderr)
            return 130
        index = read_index(self.out)
        if self.as_json:
            print(json.dumps({"out": str(self.out), "seconds": round(time.monotonic() - start, 1), **summary(index)}))
            return 0
        print_summary(index, self.out)
        print(f"train on it: unnoise train mdlm --data {self.out}")
        return 0


class PrepareBar:
    """A progress bar with rate and time left on a terminal, and occasional lines elsewhere. It writes to stderr."""

    EVERY = 10.0  # seconds between lines

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.console = Console(stderr=True)
        columns = BarColumn(), TextColumn("{task.percentage:>3.0f} %  {task.description}")
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("", total=1.0)
        self.begun: PrepareReport | None = None
        self.said = 0.0

    def __enter__(self) -> "PrepareBar":
        self.progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.__exit__(None, None, None)

    def say(self, line: str) -> None:
        if self.console.is_terminal:
            self.progress.console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def update(self, report: PrepareReport) -> None:
        if self.begun is None:
            self.begun = report  # excludes tokens of an earlier run from rate and time left
        seconds, share = report.seconds - self.begun.seconds, report.progress - self.begun.progress
        left = timedelta(seconds=round(seconds * (1 - report.progress) / share)) if share > 0 else "?"
        speed = (report.tokens - self.begun.tokens) / max(seconds, 1e-9)
        words = f"{report.tokens:,} tokens, {speed:,.0f} tokens/s, {left} left"
        self.progress.update(self.task, completed=report.progress, description=words)
        if not self.console.is_terminal and report.seconds - self.said >= self.EVERY:
            self.said = report.seconds
            print(f"{100 * report.progress:3.0f} %  {words}", file=sys.stderr, flush=True)


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


def print_summary(index: Index, folder: Path) -> None:
    """Print the contents of a prepared folder."""
    codec = index.read_codec(folder)
    ends = ", one of them ends a document" if codec.eos is not None else ""
    print(f"codec      {index.codec['kind']}, {codec.vocab:,} tokens{ends}")
    print(f"{'split':10s} {'documents':>14s} {'characters':>16s} {'tokens':>16s} {'shards':>7s}")
    for split, shards in index.splits.items():
        counts = [shards.total(name) for name in ("documents", "characters", "tokens")]
        print(f"{split:10s} {counts[0]:>14,} {counts[1]:>16,} {counts[2]:>16,} {len(shards.shards):>7,}")
    missing = [split for split in ("valid", "test") if split not in index.splits]
    if missing:
        print(
            f"no documents fell into the {' and '.join(missing)} split: raise the shares, add --lines if lines are documents, "
            "or give valid=FILE"
        )
    if any(shards.lossless is False for shards in index.splits.values()):
        print("the codec does not preserve the text exactly (unknown letters or words): the shards hold the changed text")
