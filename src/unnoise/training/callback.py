"""Callbacks: what is called while a model trains, to show progress or to keep a log."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

LOG = "log.jsonl"


@dataclass(frozen=True)
class StepReport:
    """After a step: its number, how much of the run is done (0 to 1), the loss in bits per character and its running mean,
    the factor on the learning rates, tokens read a second, and seconds of training so far."""

    step: int
    progress: float
    loss_bits: float
    smooth_bits: float
    rate: float
    tokens_per_second: float
    seconds: float


@dataclass(frozen=True)
class Evaluation:
    """After an evaluation: the step, and bits per character on held-out text with the standard error."""

    step: int
    bits: float
    stderr: float


class Callback:
    """Does nothing; override what you need."""

    def on_step(self, report: StepReport) -> None:
        """After each step."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After each evaluation."""

    def on_save(self, folder: Path) -> None:
        """After each checkpoint."""


class JsonLog(Callback):
    """Writes log.jsonl: a line for each step and each evaluation."""

    def __init__(self, folder: Path):
        self.path = folder / LOG

    def on_step(self, report: StepReport) -> None:
        self._write(step=report.step, loss_bits=report.loss_bits, rate=report.rate, seconds=round(report.seconds, 3))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        values = asdict(evaluation)
        self._write(step=values["step"], valid_bits_per_char=values["bits"], stderr=values["stderr"])

    def _write(self, **values: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
