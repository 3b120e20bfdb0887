"""Comparison of several methods, trained with the same options and measured on the same texts."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unnoise.data.corpus import corpus
from unnoise.evaluation.dataset import Tokenizer, evaluate_split
from unnoise.evaluation.table_text import COMPARISON, Cell
from unnoise.files import check_folder, write_atomically
from unnoise.method_table import method as method_named
from unnoise.model.model import Model
from unnoise.published_tables import column_of_data, of_method
from unnoise.training.checkpointing import has_state, read_options
from unnoise.training.run import prepare_run
from unnoise.training.trainer import Report, TrainingRun
from unnoise.training.training_options import RunOptions, check_unchanged


@dataclass(frozen=True)
class Comparison:
    """One method of a comparison.

    model: the trained model.
    report: training report.
    figures: results of `evaluate_split` on the test texts.
    """

    model: Model
    report: Report
    figures: dict[str, Any]


def as_cells(rows: Sequence[Comparison], data: str, out: Path) -> list[Cell]:
    """Return the results as cells of a table, or none if no published table contains the data set."""
    place = column_of_data(data)
    if place is None:
        return []
    benchmark = place[0].columns[place[1]].benchmark
    names = [str(out / row.figures["method"]) for row in rows]
    return [Cell(name, benchmark, _found(row, name, benchmark)) for name, row in zip(names, rows, strict=True)]


@dataclass(frozen=True)
class PublishedColumn:
    """Published results next to a comparison.

    results: results by method, as they are printed.
    description: their source, and whether they are comparable.
    perplexity: whether they are perplexities.
    """

    results: dict[str, str]
    description: str
    perplexity: bool


def published_column(rows: Sequence[Comparison], data: str) -> PublishedColumn | None:
    """Return the published results of these methods on these data, or None."""
    place = column_of_data(data)
    if place is None:
        return None
    (table, number), codec = place, rows[0].model.codec
    column, tokens = table.columns[number], Tokenizer.of(codec)
    known = {row.figures["method"]: of_method(table, number, row.figures["method"]) for row in rows}
    results = {name: table.shown(result, number) for name, result in known.items() if result is not None}
    if not results:
        return None
    description = (
        f"published: {column.unit} of the whole {column.split} part of {column.title}, by larger networks; {table.source}"
    )
    if column.unit == "perplexity" and tokens.key != table.tokens:
        description += (
            f". They are per token of {table.tokens}, and perplexities per token of {tokens.name} cannot be compared with them"
        )
    elif column.unit not in ("perplexity", f"bits per {codec.unit}"):
        description += f". They cannot be compared with bits per {codec.unit}"
    return PublishedColumn(results, description, column.unit == "perplexity")


def _found(row: Comparison, name: str, benchmark: str) -> dict[str, Any]:
    """Return one result in the format of `unnoise eval --table`."""
    figures, codec = row.figures, row.model.codec
    key = {"byte": "bits_per_byte", "dimension": "bits_per_dimension"}.get(codec.unit, "bits_per_char")
    nats = figures["nats"] / figures["tokens"]
    stderr = figures["stderr"]
    error = None if stderr is None else stderr * nats / figures["bits_per_char"]
    bound = {
        "nats_per_token": nats,
        "bits_per_token": nats / math.log(2),
        key: figures["bits_per_char"],
        f"{key}_stderr": stderr,
        "exact": figures["exact"],
    }
    if not codec.grid:
        perplexity = math.exp(min(nats, 700))
        bound |= {"perplexity": perplexity, "perplexity_stderr": None if error is None else perplexity * error}
    return {
        "model": name,
        "method": figures["method"],
        "benchmark": benchmark,
        "split": figures["split"],
        "windows": figures["windows"],
        "counted_tokens": figures["tokens"],
        "tokenizer": asdict(Tokenizer.of(codec)),
        "lossless": figures["lossless"],
        "bound": bound,
    }


class Interrupted(Exception):
    """A training run was stopped before its end."""

    def __init__(self, method: str, steps: int):
        super().__init__(f"stopped at step {steps} of {method}")


def compare(
    runs: Sequence[RunOptions],
    out: Path,
    *,
    windows: int | None,
    samples: int,
    device: str,
    train: Callable[[TrainingRun], Report] = TrainingRun.run,
) -> list[Comparison]:
    """Train each method into its own folder in `out`, or resume it, and measure all methods on the same windows.

    windows: maximum number of windows, evenly spaced; None for all.
    samples: number of draws of the bound for each window.
    train: function that trains one run, for example with a progress bar.
    """
    names = [run.method for run in runs]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError("name at least two methods, each once, such as: unnoise compare mdlm ar")
    for name in names:
        method_named(name)
    source = corpus(runs[0].data)
    check_folder(out)
    for options in runs:  # before any is trained
        if has_state(out / options.method):
            check_same(options, out / options.method)
    rows: list[Comparison] = []
    for options in runs:
        run = prepare_run(options, out / options.method, resume=True, device=device)
        report = train(run)
        if not report.finished:
            raise Interrupted(options.method, report.steps)
        figures = evaluate_split(run.model, source, source.splits[-1], windows=windows, samples=samples, seed=options.seed)
        rows.append(Comparison(run.model, report, figures))
    found = {"results": [row.figures for row in rows], "cells": [cell.found for cell in as_cells(rows, runs[0].data, out)]}
    write_atomically(out / COMPARISON, (json.dumps(found, indent=1) + "\n").encode())
    return rows


def check_same(options: RunOptions, folder: Path) -> None:
    """Raise ValueError unless the run in a folder has these options, including its length."""
    saved = read_options(folder)
    check_unchanged(options, saved, str(folder))
    for name in ("steps", "minutes"):
        if saved.get(name) != vars(options)[name]:
            raise ValueError(
                f"the run in {folder} has {name} {saved.get(name)}, not {vars(options)[name]}: "
                "resume with the same options, or use another folder"
            )
