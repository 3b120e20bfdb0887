"""Pictures of a run or a model: training curves, a schedule, the loss by noise level, quality of samples."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from unnoise.data.corpus import corpus
from unnoise.denoiser import predict_clean
from unnoise.display.style import LINES, legend, look, picture, pictures, series
from unnoise.evaluation.generative import Quality
from unnoise.model.model import Model
from unnoise.process.base import Process, gather
from unnoise.schedule import PerToken
from unnoise.training.callback import LOG

NAMED = 5  # tokens named at each end of a learned schedule


def read_log(folder: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float, float]]]:
    """A run's log: (step, loss in bits) and (step, bits on held-out text, standard error)."""
    if not (folder / LOG).exists():
        raise ValueError(f"{folder} has no training log ({LOG})")
    lines = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    losses = [(line["step"], line["loss_bits"]) for line in lines if "loss_bits" in line]
    return losses, [(line["step"], line["valid_bits_per_char"], line["stderr"]) for line in lines if "stderr" in line]


def plot_curve(folder: Path, path: Path, *, dark: bool = False) -> None:
    """The training curve of a run: the bound on held-out text, and below it the loss that is trained, which may be no bound."""
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
            below.set_ylim(0, sorted(values)[int(0.99 * (len(values) - 1))] * 1.2)  # a few wild draws may stick out
        below.set(xlabel="step", ylabel="training loss, bits")


def smoothed(values: Sequence[float], memory: float = 0.95) -> list[float]:
    """The running mean of a noisy curve."""
    found: list[float] = []
    for value in values:
        found.append(value if not found else memory * found[-1] + (1 - memory) * value)
    return found


def plot_comparison(folders: dict[str, Path], path: Path, *, dark: bool = False) -> None:
    """Held-out bits of several runs against steps, a line for each name."""
    with picture(path, dark=dark) as axes:
        for i, (name, folder) in enumerate(folders.items()):
            steps, bits, errors = zip(*read_log(folder)[1], strict=True)
            axes.errorbar(steps, bits, yerr=errors, label=name, capsize=2, **series(i))
        axes.set(xlabel="step", ylabel="bits, held-out text")
        legend(axes)


def exponents(model: Model) -> list[tuple[str, float]]:
    """The learned exponents w_i with their tokens, from the first to be revealed (large) to the last; none elsewhere."""
    learned = [module for module in model.process.modules() if isinstance(module, PerToken)]
    if not learned:
        return []
    values = learned[0].exponents().detach().tolist()
    return sorted(((shown_token(model.codec.show(i)), value) for i, value in enumerate(values)), key=lambda pair: -pair[1])


def shown_token(token: str) -> str:
    """A token that is blank by itself, so that it can be seen."""
    return token if token.strip() else token.replace(" ", "␣").replace("\n", "↵")


def plot_schedule(model: Model, path: Path, *, dark: bool = False) -> None:
    """α(t): one line, or one for each token where they are learned, the first and the last to be revealed named."""
    curves = model.process.curves()
    if not curves:
        raise ValueError(f"{model.method.name} has no noise schedule to draw")
    t = torch.linspace(1e-4, 1, 200, dtype=torch.float64)
    ranked = [token for token, _ in exponents(model)]
    with picture(path, dark=dark) as axes, torch.no_grad():
        for (name, alpha), line in zip(curves.items(), LINES, strict=False):
            values = alpha(t)
            if values.dim() == 1:
                axes.plot(t, values, linestyle=line, label=name)
                continue
            order = values[len(t) // 2].argsort(descending=True).tolist()
            axes.plot(t, values[:, order[NAMED:-NAMED]], color=look(dark).dim, alpha=0.4, linewidth=0.7)
            for i, (which, chosen) in enumerate((("first", order[:NAMED]), ("last", order[-NAMED:]))):
                names = ranked[:NAMED] if which == "first" else ranked[-NAMED:]
                lines = axes.plot(t, values[:, chosen], **series(i, markers=False), linewidth=1)
                lines[0].set_label(f"revealed {which}: {'  '.join(names)}")
        axes.set(xlabel="t (0 is text, 1 is noise)", ylabel="α(t), the share still there", title=model.method.name)
        legend(axes)


def plot_loss(model: Model, path: Path, data: str, *, dark: bool = False) -> None:
    """How surprised the network is by one token, at each noise level: bits of −log p(x_0 | x_t) where it is asked."""
    process = model.process
    if not isinstance(process, Process):
        raise ValueError(f"{model.method.name} has no noised tokens whose loss could be drawn by level")
    x = corpus(data).texts(model.codec, "test", model.length).windows(16).to(model.device)
    levels = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    generator = torch.Generator(model.device).manual_seed(0)
    means, errors = [], []
    for level in levels:
        t = level.expand(len(x)).to(model.device)
        with torch.no_grad():
            x_t = process.corrupt(x, t, generator)
            where = process.active(x_t)
            log_p = predict_clean(model.denoiser, process, x_t, t, where)
        bits = -gather(log_p, x[where]) / math.log(2)
        means.append(float(bits.mean()))
        errors.append(float(bits.std() / len(bits) ** 0.5))
    with picture(path, dark=dark) as axes:
        axes.errorbar(levels, means, yerr=errors, color="C0", marker="o", markersize=3, capsize=2)
        axes.set(xlabel="t (0 is text, 1 is noise)", ylabel="bits of a noised token", title=model.method.name)
        axes.set_ylim(bottom=0)


def plot_quality(found: Sequence[Quality], path: Path, title: str, *, dark: bool = False) -> None:
    """The judge's perplexity against network calls, a line for each sampler, and below it the entropy of the texts."""
    by_sampler: dict[str, list[Quality]] = {}
    for quality in found:
        by_sampler.setdefault(quality.sampler, []).append(quality)
    with pictures(path, height=5.5, rows=2, dark=dark) as (above, below):
        for real in by_sampler.pop("real text", []):
            for axes, value in ((above, real.perplexity), (below, real.entropy)):
                axes.axhline(value, color=look(dark).dim, alpha=0.5, linewidth=3, label="real text")
        for i, (name, points) in enumerate(by_sampler.items()):
            calls = [point.calls for point in points]
            above.plot(calls, [point.perplexity for point in points], label=name, **series(i))
            below.plot(calls, [point.entropy for point in points], **series(i))
        calls = sorted({point.calls for points in by_sampler.values() for point in points})
        above.set_xscale("log", base=2)
        above.set_xticks(calls, [str(number) for number in calls])
        above.set(ylabel="the judge's perplexity\na character", title=title)
        below.set(xlabel="network calls", ylabel="entropy of the\ncharacters, bits")
        legend(above)
