"""The commands `unnoise train` and `unnoise plan`. Both describe a run by a method and options, or by a recipe.

The options and their help are declared in `unnoise.training.training_options`.
"""

import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Device, Json, at_least, field_values, show_result
from unnoise.cli.workers import StopRequest, Workers, chosen_workers, run_together
from unnoise.recipes import Recipe, recipe
from unnoise.training.training_options import RunOptions

if TYPE_CHECKING:
    from unnoise.training.callbacks import Callback
    from unnoise.training.plan import Plan
    from unnoise.training.trainer import Report, TrainingRun

REPLACES = {  # option on the command line → options of the recipe, or of the resumed run, that it replaces
    "--steps": ("steps", "minutes"),
    "--minutes": ("steps", "minutes", "warmup_steps"),
    "--warmup": ("warmup_steps",),
    "--size": ("width", "depth", "heads"),
}
FINISHED = "the run already finished ({} steps): pass a larger --steps (or --minutes) to train further"
GPUS = {  # name → operations a second in bf16 (dense) and in float32, GiB
    "b200": (2.25e15, 80e12, 179),
    "h200": (989e12, 67e12, 140),
    "h100": (989e12, 67e12, 80),
    "a100": (312e12, 19.5e12, 80),
    "a100-40": (312e12, 19.5e12, 40),
    "l40s": (362e12, 91.6e12, 45),
    "rtx4090": (165e12, 82.6e12, 24),
}
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions):
    """Base class of the commands that describe a run."""

    method: Annotated[Positional[str], arg(metavar="METHOD", help="A method from `unnoise ls`. Not needed with --recipe.")] = ""
    recipe: str | None = None
    """Recipe of a published run: a name from `unnoise ls --recipes`, or a Python file. Other options override it."""

    def options(self) -> RunOptions:
        return RunOptions(**field_values(self, RunOptions))

    def chosen_recipe(self) -> Recipe | None:
        """Return the recipe, or raise ValueError if it trains a different method."""
        if self.recipe is None:
            return None
        found = recipe(self.recipe)
        trains = found.options.method
        if self.method not in ("", trains, trains.partition(":")[0]):
            raise ValueError(f"the recipe {self.recipe} trains {trains}, not {self.method}: leave METHOD out")
        return found

    @property
    def recipe_name(self) -> str:
        return Path(self.recipe or "").stem

    def defaults(self) -> dict[str, Any]:
        """Return the options of the recipe, which are the defaults of options that are not given."""
        found = self.chosen_recipe()
        return asdict(found.options) if found else {}


def kept_defaults(defaults: dict[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the defaults without those that an option on the command line replaces."""
    typed = {word.split("=")[0].replace("_", "-") for word in arguments}
    replaced = {name for option, names in REPLACES.items() if option in typed for name in names}
    return {name: value for name, value in defaults.items() if name not in replaced}


@dataclass(frozen=True, kw_only=True)
class TrainCommand(RunCommand):
    """Train a model.

    --loss paper, the default, is the loss of the method's paper. --loss fast is a cross-entropy that learns faster.

    Example: unnoise train mdlm --data sotu --out runs/first --minutes 3
    """

    out: Annotated[Path | None, arg(help="Output folder; default: runs/METHOD-DATA, or runs/RECIPE.")] = None
    resume: Annotated[bool, arg(help="Resume the run in --out with its options. A larger --steps trains it further.")] = False
    workers: Workers = 1
    track: Annotated[Literal["tensorboard", "wandb", "trackio"] | None, arg(help="Also log to an experiment tracker.")] = None
    device: Device = "auto"
    as_json: Json = False

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        if self.out is not None:
            return self.out
        from unnoise.data.mixture import mixture_parts

        parts = [name for name, _ in mixture_parts(self.data)] or [self.data]
        named = "-".join([self.method, *(Path(part).name.split(".")[0] for part in parts)])
        return Path("runs") / (self.recipe_name or named)

    def defaults(self) -> dict[str, Any]:
        """Return the options of the recipe and, with --resume, of the run that is resumed."""
        recipe = super().defaults()
        if not self.resume:
            return recipe
        from unnoise.training.checkpointing import read_options

        saved = read_options(self.folder)
        if recipe and saved.get("method", recipe["method"]) != recipe["method"]:
            raise ValueError(f"{self.folder} holds a run of {saved['method']}, and {self.recipe} trains {recipe['method']}")
        return recipe | {field.name: saved[field.name] for field in fields(RunOptions) if field.name in saved}

    def run(self) -> int:
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
                    print(f"first stage: {options.method}, in {folder}", file=sys.stderr)
                report = train_with_bar(run, show=speaks, callbacks=self.callbacks())
                if not report.finished:
                    return run, report
        run = prepare_run(*last, self.resume, device)
        if run.done and speaks:
            print(f"resuming at step {run.done}" if run.progress < 1 else FINISHED.format(run.done), file=sys.stderr)
        tracked = self.track is not None and distributed.rank() == 0
        trackers = [Tracker(str(self.track), self.folder, asdict(self.options()))] if tracked else []
        return run, train_with_bar(run, show=speaks, callbacks=[*self.callbacks(), *trackers])

    def callbacks(self) -> "list[Callback]":
        """Return further callbacks of a run. Applications extend this."""
        return []

    def _show(self, found: "tuple[TrainingRun, Report]") -> int:
        run, report = found
        facts = {"out": str(run.out)} | {name: value for name, value in asdict(report).items() if name != "curve"}
        show_result(self.as_json, facts, _summary(run, report))
        return 0 if report.finished else 130


def train_with_bar(run: "TrainingRun", show: bool = True, callbacks: "Sequence[Callback]" = ()) -> "Report":
    """Train with a progress bar if `show`. Ctrl-C stops the run after saving it."""
    from unnoise.cli.terminal import ProgressBar
    from unnoise.training.checkpointing import has_state
    from unnoise.training.trainer import DivergedError

    with StopRequest() as stop, ProgressBar(run.model.codec.unit) if show else nullcontext() as bar:
        try:
            return run.run([*([bar] if bar else []), *callbacks], stop)
        except DivergedError as error:
            smaller = "--lr" if run.options.optimizer == "adamw" else "--muon-lr and --adam-lr"
            saved = run.out is not None and has_state(run.out)
            kept = f"the last good checkpoint is in {run.out}" if saved else "no checkpoint had been written yet"
            raise ValueError(f"{error}; {kept}. Try a smaller {smaller}.") from error


def _summary(run: "TrainingRun", report: "Report") -> Iterator[str]:
    from unnoise.data.texts import Source
    from unnoise.evaluation.dataset import LOSSY, bound_kind
    from unnoise.model.error_bars import with_error

    if not report.finished:
        yield f"stopped at step {report.steps}, and saved: run the same command with --resume to continue"
        return
    yield (
        f"{run.model.method.name}: {report.bits_before:.3f} → {with_error(report.bits, report.stderr)} "
        f"bits per {run.model.codec.unit} ({bound_kind(run.model)}, held-out; trained on the {report.loss} loss), "
        f"{report.steps} steps, {report.tokens:,} tokens, {report.seconds:.0f} s of training"
    )
    if report.text_stderr is not None:
        drawing = f"± {report.stderr:.3f} by drawing, for the held-out texts measured; " if report.stderr else ""
        yield f"{drawing}± {report.text_stderr:.3f} as an estimate for all such texts, from the spread over those measured"
    if isinstance(run.source, Source) and not run.source.lossless(run.model.codec, run.source.splits[-1], run.model.segment):
        yield LOSSY
    yield f"saved in {run.out}; try: unnoise generate --model {shlex.quote(str(run.out))} --watch"


@dataclass(frozen=True, kw_only=True)
class PlanCommand(RunCommand):
    """Estimate the memory, arithmetic, traffic and days of a run.

    No data are read, and nothing is trained.

    Example: unnoise plan --recipe mdlm-owt --gpus 8 --gpu h100
    """

    gpus: Annotated[int, arg(help="Number of devices, over all machines.")] = 8
    gpu: Annotated[str, arg(help=f"Kind of device: {', '.join(GPUS)}.")] = "h100"
    flops: Annotated[float | None, arg(help="FLOP/s of each device, instead of the value for --gpu.")] = None
    memory: Annotated[float | None, arg(help="Memory of each device in GiB, instead of the value for --gpu.")] = None
    utilisation: Annotated[float, arg(help="Fraction of the peak FLOP/s that the run reaches.")] = 0.4
    vocab: Annotated[int | None, arg(help="Vocabulary size; default: from the recipe or the codec's name.")] = None
    as_json: Json = False

    def run(self) -> int:
        from unnoise.training.plan import Devices, plan, vocabulary

        self._check()
        recipe = self.chosen_recipe()
        of_recipe = recipe.vocab if recipe and self.codec == recipe.options.codec else None
        bf16, float32, gib = GPUS[self.gpu]
        flops = self.flops or (float32 if self.precision == "float32" else bf16)
        found = plan(
            self.options(),
            Devices(self.gpus, flops, (self.memory or gib) * GIB, self.utilisation),
            self.vocab or of_recipe or vocabulary(self.codec),
            recipe.image if recipe else (),
        )
        name = self.recipe_name or self.method
        gib = self.memory or gib
        typed = ("gpus", "utilisation", "precision", "shard", "checkpoint_activations")
        about = {"run": name, "flops_per_second": flops, "memory_gib": gib} | {field: vars(self)[field] for field in typed}
        published = [f"published: {recipe.published}; {recipe.paper}"] if recipe and recipe.published else []
        rows = (f"{left:34s} {right}".rstrip() for left, right in self._rows(found, gib))
        return show_result(self.as_json, about | asdict(found), [self._title(name, flops, gib), *rows, *published])

    def _check(self) -> None:
        at_least(1, gpus=self.gpus, vocab=self.vocab)
        if self.gpu not in GPUS:
            raise ValueError(f"unknown GPU {self.gpu!r}: use one of {', '.join(GPUS)}, or --flops and --memory")
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"--utilisation must lie in (0, 1], found {self.utilisation}")
        for name, value in (("flops", self.flops), ("memory", self.memory)):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} must be > 0, found {value}")

    def _title(self, name: str, flops: float, gib: float) -> str:
        devices = f"{self.gpus} × {self.gpu if self.flops is None else f'{flops:.3g} FLOP/s'}, {gib:g} GiB"
        kind = "float32" if self.precision == "float32" else "bf16"
        return f"{name} on {devices}, {kind}, {'sharded' if self.shard else 'replicated'}"

    def _rows(self, found: "Plan", gib: float) -> list[tuple[str, str]]:
        parts = f", in {found.parts} parts of {found.device_batch}" if found.parts > 1 else ""
        rows = [
            ("parameters", f"{found.parameters:,}"),
            ("sequences per update", f"{found.texts_per_update:,}, {found.texts_per_device:,} on a device{parts}"),
            ("memory per device", ""),
            *((f"  {part}", f"{size / GIB:.2f} GiB") for part, size in found.memory.items()),
            ("  total", f"{found.memory_total / GIB:.2f} GiB{self._fit(found, gib)}"),
        ]
        if found.memory_total_checkpointed is not None and not self.checkpoint_activations:
            rows.append(("  with activations checkpointed", f"{found.memory_total_checkpointed / GIB:.2f} GiB"))
        if found.largest_device_batch is not None:
            most = f"{found.largest_device_batch:,} ({found.largest_device_batch_checkpointed:,} with activations checkpointed)"
            rows.append(("  largest device batch", most))
        if self.gpus > 1:
            rows.append(("sent by each device per step", ""))
            rows += [(f"  {kind}", f"{size / GIB:.2f} GiB") for kind, size in found.traffic.items()]
        total = sum(found.flops_per_step.values())
        rows.append(("operations per step", f"{total:.3g}"))
        rows += [(f"  {part}", f"{count:.3g}{self._head(part, found)}") for part, count in found.flops_per_step.items()]
        rows.append(("tokens per step", f"{found.tokens_per_step:,}"))
        rows.append((f"time per step at {self.utilisation:.0%} utilisation", f"{found.seconds_per_step:.3g} s"))
        if found.tokens is not None and found.days is not None:
            rows += [("tokens in total", f"{found.tokens:,}"), ("days", f"{found.days:.2f}")]
        return rows

    def _fit(self, found: "Plan", gib: float) -> str:
        if found.fits is None:
            return " plus the activations, which are known only for the Transformer"
        return "" if found.fits else f", more than the {gib:g} GiB available"

    def _head(self, part: str, found: "Plan") -> str:
        return f", evaluated at {found.head_share:.0%} of the positions" if part == "head" and found.head_share < 0.99 else ""
