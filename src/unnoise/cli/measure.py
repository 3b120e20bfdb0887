"""Commands that measure: `unnoise score` and `eval`."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from unnoise.cli.base import DEFAULT_MODEL, Device, Json, ModelName, Seed, at_least, folder_of, open_model, say_read, text_of
from unnoise.cli.protocol import cell_line, described
from unnoise.cli.workers import MANY, Workers, chosen_workers, run_together
from unnoise.published_tables import table as published_table

if TYPE_CHECKING:
    from unnoise.evaluation.protocols import Evaluation
    from unnoise.evaluation.table_text import Cell
    from unnoise.model.likelihood import Score
    from unnoise.model.model import Model


@dataclass
class ScoreCommand:
    """Bits per character of a text: exact for ar, an upper bound otherwise.

    Example: unnoise score "the state of the union is strong" --model runs/first
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: ModelName = None
    samples: Annotated[
        int | None,
        arg(help="Draws of the bound, at most; default: 32, or 2 with --orders. A standard error takes 16 of one text."),
    ] = None
    orders: Annotated[
        int | None,
        arg(help="Orders of unmasking to average over: a tighter bound, for masked models without time conditioning."),
    ] = None
    error: Annotated[
        float,
        arg(
            help="Standard error to aim for, in bits per character: a few draws first tell how many more it takes; 0: take all."
        ),
    ] = 0.01
    seed: Seed = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        """Score and print."""
        return run_together(1, self.device, self._score, self._show)

    def _score(self, device: str) -> "tuple[Model, Score]":
        from unnoise import distributed

        model = open_model(self.model, device)
        text = distributed.each(1, lambda _: text_of(self.text))[0]  # one process reads it, as standard input can be read once
        return model, model.score(text, self.samples, self.seed, self.error, self.orders)

    def _show(self, found: "tuple[Model, Score]") -> int:
        from unnoise.evaluation.dataset import figure_kind

        model, score = found
        say_read(score.read)
        if self.as_json:
            print(json.dumps(asdict(score)))
            return 0
        orders = "" if score.orders is None else f" of {score.orders} orders"
        drawn = ", all choices of masks" if score.enumerated else _drawn(score.stderr, score.draws, score.interval)
        print(
            f"{score.bits_per_char:.4f} bits per {model.codec.unit} ({figure_kind(model)}{orders}{drawn}), "
            f"{score.nats:.1f} nats in all"
        )
        if score.windows > 1:
            print(f"longer than the model's {model.length} tokens: scored in {score.windows} independent windows")
        if score.stderr is None:
            print(f"too few draws for a standard error ({score.draws}): pass --samples 16 or more", file=sys.stderr)
        elif not score.reached:
            _tell_missed(score.stderr, self.error, score.draws)
        return 0


@dataclass
class EvalCommand:
    """Bits per character over a data set; with --protocol a paper's evaluation next to the bound, with --table a paper's table.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test

    Example: unnoise eval --model runs/first --data path/to/wikitext2 --protocol mdlm

    Example: unnoise eval --model runs/first --data path/to/text8 --table text8
    """

    data: Annotated[
        str, arg(help="As for train; for a protocol also the file of a benchmark, for a table a folder of them.")
    ] = "sotu"
    model: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(help=f"As for score, default: {DEFAULT_MODEL}; for a table several, each with --model."),
    ] = ()
    split: Annotated[str | None, arg(help="train, valid or test; default: test, or the split of the protocol.")] = None
    protocol: Annotated[
        str | None,
        arg(help="Protocol of a paper, next to the true bound: bound, mdlm, sedd, bd3lm, duo or md4 (docs/apps/protocols.md)."),
    ] = None
    benchmark: Annotated[
        str | None,
        arg(
            help="Benchmark of the data, for a protocol: lambada, wikitext2, wikitext103, ptb, lm1b, ag_news, arxiv, pubmed, "
            "text8, enwik8 or plain; default: by the name of the path, else plain."
        ),
    ] = None
    table: Annotated[
        str | None,
        arg(
            help="text8, compression, zero-shot, openwebtext or images: the published table (`unnoise tables`) with a row for "
            "each --model, measured on each of its data sets that is found in --data."
        ),
    ] = None
    out: Annotated[
        Path | None,
        arg(help="Output folder of a table; cells that are in it are not computed again. Default: tables/ and its name."),
    ] = None
    passes: Annotated[int, arg(help="Passes for a published number: the first gives the number, all its mean.")] = 2
    texts: Annotated[
        Literal["windows", "whole"] | None,
        arg(help="Windows of one stream, or whole texts (lines, records) with their ends; default: as it was trained."),
    ] = None
    windows: Annotated[int | None, arg(help="Number of windows, evenly spaced, at most; default: all.")] = None
    samples: Annotated[int, arg(help="Draws of the bound for each window, at most.")] = 16
    error: Annotated[
        float,
        arg(
            help="Standard error to aim for, in bits per character: a few draws first tell how many more it takes; 0: take all."
        ),
    ] = 0.01
    seed: Seed = 0
    workers: Workers = 1
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        """Evaluate and print."""
        at_least(1, windows=self.windows)
        at_least(1, samples=self.samples)
        workers = chosen_workers(self.workers, self.windows or MANY, self.as_json)
        if self.table is not None:
            published_table(self.table)
            return run_together(workers, self.device, self._table, self._show_table)
        if len(self.model) > 1:
            raise ValueError("several models make a table: give --table, such as --table zero-shot, or one --model")
        if self.protocol is not None:
            return run_together(workers, self.device, self._by_protocol, self._show_protocol)
        if self.benchmark is not None:
            raise ValueError("--benchmark is for a protocol: give --protocol too, such as --protocol mdlm")
        return run_together(workers, self.device, self._evaluate, self._show)

    @property
    def _name(self) -> str | None:
        return self.model[0] if self.model else None

    def _by_protocol(self, device: str) -> "Evaluation":
        from unnoise.evaluation.protocols import evaluate

        model = open_model(self._name, device)
        if model.codec.grid:
            raise ValueError("protocols are for texts, and this is a model of images")
        name = self.protocol or "bound"
        label = f"the model {self._name or folder_of(None).name}"
        options = self.benchmark, self.split, self.windows, self.samples, self.passes, self.seed
        return evaluate(model, name, self.data, *options, label)

    def _show_protocol(self, found: "Evaluation") -> int:
        print(json.dumps(found.as_dict()) if self.as_json else described(found))
        return 0

    def _table(self, device: str) -> "list[Cell]":
        from unnoise.evaluation.tables import TableOptions, measured_table

        table = published_table(self.table or "")
        options = TableOptions(self.protocol or table.protocol, self.windows, self.samples, self.passes, self.seed)
        models = self.model or (str(folder_of(None)),)
        show = None if self.as_json else lambda cell: print(cell_line(table, cell), flush=True)
        return measured_table(
            table, models, self.data, self._table_folder, options, lambda name: open_model(name, device), show
        )

    @property
    def _table_folder(self) -> Path:
        return self.out or Path("tables") / (self.table or "")

    def _show_table(self, cells: "list[Cell]") -> int:
        folder = self._table_folder
        if self.as_json:
            print(json.dumps({"out": str(folder), "cells": [asdict(cell) for cell in cells]}))
        else:
            text = (folder / f"{self.table}.md").read_text(encoding="utf-8")
            print(f"\n{text}\nwrote {folder / str(self.table)}.md and .csv")
        return 0

    def _evaluate(self, device: str) -> "tuple[Model, dict[str, Any]]":
        from unnoise.data.corpus import corpus
        from unnoise.evaluation.dataset import checked_cut, evaluate_split

        model = open_model(self._name, device)
        found = evaluate_split(
            model,
            source=corpus(self.data),
            split=self.split or "test",
            windows=self.windows,
            samples=self.samples,
            seed=self.seed,
            error=self.error,
            cut=checked_cut(model, self.texts),
        )
        return model, found

    def _show(self, result: "tuple[Model, dict[str, Any]]") -> int:
        from unnoise.evaluation.dataset import LOSSY, figure_kind, kind_of_piece

        model, found = result
        if self.as_json:
            print(json.dumps(found))
            return 0
        kind = kind_of_piece(model, self.texts)
        texts = f"{kind} of" if kind in ("images", "windows") else f"{kind} of at most"
        print(
            f"{found['bits_per_char']:.4f} bits per {model.codec.unit} ({figure_kind(model)}"
            f"{_drawn(found['stderr'], found['draws'], found['interval'])}; {found['windows']} {texts} {model.length})"
        )
        if not found["lossless"]:
            print(LOSSY)
        if found["text_stderr"] is not None:
            print(f"± {found['text_stderr']:.4f} as an estimate for all such data, from the spread over what was measured")
        if not found["reached"]:
            _tell_missed(found["stderr"], self.error, found["draws"])
        return 0


def _drawn(stderr: float | None, draws: int, interval: tuple[float, float] | None) -> str:
    """Return the error by drawing in words: nothing where nothing was drawn."""
    if stderr is None or interval is None:
        return f", from {draws} draws each" if draws > 1 else ", from one draw each"
    return f", ± {stderr:.4f} from {draws} draws each, 95 % interval {interval[0]:.4f} to {interval[1]:.4f}" if stderr else ""


def _tell_missed(stderr: float, error: float, draws: int) -> None:
    """Say on stderr that the standard error is above --error, and what it would take."""
    needed = float(f"{draws * (stderr / error) ** 2:.1e}")
    print(
        f"the standard error {stderr:.4f} is above --error {error:g}: that would take about {needed:.0f} draws "
        f"(--error 0 --samples {needed:.0f})",
        file=sys.stderr,
    )
