"""`unnoise eval` with protocols and tables, and `unnoise tables`."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from unnoise.cli import eval_command
from unnoise.cli.command_base import DEFAULT_MODEL, Json, at_least, find_folder, open_model
from unnoise.cli.workers import MANY, chosen_workers, run_together
from unnoise.published_tables import table as published_table

if TYPE_CHECKING:
    from unnoise.apps.protocols.protocols import Evaluation, ProtocolOptions
    from unnoise.evaluation.table_text import Cell
    from unnoise.published_tables import PublishedTable


def described(found: "Evaluation") -> str:
    """Describe the published number, the bound, and the parts of their difference."""
    facts = found.as_dict()
    one, chunks, bound = found.protocol, found.chunks, facts["bound"]
    lines = [f"{one.name} ({one.paper}) on {found.benchmark.name}, {found.split}: {one.description}"]
    lost = f", {chunks.dropped:,} of {chunks.tokens:,} tokens in no window" if chunks.dropped else ""
    lines.append(
        f"{chunks.documents:,} documents, {len(chunks.x):,} windows of {chunks.x.shape[1]}{lost}; "
        f"measured on {found.windows:,} windows, {found.bound.tokens:,} tokens counted"
    )
    if chunks.x.shape[1] != found.benchmark.length and one.loss is not None:
        lines.append(f"published numbers use windows of {found.benchmark.length} tokens")
    if "published" in facts:
        mean = facts["published"]["mean"]
        value, unit = facts["published"]["value"], "bits per token" if one.bits else "perplexity"
        over = f"{mean['bits_per_token' if one.bits else 'perplexity']:.3f}"
        again = "" if found.exact else f" (one draw for each window; {over} on average over passes)"
        lines.append(f"as published   {value:.3f} {unit}{again}")
    kind = "exact" if found.exact else "true bound"
    error = "" if found.exact else f" ± {bound['perplexity_stderr']:.3f}"
    spread = "" if found.exact else f" ± {bound['bits_per_char_stderr']:.4f}"
    per_byte = f"{bound['bits_per_byte']:.4f} bits per byte" if found.benchmark.unit == "byte" else ""
    per_character = f"{bound['bits_per_char']:.4f}{spread} bits per character"
    draws = "" if found.exact else f"{found.draws} draws each"
    shown = f"{bound['perplexity']:.3f}{error} perplexity, {bound['bits_per_token']:.4f} bits per token"
    lines.append(f"{kind:14s} {', '.join(part for part in (shown, per_character, per_byte, draws) if part)}")
    if found.differences:
        lines += _difference(found)
    if chunks.specials:
        share = chunks.specials / (chunks.specials + chunks.tokens - chunks.dropped)
        lines.append(f"{share:.1%} of the tokens are BOS and EOS tokens of windows, which are easy to predict")
    return "\n".join(lines)


def _difference(found: "Evaluation") -> list[str]:
    nats, error = found.difference
    tokens = found.bound.tokens
    verdict = {
        None: "cannot be distinguished from the bound with these draws",
        True: f"lies {-nats:.5f} ± {error:.5f} nats per token above the bound",
        False: f"lies {nats:.5f} ± {error:.5f} nats per token below the bound, so it is not a bound",
    }[found.is_bound]
    lines = [f"on average the published number {verdict}; bound − published, {nats:+.5f} ± {error:.5f}, is the sum of"]
    for part in found.differences:
        spread = f" ± {part.stderr / tokens:.5f}" if part.stderr else ""
        lines.append(f"  {part.nats / tokens:+.5f}{spread}  {part.name}: {part.description}")
    return lines


def cell_line(table: "PublishedTable", cell: "Cell") -> str:
    """Describe a cell in one line, in the unit of the table."""
    found, bound = cell.found, cell.found["bound"]
    units = {column.benchmark: column.unit for column in table.columns}
    unit = units.get(cell.benchmark, "perplexity")
    key = {"bits per character": "bits_per_char"}.get(unit, unit.replace(" ", "_"))
    published = f"{found['published'][key]:9.3f} as published" if key in found.get("published", {}) else ""
    kind = "exact" if bound["exact"] else "bound"
    again = ", already computed" if cell.kept else ""
    return f"{cell.model}  {cell.benchmark:12s}{published}  {bound[key]:9.3f} {unit}, {kind}{again}"


@dataclass
class EvalCommand(eval_command.EvalCommand):
    """Measure bits per character over a data set.

    With --protocol it also follows the evaluation of a paper, and with --table it adds rows to a published table.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test

    Example: unnoise eval --model runs/first --data path/to/wikitext2 --protocol mdlm

    Example: unnoise eval --model runs/first --data path/to/text8 --table text8
    """

    data: Annotated[
        str, arg(help="Data as for train; for a protocol also the file of a benchmark, for a table a folder of data sets.")
    ] = "sotu"
    model: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(help=f"Model as for score; default: {DEFAULT_MODEL}. Repeat --model for several rows of a table."),
    ] = ()
    split: Annotated[str | None, arg(help="train, valid or test; default: test, or the split of the benchmark.")] = None
    protocol: Annotated[
        str | None,
        arg(help="Protocol of a paper: bound, mdlm, sedd, bd3lm, duo or md4. Its number is reported next to the true bound."),
    ] = None
    benchmark: Annotated[
        str | None,
        arg(
            help="Benchmark for a protocol: lambada, wikitext2, wikitext103, ptb, lm1b, ag_news, arxiv, pubmed, text8, enwik8 "
            "or plain; default: the benchmark named in the path, or plain."
        ),
    ] = None
    table: Annotated[
        str | None,
        arg(
            help="Published table (see `unnoise tables`): text8, compression, zero-shot, openwebtext or images. Adds a row for "
            "each --model, measured on the data sets of the table that are found in --data."
        ),
    ] = None
    out: Annotated[
        Path | None,
        arg(help="Output folder of a table, default: tables/NAME. Existing cells are not computed again."),
    ] = None
    passes: Annotated[int, arg(help="Passes for a published number. The first gives the number, all of them its mean.")] = 2

    def run(self) -> int:
        if self.table is None and self.protocol is None:
            if self.benchmark is not None:
                raise ValueError("--benchmark needs a protocol: give --protocol too, such as --protocol mdlm")
            if len(self.model) > 1:
                raise ValueError("several models need --table, such as --table zero-shot: give it, or one --model")
            return super().run()
        at_least(1, windows=self.windows)
        at_least(1, samples=self.samples)
        workers = chosen_workers(self.workers, self.windows or MANY, self.as_json)
        if self.table is not None:
            published_table(self.table)
            return run_together(workers, self.device, self._table, self._show_table)
        if len(self.model) > 1:
            raise ValueError("several models need --table, such as --table zero-shot: give it, or one --model")
        return run_together(workers, self.device, self._by_protocol, self._show_protocol)

    def _options(self, protocol: str) -> "ProtocolOptions":
        from unnoise.apps.protocols.protocols import ProtocolOptions

        return ProtocolOptions(
            protocol=protocol,
            benchmark=self.benchmark,
            split=self.split,
            windows=self.windows,
            draws=self.samples,
            passes=self.passes,
            seed=self.seed,
        )

    def _by_protocol(self, device: str) -> "Evaluation":
        from unnoise.apps.protocols.protocols import evaluate

        model = open_model(self._name, device)
        if model.codec.grid:
            raise ValueError("protocols are for texts, but this is a model of images")
        label = f"the model {self._name or find_folder(None).name}"
        return evaluate(model, self.data, self._options(self.protocol or "bound"), label=label)

    def _show_protocol(self, found: "Evaluation") -> int:
        print(json.dumps(found.as_dict()) if self.as_json else described(found))
        return 0

    def _table(self, device: str) -> "list[Cell]":
        from unnoise.apps.protocols.tables import measured_table

        table = published_table(self.table or "")
        options = replace(self._options(self.protocol or table.protocol), benchmark=None, split=None)
        show = None if self.as_json else lambda cell: print(cell_line(table, cell), flush=True)
        return measured_table(
            table,
            self.model or (str(find_folder(None)),),
            self.data,
            options,
            out=self._table_folder,
            load=lambda name: open_model(name, device),
            on_cell=show,
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


@dataclass
class TablesCommand:
    """Print published tables, with measured results next to them.

    --measured names the output of `unnoise eval --table` or `unnoise compare`.

    Example: unnoise tables text8
    Example: unnoise tables zero-shot --measured tables/zero-shot
    """

    names: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="NAME", help="text8, compression, zero-shot, openwebtext or images; default: all."),
    ] = ()
    measured: Annotated[
        UseAppendAction[tuple[Path, ...]],
        arg(help="Output folder of `unnoise eval --table` or `unnoise compare`. Repeat --measured for several folders."),
    ] = ()
    as_json: Json = False

    def run(self) -> int:
        from unnoise.evaluation.table_text import markdown, read_cells
        from unnoise.published_tables import TABLES, table

        chosen = [table(name) for name in self.names or TABLES]
        cells = [cell for folder in self.measured for cell in read_cells(folder)]
        if self.as_json:
            found = {"tables": [asdict(one) for one in chosen], "measured": [asdict(cell) for cell in cells]}
            print(json.dumps(found, ensure_ascii=False))
        else:
            print("\n".join(markdown(one, cells) for one in chosen), end="")
        return 0
