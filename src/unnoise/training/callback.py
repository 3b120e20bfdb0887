"""Callbacks: what is called while a model trains, to show progress or to keep a log."""

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
    """After a step.

    step: its number. progress: how much of the run is done, 0 to 1. loss_bits, smooth_bits: the loss in bits per character and
    its running mean. rate: the factor on the learning rates. grad_norm: the norm of the gradient before it was clipped.
    tokens_per_second: over all processes. utilisation: floating-point operations a second, of those that a plain matrix product
    reaches here. seconds: of training so far. skipped: whether the update was left out, since a number was not finite.
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
        """What is logged of it; a step that was skipped has no loss."""
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
    """After an evaluation: the step, and bits per character on held-out text with the standard error."""

    step: int
    bits: float
    stderr: float

    def numbers(self) -> dict[str, float]:
        """What is logged of it."""
        return {"step": self.step, "valid_bits_per_char": self.bits, "stderr": self.stderr}


class Callback:
    """Does nothing; override what you need."""

    def on_step(self, report: StepReport) -> None:
        """After each step."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After each evaluation."""

    def before_save(self, run: "TrainingRun") -> None:
        """Before each checkpoint, and at the end of a run that writes no files; may add to `run.model.extra_files`."""

    def on_save(self, folder: Path) -> None:
        """After each checkpoint."""

    def on_end(self) -> None:
        """When the run has ended, or was stopped."""


class JsonLog(Callback):
    """Writes log.jsonl: a line for each step and each evaluation."""

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
