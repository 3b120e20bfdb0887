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
from unnoise.network.transformer import SIZES
from unnoise.plot import can_draw, plot_comparison
from unnoise.trainer import STATE, Report, read_state
from unnoise.training_command import train_run

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
    _check_runs(command)
    shared = {name: value for name, value in vars(command).items() if name not in ("methods", "out", "windows", "samples")}
    rows: list[tuple[Model, Report, dict[str, Any]]] = []
    for name in command.methods:
        if not command.quiet:
            print(f"--- {name}", file=sys.stderr, flush=True)
        run, report = train_run(Train(name, **shared | {"out": command.out / name, "resume": True}))
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


def _check_runs(command: "Compare") -> None:
    """ValueError if a run that is there already was told something else: then the table would not compare like with like."""
    minutes = 3.0 if command.steps is None and command.minutes is None else command.minutes
    for name in command.methods:
        folder = command.out / name
        if not (folder / STATE).exists():
            continue
        model, had = Model.load(folder), read_state(folder / STATE)[0]["options"]
        width, depth, heads, _ = SIZES.get(command.size, SIZES["tiny"])
        wanted = {"steps": command.steps, "minutes": minutes, "batch": command.batch, "seed": command.seed}
        wanted |= {"length": model.codec.length or command.length, "width": width, "depth": depth, "heads": heads}
        has = had | {"length": model.length} | {key: vars(model.shape)[key] for key in ("width", "depth", "heads")}
        for key, value in wanted.items():
            if has[key] != value:
                raise ValueError(f"the run in {folder} has {key} {has[key]}, not {value}: choose another --out")
