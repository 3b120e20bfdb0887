"""Pictures of training curves and of the loss at each noise level."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from unnoise.apps.plots.style import can_draw, legend, look, picture, pictures, series
from unnoise.data.corpus import corpus
from unnoise.denoiser import predict_clean
from unnoise.model.model import Model
from unnoise.process.process_base import Process, gather
from unnoise.training.callbacks import LOG, Callback

if TYPE_CHECKING:
    from unnoise.training.trainer import TrainingRun


def read_log(folder: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float, float]]]:
    """Return the log of a run: (step, loss in bits), and (step, bits on held-out text, standard error)."""
    if not (folder / LOG).exists():
        raise ValueError(f"{folder} has no training log ({LOG})")
    lines = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    losses = [(line["step"], line["loss_bits"]) for line in lines if "loss_bits" in line]
    return losses, [(line["step"], line["valid_bits_per_char"], line["stderr"]) for line in lines if "stderr" in line]


def plot_curve(folder: Path, path: Path, *, dark: bool = False) -> None:
    """Draw the bound of a run on held-out text, and below it the training loss."""
    losses, points = read_log(folder)
    with pictures(path, height=5.0, rows=2, dark=dark) as (above, below):
        if points:
            steps, bits, errors = zip(*points, strict=True)
            above.errorbar(steps, bits, yerr=errors, color="C0", marker="o", markersize=3, capsize=2)
            above.annotate(f"{bits[-1]:.3f}", (steps[-1], bits[-1]), textcoords="offset points", xytext=(-4, 8), ha="right")
            above.set_ylim(0, max([*bits, 1]) * 1.1)
        above.set(ylabel="bits, held-out text", title=folder.name)
        if losses:
            steps, values = zip(*losses, strict=True)
            below.plot(steps, values, color=look(dark).dim, alpha=0.5, linewidth=0.7)
            below.plot(steps, smoothed(values), color="C0")
            below.set_ylim(0, sorted(values)[int(0.99 * (len(values) - 1))] * 1.2)  # leave a few outliers outside
        below.set(xlabel="step", ylabel="training loss, bits")


class CurvePicture(Callback):
    """Callback that writes curve.png next to the log of a run."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def before_save(self, run: "TrainingRun") -> None:
        self.folder = run.out

    def on_end(self) -> None:
        if self.folder is not None and can_draw():
            plot_curve(self.folder, self.folder / "curve.png")


def smoothed(values: Sequence[float], memory: float = 0.95) -> list[float]:
    """Return the exponential moving average of a noisy curve."""
    found: list[float] = []
    for value in values:
        found.append(value if not found else memory * found[-1] + (1 - memory) * value)
    return found


def plot_comparison(folders: Mapping[str, Path], path: Path, *, dark: bool = False) -> None:
    """Draw held-out bits of several runs against steps, a line for each name."""
    points = {name: read_log(folder)[1] for name, folder in folders.items()}
    for name, found in points.items():
        if not found:
            raise ValueError(f"the log of {name} has no measurement on held-out text")
    with picture(path, dark=dark) as axes:
        for i, (name, found) in enumerate(points.items()):
            steps, bits, errors = zip(*found, strict=True)
            axes.errorbar(steps, bits, yerr=errors, label=name, capsize=2, **series(i))
        axes.set(xlabel="step", ylabel="bits, held-out text")
        legend(axes)


def plot_loss(models: Mapping[str, Model], path: Path, data: str, *, dark: bool = False) -> None:
    """Draw −log p(x_0 | x_t) of a noised token in bits at each noise level, a line for each model."""
    levels = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    found = {name: losses_by_level(model, data, levels) for name, model in models.items()}
    with picture(path, dark=dark) as axes:
        for i, (name, (means, errors)) in enumerate(found.items()):
            axes.errorbar(levels, means, yerr=errors, label=name, capsize=2, **series(i))
        axes.set(xlabel="t (0 is text, 1 is noise)", ylabel="bits of a noised token")
        axes.set_ylim(bottom=0)
        legend(axes)


@torch.no_grad()
def losses_by_level(model: Model, data: str, levels: torch.Tensor) -> tuple[list[float], list[float]]:
    """Return the mean of −log p(x_0 | x_t) over noised tokens in bits at each level, and its standard error."""
    process = model.process
    if not isinstance(process, Process):
        raise ValueError(f"{model.method.name} has no noised tokens whose loss could be drawn by level")
    x = corpus(data).texts(model.codec, "test", model.length).windows(16).to(model.device)
    generator = torch.Generator(model.device).manual_seed(0)
    means, errors = [], []
    for level in levels:
        t = level.expand(len(x)).to(model.device)
        x_t = process.corrupt(x, t, generator)
        where = process.active(x_t)
        log_p = predict_clean(model.denoiser, process, x_t, t, where)
        bits = -gather(log_p, x[where]) / math.log(2)
        means.append(float(bits.mean()))
        errors.append(float(bits.std() / len(bits) ** 0.5))
    return means, errors
