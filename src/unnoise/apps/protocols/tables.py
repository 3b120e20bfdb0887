"""Tables of results: several models on several data sets, next to published results.

The output folder contains a file for each cell, so that no cell is computed twice. It also contains the table as Markdown and
CSV, updated after each cell.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unnoise import __version__, distributed
from unnoise.apps.protocols import windows as benchmarks
from unnoise.apps.protocols.protocols import ProtocolOptions, check_follows, evaluate, protocol
from unnoise.apps.protocols.windows import benchmark, find_benchmark
from unnoise.checkpoint.format import find_folder
from unnoise.data.corpus import corpus
from unnoise.evaluation.dataset import Tokenizer, evaluate_split
from unnoise.evaluation.table_text import CELLS, Cell, as_csv, markdown
from unnoise.files import write_atomically
from unnoise.model.model import Model
from unnoise.published_tables import ZERO_SHOT, PublishedTable, plain_name


def measured_table(
    table: PublishedTable,
    models: Sequence[str],
    data: str,
    options: ProtocolOptions,
    *,
    out: Path,
    load: Callable[[str], Model],
    on_cell: Callable[[Cell], None] | None = None,
) -> list[Cell]:
    """Measure all cells of a table, or read them from their files, and write the table to `out`.

    data: folder with the data sets of the table, or one of the data sets.
    load: function that loads a model by its name.
    on_cell: function that is called with each cell.
    """
    protocol(options.protocol)
    sets = data_sets(table, data)
    if len(set(models)) < len(models):
        raise ValueError("name each model once")
    files = {(name, one): out / CELLS / f"{_key(name, path, options)}.json" for name in models for one, path in sets.items()}
    found = distributed.broadcast_result(lambda: {place: _read(path) for place, path in files.items()})
    for name in models:  # before anything is computed
        if wanted := [one for one in sets if found[name, one] is None]:
            check_model(table, load(name), name, wanted, options)
    cells: list[Cell] = []
    for name in models:
        model: Model | None = None
        for one, path in sets.items():
            kept = found[name, one]
            model = load(name) if kept is None and model is None else model
            if kept is None:
                assert model is not None
                if model.codec.grid:
                    kept = _of_images(model, path, table.columns[table.number(one)].split, options)
                else:
                    kept = evaluate(model, path, replace(options, benchmark=one), label=f"the model {name}").as_dict()
                kept |= {"model": name, "method": model.method.name, "benchmark": one}
            cells.append(Cell(name, one, kept, found[name, one] is not None))
            if distributed.rank() == 0:
                if not cells[-1].kept:
                    write_atomically(files[name, one], (json.dumps(kept, indent=1) + "\n").encode())
                write_atomically(out / f"{table.name}.md", markdown(table, cells).encode())
                write_atomically(out / f"{table.name}.csv", as_csv(cells).encode())
                if on_cell is not None:
                    on_cell(cells[-1])
    return cells


def check_model(table: PublishedTable, model: Model, name: str, wanted: Sequence[str], options: ProtocolOptions) -> None:
    """Raise ValueError unless a model can be measured on these data sets."""
    images = any(column.unit == "bits per dimension" for column in table.columns)
    if images and not model.codec.grid:
        raise ValueError(f"the table {table.name} is of images, but {name} is a model of texts")
    for one in wanted:
        if not images:
            check_follows(model, protocol(options.protocol), benchmark(one, ""), f"the model {name}")


def data_sets(table: PublishedTable, data: str) -> dict[str, str]:
    """Return the paths of a table's data sets, from a folder or of a single data set. Raise ValueError if there is none."""
    names = [column.benchmark for column in table.columns]
    names += [name for name in benchmarks.ZERO_SHOT if table is ZERO_SHOT and name not in names]
    path = Path(data)
    found = {}
    if path.is_dir():
        found = {name: str(mine) for name in names if (mine := _inside(path, name)) is not None}
    if not found:
        found = {name: data for name in names if plain_name(path.name).startswith(plain_name(name))}
        found = dict([max(found.items(), key=lambda pair: len(pair[0]))]) if found else {}
    if not found:
        raise ValueError(
            f"{data} contains no data set of the table {table.name}: give --data, one or a folder of {', '.join(names)}"
        )
    return found


def _inside(folder: Path, name: str) -> Path | None:
    """Return the file or folder of a data set in a folder, or None."""
    if name in benchmarks.BENCHMARKS:
        return find_benchmark(folder, name)
    mine = [path for path in sorted(folder.iterdir()) if plain_name(path.name).startswith(plain_name(name))]
    return mine[0] if mine else None


def _of_images(model: Model, path: str, split: str, options: ProtocolOptions) -> dict[str, Any]:
    """Return bits per dimension over a split of images, in the format of other cells."""
    source = corpus(path)
    split = split if split in source.splits else source.splits[-1]
    found = evaluate_split(model, source, split, windows=options.windows, samples=options.draws, seed=options.seed)
    bits, error = found["bits_per_char"], found["stderr"]
    return {
        "protocol": "bound",
        "split": split,
        "windows": found["windows"],
        "counted_tokens": found["windows"] * model.length,
        "tokenizer": asdict(Tokenizer.of(model.codec)),
        "lossless": found["lossless"],
        "bound": {
            "nats_per_token": bits * math.log(2),
            "bits_per_dimension": bits,
            "bits_per_dimension_stderr": error,
            "exact": found["exact"],
            "draws": found["draws"],
        },
    }


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _key(model: str, data: str | Path, options: ProtocolOptions) -> str:
    """Return a hash of everything that a cell depends on: the files of model and data, the options, and the version."""
    files = [*_files(find_folder(model)), *_files(Path(data))]
    stamped = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files if path.exists()]
    label = json.dumps([stamped, str(data), asdict(options), __version__])
    return hashlib.sha1(label.encode()).hexdigest()[:20]


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
