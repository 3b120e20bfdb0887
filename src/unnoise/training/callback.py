"""Training callbacks, their reports, and the JSON log."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unnoise.registry import register_builtin

if TYPE_CHECKING:
    from unnoise.training.loop import TrainingRun

LOG = "log.jsonl"


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
        """Before each checkpoint, and at the end of a run that writes no files; may add to `run.model.extra_files`."""

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


register_builtin("callback", {"word-counts": "unnoise.spelling.words:WordCounts"})
