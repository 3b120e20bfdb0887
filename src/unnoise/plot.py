"""Pictures, with matplotlib if it is there (the extra `plot`)."""

import importlib.util
import json
from pathlib import Path

from unnoise.trainer import LOG


def plot_curve(folder: Path) -> Path | None:
    """The training curve of a run as curve.png; None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None or not (folder / LOG).exists():
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    losses = [(line["step"], line["loss_bits"]) for line in lines if "loss_bits" in line]
    points = [(line["step"], line["valid_bits_per_char"], line["stderr"]) for line in lines if "stderr" in line]
    figure, axes = plt.subplots(figsize=(7, 4), dpi=130)
    if losses:
        axes.plot(*zip(*losses, strict=True), color="0.75", linewidth=0.7, label="training loss, a draw each")
    if points:
        steps, bits, errors = zip(*points, strict=True)
        axes.errorbar(steps, bits, yerr=errors, color="black", marker="o", markersize=3, capsize=2, label="held-out text")
        axes.annotate(f"{bits[-1]:.3f}", (steps[-1], bits[-1]), textcoords="offset points", xytext=(-4, 8), ha="right")
    axes.set(xlabel="step", ylabel="bits per character", title=folder.name)
    axes.set_ylim(0, max([b for _, b, _ in points] + [1]) * 1.1)
    axes.legend(frameon=False)
    figure.tight_layout()
    path = folder / "curve.png"
    figure.savefig(path)
    plt.close(figure)
    return path
