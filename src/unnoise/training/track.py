"""Experiment trackers as callbacks: TensorBoard, Weights & Biases, trackio."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from unnoise.training.callback import Callback, Evaluation, StepReport

TRACKERS = ("tensorboard", "wandb", "trackio")
MISSING = "--track {0} needs the package {0}: pip install {0}"


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
