"""`unnoise compare`: several methods with the same data, budget and network."""

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, Suppress, arg

from unnoise.cli.base import Device, Json, at_least, device_named
from unnoise.training.options import RunOptions

if TYPE_CHECKING:
    from unnoise.evaluation.compare import Comparison
    from unnoise.training.loop import TrainingRun
    from unnoise.training.report import Report


@dataclass(frozen=True, kw_only=True)
class CompareCommand(RunOptions):
    """Train several methods with the same options and compare their bits per character.

    Example: unnoise compare mdlm udlm ar --data path/to/text8 --out runs/compare --steps 1400
    """

    methods: Annotated[Positional[tuple[str, ...]], arg(metavar="METHOD", help="Methods from `unnoise ls`.")] = ()
    method: Suppress[str] = ""
    out: Annotated[Path, arg(help="Output folder, with one run per method. Existing runs are resumed.")] = Path("runs/compare")
    windows: Annotated[int | None, arg(help="Largest number of test windows, evenly spaced, the same for all methods.")] = 500
    samples: Annotated[int, arg(help="Draws of the bound for each window.")] = 2
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from unnoise.display.plot import plot_comparison
        from unnoise.display.style import can_draw
        from unnoise.evaluation.compare import Interrupted, compare

        at_least(1, windows=self.windows)
        at_least(1, samples=self.samples)
        shared: dict[str, Any] = {field.name: vars(self)[field.name] for field in fields(RunOptions)}
        runs = [RunOptions(**{**shared, "method": name}) for name in self.methods]
        try:
            rows = compare(
                runs,
                self.out,
                windows=self.windows,
                samples=self.samples,
                device=device_named(self.device),
                train=self._train,
            )
        except Interrupted as stop:
            print(f"{stop}: run the same command again to continue", file=sys.stderr)
            return 130
        picture = self.out / "comparison.png"
        if can_draw():
            plot_comparison({name: self.out / name for name in self.methods}, picture)
        if self.as_json:
            results = [
                row.figures | {k: v for k, v in asdict(row.report).items() if k in ("steps", "seconds", "tokens", "loss")}
                for row in rows
            ]
            print(json.dumps({"results": results, "out": str(self.out)}))
            return 0
        self._print_table(rows)
        if can_draw():
            print(f"training curves: {picture}")
        return 0

    def _train(self, run: "TrainingRun") -> "Report":
        from unnoise.cli.train import train_with_bar

        if not self.as_json:
            print(f"--- {run.model.method.name}", file=sys.stderr, flush=True)
        return train_with_bar(run, show=not self.as_json)

    def _print_table(self, rows: "list[Comparison]") -> None:
        from unnoise.evaluation.compare import as_cells, published_column
        from unnoise.evaluation.dataset import bound_kind, kind_of_piece
        from unnoise.evaluation.table_text import aligned
        from unnoise.model.error_bars import with_error

        unit = rows[0].model.codec.unit
        published = published_column(rows, self.data)
        head = ["method", f"bits per {unit}", "", "loss", "tokens read", "seconds"]
        if published:
            head[3:3] = [*(["perplexity"] if published.perplexity else []), "published"]
        lines = []
        cells = {cell.found["method"]: cell.found["bound"] for cell in as_cells(rows, self.data, self.out)}
        for row in sorted(rows, key=lambda row: row.figures["bits_per_char"]):
            report, name = row.report, row.model.method.name
            bits = with_error(row.figures["bits_per_char"], row.figures["stderr"])
            line = [name, bits, bound_kind(row.model), report.loss, f"{report.tokens:,}", f"{report.seconds:.0f}"]
            if published:
                own = [f"{cells[name]['perplexity']:.2f}"] if published.perplexity else []
                line[3:3] = [*own, published.results.get(name, "")]
            lines.append(line)
        print(f"{self.data}: the same network and budget for each\n")
        print("\n".join(aligned(head, lines)))
        figures = rows[0].figures
        pieces = f"{figures['windows']} {kind_of_piece(rows[0].model)} of the {figures['split']} split"
        print(f"\n{pieces}, the same for all methods; the models are in {self.out}")
        if published:
            print(published.description)
