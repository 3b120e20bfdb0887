"""`unnoise compare`: the same data, budget and network for several methods, and one table."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from unnoise.command.measure import kind, over
from unnoise.command.train import Train
from unnoise.data.corpus import corpus
from unnoise.files import check_folder
from unnoise.method_table import method as method_named
from unnoise.model import Model
from unnoise.plot import can_draw, plot_comparison
from unnoise.trainer import STATE, Report
from unnoise.training_command import check_settings, train_run

if TYPE_CHECKING:
    from unnoise.command.measure import Compare


def compare(command: "Compare") -> int:
    """Train each method, measure all on the same test windows; returns the exit code."""
    if len(command.methods) < 2 or len(set(command.methods)) < len(command.methods):
        raise ValueError("name at least two methods, each once, such as: unnoise compare mdlm ar")
    for name in command.methods:
        method_named(name)
    source = corpus(command.data)
    check_folder(command.out)
    shared = {name: value for name, value in vars(command).items() if name not in ("methods", "out", "windows", "samples")}
    runs = {name: Train(name, **shared | {"out": command.out / name, "resume": True}) for name in command.methods}
    for name, asked in runs.items():  # before any is trained, so that like is compared with like
        if (command.out / name / STATE).exists():
            check_settings(asked, Model.load(command.out / name), command.out / name, everything=True)
    rows: list[tuple[Model, Report, dict[str, Any]]] = []
    for name, asked in runs.items():
        if not command.quiet:
            print(f"--- {name}", file=sys.stderr, flush=True)
        run, report = train_run(asked)
        if not report.finished:
            print(f"stopped at step {report.steps} of {name}: run the same command again to go on", file=sys.stderr)
            return 130
        figures = over(run.model, source, source.splits[-1], command.windows, command.samples, command.seed)
        rows.append((run.model, report, figures))
    picture = command.out / "comparison.png"
    if can_draw():
        plot_comparison({name: command.out / name for name in command.methods}, picture)
    if command.quiet:
        results = [
            figures | {k: v for k, v in asdict(report).items() if k in ("steps", "seconds", "tokens")}
            for _, report, figures in rows
        ]
        print(json.dumps({"results": results, "out": str(command.out)}))
        return 0
    unit = rows[0][0].codec.unit
    table = Table(title=f"{command.data}: the same network and budget for each", title_justify="left")
    for heading in ("method", f"bits per {unit}", "", "tokens read", "seconds"):
        table.add_column(heading, justify="left" if heading in ("method", "") else "right")
    for model, report, figures in sorted(rows, key=lambda row: row[2]["bits_per_char"]):
        bits = f"{figures['bits_per_char']:.3f} ± {figures['stderr']:.3f}"
        table.add_row(model.method.name, bits, kind(model), f"{report.tokens:,}", f"{report.seconds:.0f}")
    Console().print(table)
    print(f"{rows[0][2]['windows']} texts of the split {source.splits[-1]}; the models are in {command.out}")
    if can_draw():
        print(f"the curves are in {picture}")
    return 0
