"""The picture of quality against variety."""

from collections.abc import Sequence
from pathlib import Path

from unnoise.display.plot import pictures, style
from unnoise.evaluation.frontier import REAL, Point


def plot_frontier(points: Sequence[Point], path: Path, title: str) -> None:
    """The judge's perplexity against the entropy of the texts, a line for each sampler over temperatures; lower and further to
    the right is better."""
    by_sampler: dict[str, list[Point]] = {}
    for point in points:
        by_sampler.setdefault(point.sampler, []).append(point)
    with pictures(path, width=7.5, height=4.8) as (axes,):
        for i, (name, line) in enumerate((name, line) for name, line in by_sampler.items() if name != REAL):
            ordered = sorted(line, key=lambda point: point.temperature)
            axes.errorbar(
                [p.entropy for p in ordered],
                [p.perplexity for p in ordered],
                xerr=[p.entropy_stderr for p in ordered],
                yerr=[p.perplexity_stderr for p in ordered],
                label=name,
                elinewidth=0.7,
                ecolor="0.6",
                **style(i),
            )
            for p in ordered:
                place = (p.entropy, p.perplexity)
                axes.annotate(f"{p.temperature:g}", place, fontsize=8, xytext=(5, -10), textcoords="offset points")
        for real in by_sampler.get(REAL, []):
            axes.axhline(real.perplexity, color="0.85", linewidth=0.8, zorder=0)
            axes.axvline(real.entropy, color="0.85", linewidth=0.8, zorder=0)
            errors = {"xerr": real.entropy_stderr, "yerr": real.perplexity_stderr, "elinewidth": 0.7, "ecolor": "0.6"}
            axes.errorbar(
                [real.entropy], [real.perplexity], fmt="*", markersize=13, color="white", mec="black", label=REAL, **errors
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(_few_labels)
        axes.set(xlabel="entropy of a text's tokens, nats (→ more varied)", ylabel="the judge's perplexity a token (↓ better)")
        axes.set_title(title, fontsize=10)
        axes.legend(frameon=False, fontsize=9)


def _few_labels(value: float, _: float) -> str:
    """Names 2 and 5 of each power of ten, between the ticks of the powers."""
    first = f"{value:e}"[0]
    return f"{value:g}" if first in "25" else ""
