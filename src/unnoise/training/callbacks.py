"""Training callbacks: the JSON log, experiment trackers (TensorBoard, Weights & Biases, trackio) and the profiler."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unnoise.files import write_atomically

if TYPE_CHECKING:
    from torch.profiler import profile

    from unnoise.training.trainer import TrainingRun

LOG = "log.jsonl"
TRACKERS = ("tensorboard", "wandb", "trackio")
MISSING = "--track {0} needs the package {0}: pip install {0}"
TRACE, TABLE = "profile.json", "profile.txt"
FIRST = 5  # unprofiled steps at the start, in which caches fill


@dataclass(frozen=True)
class StepReport:
    """Metrics of a training step.

    step: step number, from 1.
    progress: fraction of the run that is done.
    loss_bits, smooth_bits: loss in bits per character, and its running mean.
    rate: factor on the learning rates.
    grad_norm: norm of the gradient before clipping.
    tokens_per_second: throughput over all processes.
    utilisation: floating-point operations per second, relative to a plain matrix product on this device.
    seconds: training time so far.
    skipped: whether the update was skipped because the loss or gradient was not finite.
    """

    step: int
    progress: float
    loss_bits: float
    smooth_bits: float
    rate: float
    grad_norm: float
    tokens_per_second: float
    utilisation: float
    seconds: float
    skipped: bool = False

    def numbers(self) -> dict[str, float]:
        """Return the values to log. A skipped step has no loss."""
        found: dict[str, float] = {
            "step": self.step,
            "loss_bits": self.loss_bits,
            "rate": self.rate,
            "grad_norm": self.grad_norm,
            "tokens_per_second": round(self.tokens_per_second, 1),
            "utilisation": round(self.utilisation, 4),
            "seconds": round(self.seconds, 3),
        }
        if self.skipped:
            found = {name: value for name, value in found.items() if name not in ("loss_bits", "grad_norm")} | {"skipped": 1}
        return found


@dataclass(frozen=True)
class Evaluation:
    """Held-out bits per character after a step, with the standard error."""

    step: int
    bits: float
    stderr: float

    def numbers(self) -> dict[str, float]:
        """Return the values to log."""
        return {"step": self.step, "valid_bits_per_char": self.bits, "stderr": self.stderr}


class Callback:
    """Base class of callbacks; its methods do nothing."""

    def on_step(self, report: StepReport) -> None:
        """Handle the end of a step."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Handle the end of an evaluation."""

    def before_save(self, run: "TrainingRun") -> None:
        """Handle the start of each checkpoint, and the end of a run without files; may add to `run.model.extra_files`."""

    def on_save(self, folder: Path) -> None:
        """Handle a checkpoint written to a folder."""

    def on_end(self) -> None:
        """Handle the end of the run, finished or not."""


class JsonLog(Callback):
    """Callback that writes log.jsonl, one line for each step and evaluation."""

    def __init__(self, folder: Path):
        self.path = folder / LOG

    def on_step(self, report: StepReport) -> None:
        self._write(report.numbers())

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._write(evaluation.numbers())

    def _write(self, values: dict[str, float]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


class _Writer(Protocol):
    def log(self, values: dict[str, float], step: int) -> None: ...
    def finish(self) -> None: ...


class Tracker(Callback):
    """Callback that logs steps and evaluations to a tracker, along with the options of the run."""

    def __init__(self, name: str, out: Path, options: Mapping[str, Any]):
        if name not in TRACKERS:
            raise ValueError(f"no tracker {name!r}: use one of {', '.join(TRACKERS)}")
        self.writer: _Writer = _TensorBoard(out) if name == "tensorboard" else _project(name, out, options)

    def on_step(self, report: StepReport) -> None:
        self._log(report.numbers())

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._log(evaluation.numbers())

    def on_end(self) -> None:
        self.writer.finish()

    def _log(self, numbers: dict[str, float]) -> None:
        self.writer.log({name: value for name, value in numbers.items() if name != "step"}, step=int(numbers["step"]))


class _TensorBoard:
    """Writer of event files in out/tensorboard."""

    def __init__(self, out: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(MISSING.format("tensorboard")) from error
        self.writer = SummaryWriter(str(out / "tensorboard"))

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self.writer.close()


def _project(name: str, out: Path, options: Mapping[str, Any]) -> _Writer:
    """Start a run of the project `unnoise`, named after its folder, in wandb or trackio, which have the same functions."""
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise ValueError(MISSING.format(name)) from error
    package.init(project="unnoise", name=out.name, config=dict(options))
    return package  # pyright: ignore[reportReturnType]


class Profiler(Callback):
    """Callback that profiles some steps and writes a trace (for chrome://tracing or Perfetto) and a table of operations."""

    def __init__(self, out: Path, steps: int):
        self.out = out
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        self.profile = profile(
            activities=activities,
            schedule=schedule(wait=FIRST - 1, warmup=1, active=steps, repeat=1),
            on_trace_ready=self._write,
        )
        self.profile.start()

    def on_step(self, report: StepReport) -> None:
        self.profile.step()

    def on_end(self) -> None:
        self.profile.stop()

    def _write(self, found: "profile") -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        found.export_chrome_trace(str(self.out / TRACE))
        table = found.key_averages().table(sort_by="self_cpu_time_total", row_limit=40)
        write_atomically(self.out / TABLE, table.encode())
