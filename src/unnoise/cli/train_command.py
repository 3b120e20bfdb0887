"""What commands that are told a whole run share: METHOD and options, or a recipe, but for what is typed.

`unnoise train`.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Device, Json
from unnoise.cli.workers import Workers, chosen_workers, run_together
from unnoise.recipes import Recipe, recipe
from unnoise.training.training_options import RunOptions

if TYPE_CHECKING:
    from unnoise.training.callbacks import Callback
    from unnoise.training.trainer import Report, TrainingRun

REPLACES = {  # an option that is typed → what no longer holds of a recipe, or of the run that goes on
    "--steps": ("steps", "minutes"),
    "--minutes": ("steps", "minutes", "warmup_steps"),
    "--warmup": ("warmup_steps",),
    "--size": ("width", "depth", "heads"),
}


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions):
    """A run by its method and options, or by a recipe."""

    method: Annotated[Positional[str], arg(metavar="METHOD", help="A name from `unnoise ls`; a recipe brings its own.")] = ""
    recipe: Annotated[
        str | None, arg(help="A published run by its name from `unnoise ls --recipes`, or a Python file; typed options win.")
    ] = None

    def options(self) -> RunOptions:
        """The run that this command describes."""
        return RunOptions(**{field.name: vars(self)[field.name] for field in fields(RunOptions)})

    def chosen_recipe(self) -> Recipe | None:
        """The recipe that is named, or ValueError if it does not go with the method."""
        if self.recipe is None:
            return None
        found = recipe(self.recipe)
        trains = found.options.method
        if self.method not in ("", trains, trains.partition(":")[0]):
            raise ValueError(f"the recipe {self.recipe} trains {trains}, not {self.method}: leave METHOD out")
        return found

    @property
    def recipe_name(self) -> str:
        """How the recipe is called, without the folder and the suffix of a file."""
        return Path(self.recipe or "").stem

    def defaults(self) -> dict[str, Any]:
        """What holds wherever nothing is typed: the recipe's options, where there is a recipe."""
        found = self.chosen_recipe()
        return asdict(found.options) if found else {}


def kept_defaults(defaults: dict[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Defaults without those that an option which is typed takes the place of."""
    typed = {word.split("=")[0].replace("_", "-") for word in arguments}
    replaced = {name for option, names in REPLACES.items() if option in typed for name in names}
    return {name: value for name, value in defaults.items() if name not in replaced}


ENOUGH = "the run already finished ({} steps): pass a larger --steps (or --minutes) to train further"


@dataclass(frozen=True, kw_only=True)
class TrainCommand(RunCommand):
    """Train a model on the loss of its method's paper, or with --loss fast on a cross-entropy that learns faster.

    Example: unnoise train mdlm --data sotu --out runs/first --minutes 3
    """

    out: Annotated[Path | None, arg(help="Output folder; default: runs/METHOD-DATA, or runs/RECIPE.")] = None
    resume: Annotated[bool, arg(help="Resume the run in --out with its options; a larger --steps may be given.")] = False
    workers: Workers = 1
    track: Annotated[Literal["tensorboard", "wandb", "trackio"] | None, arg(help="Also log to an experiment tracker.")] = None
    device: Device = "auto"
    as_json: Json = False

    @property
    def folder(self) -> Path:
        """Where the run is written."""
        if self.out is not None:
            return self.out
        from unnoise.data.mixture import mixture_parts

        parts = [name for name, _ in mixture_parts(self.data)] or [self.data]
        named = "-".join([self.method, *(Path(part).name.split(".")[0] for part in parts)])
        return Path("runs") / (self.recipe_name or named)

    def defaults(self) -> dict[str, Any]:
        """With --resume also the options of the run that goes on: what was not typed is as it was."""
        recipe = super().defaults()
        if not self.resume:
            return recipe
        from unnoise.training.checkpointing import read_options

        saved = read_options(self.folder)
        if recipe and saved.get("method", recipe["method"]) != recipe["method"]:
            raise ValueError(f"{self.folder} holds a run of {saved['method']}, and {self.recipe} trains {recipe['method']}")
        return recipe | {field.name: saved[field.name] for field in fields(RunOptions) if field.name in saved}

    def run(self) -> int:
        """Train, and say what came of it; returns the exit code."""
        workers = chosen_workers(self.workers, self.batch, self.as_json)
        return run_together(workers, self.device, self._train, self._show)

    def _train(self, device: str) -> "tuple[TrainingRun, Report]":
        from unnoise import distributed
        from unnoise.training.callbacks import Tracker
        from unnoise.training.run import prepare_run, split_stages

        speaks = distributed.rank() == 0 and not self.as_json
        *earlier, last = split_stages(self.options(), self.folder)
        for options, folder in earlier:
            run = prepare_run(options, folder, self.resume, device)
            if run.progress < 1:
                if speaks:
                    print(f"first {options.method}, in {folder}", file=sys.stderr)
                report = train_with_bar(run, show=speaks, callbacks=self.callbacks())
                if not report.finished:
                    return run, report
        run = prepare_run(*last, self.resume, device)
        if run.done and speaks:
            print(f"resuming at step {run.done}" if run.progress < 1 else ENOUGH.format(run.done), file=sys.stderr)
        tracked = self.track is not None and distributed.rank() == 0
        trackers = [Tracker(str(self.track), self.folder, asdict(self.options()))] if tracked else []
        return run, train_with_bar(run, show=speaks, callbacks=[*self.callbacks(), *trackers])

    def callbacks(self) -> "list[Callback]":
        """Return further callbacks of a run. Applications extend this."""
        return []

    def _show(self, found: "tuple[TrainingRun, Report]") -> int:
        run, report = found
        if self.as_json:
            print(json.dumps({"out": str(run.out)} | {k: v for k, v in asdict(report).items() if k != "curve"}))
        else:
            _print_result(run, report)
        return 0 if report.finished else 130


def train_with_bar(run: "TrainingRun", show: bool = True, callbacks: "Sequence[Callback]" = ()) -> "Report":
    """Train with a progress bar if `show`. Ctrl-C stops the run after saving it."""
    from unnoise.cli.command_base import StopRequest
    from unnoise.cli.terminal import ProgressBar
    from unnoise.training.trainer import DivergedError

    with StopRequest() as stop, ProgressBar(run.model.codec.unit) if show else nullcontext() as bar:
        try:
            return run.run([*([bar] if bar else []), *callbacks], stop)
        except DivergedError as error:
            smaller = "--lr" if run.options.optimizer == "adamw" else "--muon-lr and --adam-lr"
            raise ValueError(f"{error}; {_last_checkpoint(run)} Try a smaller {smaller}.") from error


def _last_checkpoint(run: "TrainingRun") -> str:
    from unnoise.training.checkpointing import has_state

    if run.out is not None and has_state(run.out):
        return f"the last good checkpoint is in {run.out}."
    return "no checkpoint had been written yet."


def _print_result(run: "TrainingRun", report: "Report") -> None:
    from unnoise.data.texts import Source
    from unnoise.evaluation.dataset import LOSSY, bound_kind
    from unnoise.model.error_bars import with_error

    if not report.finished:
        print(f"stopped at step {report.steps}; everything is saved: run the same command with --resume to continue")
        return
    print(
        f"{run.model.method.name}: {report.bits_before:.3f} → {with_error(report.bits, report.stderr)} "
        f"bits per {run.model.codec.unit} ({bound_kind(run.model)}, held-out; trained on the {report.loss} loss), "
        f"{report.steps} steps, {report.tokens:,} tokens, {report.seconds:.0f} s of training"
    )
    if report.text_stderr is not None:
        drawing = f"± {report.stderr:.3f} by drawing, for the held-out texts measured; " if report.stderr else ""
        print(f"{drawing}± {report.text_stderr:.3f} as an estimate for all such texts, from the spread over those measured")
    if isinstance(run.source, Source) and not run.source.lossless(run.model.codec, run.source.splits[-1], run.model.segment):
        print(LOSSY)
    print(f"saved in {run.out}; try: unnoise generate --model {shlex.quote(str(run.out))} --watch")
