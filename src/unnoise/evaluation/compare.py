"""Several methods trained alike and measured on the same texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.data.corpus import corpus
from unnoise.evaluation.dataset import evaluate_split
from unnoise.files import check_folder
from unnoise.method_table import method as method_named
from unnoise.model.model import Model
from unnoise.training.checkpoint import has_state, read_options
from unnoise.training.loop import TrainingRun
from unnoise.training.options import RunOptions, check_unchanged
from unnoise.training.prepare import prepare_run
from unnoise.training.report import Report


@dataclass(frozen=True)
class Comparison:
    """One method of a comparison: its model, what came of its training, and its figures on the test texts."""

    model: Model
    report: Report
    figures: dict[str, Any]


class Interrupted(Exception):
    """A run was stopped before its end."""

    def __init__(self, method: str, steps: int):
        super().__init__(f"stopped at step {steps} of {method}")


def compare(
    runs: Sequence[RunOptions],
    out: Path,
    windows: int | None,
    samples: int,
    device: str,
    train: Callable[[TrainingRun], Report] = TrainingRun.run,
) -> list[Comparison]:
    """Train each into a folder of its own below `out`, going on with what is there, and measure all on the same windows.

    train: runs one of them, with whatever shows its progress.
    """
    names = [run.method for run in runs]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError("name at least two methods, each once, such as: unnoise compare mdlm ar")
    for name in names:
        method_named(name)
    source = corpus(runs[0].data)
    check_folder(out)
    for options in runs:  # before any is trained, so that like is compared with like
        if has_state(out / options.method):
            check_same(options, out / options.method)
    rows = []
    for options in runs:
        run = prepare_run(options, out / options.method, resume=True, device=device)
        report = train(run)
        if not report.finished:
            raise Interrupted(options.method, report.steps)
        rows.append(
            Comparison(
                run.model,
                report,
                evaluate_split(run.model, source, source.splits[-1], windows, samples, options.seed),
            )
        )
    return rows


def check_same(options: RunOptions, folder: Path) -> None:
    """ValueError unless the run in the folder has these options, its length included."""
    saved = read_options(folder)
    check_unchanged(options, saved, str(folder))
    for name in ("steps", "minutes"):
        if saved.get(name) != vars(options)[name]:
            raise ValueError(
                f"the run in {folder} has {name} {saved.get(name)}, not {vars(options)[name]}: "
                "go on with the same options, or take another folder"
            )
