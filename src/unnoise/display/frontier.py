"""The picture of a judge's perplexity against the entropy of the texts."""

from collections.abc import Sequence
from pathlib import Path

from unnoise.display.plot import by_sampler
from unnoise.display.style import legend, look, picture, series
from unnoise.evaluation.generative import REAL, TextMeasures


def plot_frontier(points: Sequence[TextMeasures], path: Path, title: str, *, dark: bool = False) -> None:
    """Draw the judge's perplexity against the entropy of the texts, a line for each sampler over temperatures.

    Lower and further to the right is better.
    """
    lines = by_sampler(points)
    pale = look(dark).dim
    with picture(path, width=7.5, height=4.8, dark=dark) as axes:
        for i, (name, line) in enumerate((name, line) for name, line in lines.items() if name != REAL):
            ordered = sorted(line, key=lambda point: point.temperature)
            axes.errorbar(
                [p.entropy for p in ordered],
                [p.perplexity for p in ordered],
                xerr=[p.entropy_stderr for p in ordered],
                yerr=[p.perplexity_stderr for p in ordered],
                label=name,
                elinewidth=0.7,
                ecolor=pale,
                **series(i),
            )
            for p in ordered:
                place = (p.entropy, p.perplexity)
                axes.annotate(f"{p.temperature:g}", place, fontsize=8, xytext=(5, -10), textcoords="offset points")
        for real in lines.get(REAL, []):
            axes.axhline(real.perplexity, color=pale, alpha=0.5, linewidth=0.8, zorder=0)
            axes.axvline(real.entropy, color=pale, alpha=0.5, linewidth=0.8, zorder=0)
            errors = {"xerr": real.entropy_stderr, "yerr": real.perplexity_stderr, "elinewidth": 0.7, "ecolor": pale}
            axes.errorbar(
                [real.entropy],
                [real.perplexity],
                fmt="*",
                markersize=13,
                color=look(dark).paper,
                mec=look(dark).ink,
                label=REAL,
                **errors,
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(_few_labels)
        axes.set(xlabel="entropy of a text's tokens, nats (→ more varied)", ylabel="the judge's perplexity a token (↓ better)")
        axes.set_title(title)
        legend(axes)


def _few_labels(value: float, _: float) -> str:
    """Return the label of a minor tick: only 2 and 5 of each power of ten."""
    first = f"{value:e}"[0]
    return f"{value:g}" if first in "25" else ""
