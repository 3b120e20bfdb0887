"""`unnoise train`."""

import json
import os
import shlex
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.base import Device, Json, device_named
from unnoise.cli.workers import run_in_processes
from unnoise.training.options import RunOptions

if TYPE_CHECKING:
    from unnoise.training.loop import Report, TrainingRun

ENOUGH = "this run has its {} steps already: give more --steps (or --minutes) to train on"


@dataclass(frozen=True, kw_only=True)
class TrainCommand(RunOptions):
    """Train a model.

    Example: unnoise train mdlm --data sotu --out runs/first --minutes 3
    """

    method: Annotated[Positional[str], arg(metavar="METHOD", help="A name from `unnoise ls`.")]
    out: Annotated[Path | None, arg(help="Folder to write; default: runs/METHOD-DATA.")] = None
    resume: Annotated[bool, arg(help="Go on from the run in --out, with its options; more steps may be given.")] = False
    workers: Annotated[int, arg(help="Processes that share each batch, one thread each; or start it with torchrun.")] = 1
    device: Device = "auto"
    as_json: Json = False

    @property
    def folder(self) -> Path:
        """Where the run is written."""
        if self.out is not None:
            return self.out
        from unnoise.data.mixture import mixture_parts

        parts = [name for name, _ in mixture_parts(self.data)] or [self.data]
        return Path("runs") / "-".join([self.method, *(Path(part).name.split(".")[0] for part in parts)])

    def options(self) -> RunOptions:
        """The run that this command describes."""
        return RunOptions(**{field.name: vars(self)[field.name] for field in fields(RunOptions)})

    def saved_options(self) -> dict[str, Any]:
        """With --resume, the options of the run that goes on: what was not typed is as it was."""
        from unnoise.training.checkpoint import read_options

        saved = read_options(self.folder) if self.resume else {}
        return {field.name: saved[field.name] for field in fields(RunOptions) if field.name in saved}

    def run(self) -> int:
        """Train, and say what came of it; returns the exit code."""
        if self.workers < 1:
            raise ValueError(f"--workers must be ≥ 1, found {self.workers}")
        if self.workers > 1 and "RANK" not in os.environ:  # which each of several processes has
            return run_in_processes(self.workers, self.run)
        import torch

        from unnoise import distributed

        device = device_named(self.device)
        with distributed.process_group(torch.device(device)):
            return self._train(device, speaks=distributed.rank() == 0)

    def _train(self, device: str, speaks: bool) -> int:
        from unnoise.training.prepare import prepare_run

        run = prepare_run(self.options(), self.folder, self.resume, device)
        if run.done and speaks and not self.as_json:
            print(f"going on from step {run.done}" if run.progress < 1 else ENOUGH.format(run.done), file=sys.stderr)
        report = train_with_bar(run, show=speaks and not self.as_json)
        if not speaks:
            return 0 if report.finished else 130
        if self.as_json:
            print(json.dumps({"out": str(run.out)} | {k: v for k, v in asdict(report).items() if k != "curve"}))
        else:
            _print_result(run, report)
        return 0 if report.finished else 130


def train_with_bar(run: "TrainingRun", show: bool = True) -> "Report":
    """Run it, with a progress bar if that is to be shown, and draw its curve; Ctrl-C saves."""
    from unnoise.cli.interrupt import StopRequest
    from unnoise.display.plot import can_draw, plot_curve
    from unnoise.display.terminal import ProgressBar
    from unnoise.training.loop import NotANumber

    with StopRequest() as stop, ProgressBar(run.model.codec.unit) if show else nullcontext() as bar:
        try:
            report = run.run([bar] if bar else [], stop)
        except NotANumber as error:
            raise ValueError(f"{error}; {_last_checkpoint(run)} Try a smaller --matrix-lr and --other-lr.") from error
    assert run.out is not None
    if can_draw():
        plot_curve(run.out, run.out / "curve.png")
    return report


def _last_checkpoint(run: "TrainingRun") -> str:
    from unnoise.training.checkpoint import has_state

    if run.out is not None and has_state(run.out):
        return f"the last good checkpoint is in {run.out}."
    return "no checkpoint had been written yet."


def _print_result(run: "TrainingRun", report: "Report") -> None:
    from unnoise.data.source import Source
    from unnoise.evaluation.dataset import LOSSY, figure_kind

    if not report.finished:
        print(f"stopped at step {report.steps}; everything is saved: run the same command with --resume to go on")
        return
    print(
        f"{run.model.method.name}: {report.bits_before:.3f} → {report.bits:.3f} ± {report.stderr:.3f} "
        f"bits per {run.model.codec.unit} ({figure_kind(run.model)}, held-out; trained on the {report.loss} loss), "
        f"{report.steps} steps, {report.tokens:,} tokens, {report.seconds:.0f} s of training"
    )
    if isinstance(run.source, Source) and not run.source.lossless(run.model.codec, run.source.splits[-1]):
        print(LOSSY)
    print(f"saved in {run.out}; try: unnoise generate --model {shlex.quote(str(run.out))} --watch")
