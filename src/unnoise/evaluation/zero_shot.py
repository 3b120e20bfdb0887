"""The zero-shot table: several models, each on every data set that is there, by one protocol. A cell that is done is kept.

`out` holds a file for each cell, and the table of them all as Markdown and as CSV, written anew after each cell.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unnoise import __version__, distributed
from unnoise.checkpoint.ours import folder_of
from unnoise.evaluation.benchmarks import ZERO_SHOT, find_benchmark
from unnoise.evaluation.protocols import evaluate, protocol
from unnoise.files import write_atomically
from unnoise.model.model import Model

NAME = "zero-shot"


@dataclass(frozen=True)
class TableOptions:
    """How every cell is measured; see `evaluate`."""

    protocol: str = "mdlm"
    windows: int | None = None
    draws: int = 16
    passes: int = 2
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """One model on one data set; kept: whether it was there already."""

    model: str
    benchmark: str
    found: dict[str, Any]
    kept: bool = False


def zero_shot(
    models: Sequence[str],
    folder: Path,
    out: Path,
    options: TableOptions,
    load: Callable[[str], Model],
    on_cell: Callable[[Cell], None] | None = None,
) -> list[Cell]:
    """All cells, those that are done from their files; `out` has the tables. on_cell gets each as it is there."""
    protocol(options.protocol)
    if not folder.is_dir():
        raise ValueError(f"the table needs a folder with {', '.join(ZERO_SHOT)}, or some of them; {folder} is none")
    sets = {name: path for name in ZERO_SHOT if (path := find_benchmark(folder, name)) is not None}
    if not sets:
        raise ValueError(f"the folder {folder} has nothing that is named after one of {', '.join(ZERO_SHOT)}")
    if len(set(models)) < len(models):
        raise ValueError("each model is named once")
    cells: list[Cell] = []
    for name in models:
        model: Model | None = None
        for benchmark, path in sets.items():
            file = out / "cells" / f"{_key(name, path, options)}.json"
            kept = distributed.from_first(lambda: file.read_text(encoding="utf-8") if file.is_file() else None)  # noqa: B023
            if kept is None:
                model = model or load(name)
                found = evaluate(
                    model,
                    options.protocol,
                    str(path),
                    benchmark,
                    None,
                    options.windows,
                    options.draws,
                    options.passes,
                    options.seed,
                ).as_dict()
            else:
                found = json.loads(kept)
            cells.append(Cell(name, benchmark, found, kept is not None))
            if distributed.rank() == 0:
                if kept is None:
                    write_atomically(file, (json.dumps(found, indent=1) + "\n").encode())
                write_atomically(out / f"{NAME}.md", markdown(cells, options).encode())
                write_atomically(out / f"{NAME}.csv", as_csv(cells).encode())
                if on_cell is not None:
                    on_cell(cells[-1])
    return cells


def _key(model: str, data: Path, options: TableOptions) -> str:
    """What a cell is the result of: the files of the model and of the data, the options, the version."""
    where = folder_of(model)
    files = [*_files(where), *_files(data)]
    stamped = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    label = json.dumps([stamped, asdict(options), __version__])
    return hashlib.sha1(label.encode()).hexdigest()[:20]


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]


def markdown(cells: Sequence[Cell], options: TableOptions) -> str:
    """A row for each model's published kind of figure and one for its bound; a column for each data set."""
    names = list(dict.fromkeys(cell.benchmark for cell in cells))
    by = {(cell.model, cell.benchmark): cell.found for cell in cells}
    of = protocol(options.protocol)
    unit = "bits per token" if of.bits else "perplexity"
    lines = [
        f"Zero-shot {unit} by the protocol {of.name} ({of.paper}): {of.words}.",
        "",
        f"| model | figure | {' | '.join(names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for model in dict.fromkeys(cell.model for cell in cells):
        mine = [by.get((model, name)) for name in names]
        published = ["" if one is None else _published(one) for one in mine]
        if any(published):
            lines.append(f"| {model} | as published | {' | '.join(published)} |")
        lines.append(f"| {model} | {_kind(mine)} | {' | '.join('' if one is None else _bound(one, of.bits) for one in mine)} |")
    return "\n".join(lines) + "\n"


def _kind(found: Sequence[dict[str, Any] | None]) -> str:
    return "exact" if all(one["bound"]["exact"] for one in found if one is not None) else "bound"


def _published(found: dict[str, Any]) -> str:
    return f"{found['published']['value']:.2f}" if "published" in found else ""


def _bound(found: dict[str, Any], bits: bool) -> str:
    bound = found["bound"]
    value = bound["bits_per_token" if bits else "perplexity"]
    error = bound["stderr"] * (1.4427 if bits else bound["perplexity"])
    return f"{value:.2f}" + ("" if bound["exact"] else f" ± {error:.2f}")


COLUMNS = ("model", "benchmark", "split", "protocol", "windows", "counted_tokens", "published", "bound", "bound_stderr")


def as_csv(cells: Sequence[Cell]) -> str:
    """One line a cell; perplexities, and nats a token."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "bound_nats_per_token", "bound_minus_published_nats", "exact"])
    for cell in cells:
        found, bound = cell.found, cell.found["bound"]
        writer.writerow(
            [
                cell.model,
                cell.benchmark,
                found["split"],
                found["protocol"],
                found["windows"],
                found["counted_tokens"],
                found.get("published", {}).get("value", ""),
                bound["perplexity"],
                bound["perplexity_stderr"],
                bound["nats_per_token"],
                found.get("difference", {}).get("bound_minus_published", ""),
                bound["exact"],
            ]
        )
    return text.getvalue()
