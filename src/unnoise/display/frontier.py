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
    with pictures(path, height=4.5) as (axes,):
        for real in by_sampler.pop(REAL, []):
            axes.plot([real.entropy], [real.perplexity], "x", color="0.4", markersize=9, label=REAL)
        for i, (name, line) in enumerate(by_sampler.items()):
            ordered = sorted(line, key=lambda point: point.temperature)
            axes.plot([p.entropy for p in ordered], [p.perplexity for p in ordered], label=name, **style(i))
            for p in ordered:
                axes.annotate(
                    f"{p.temperature:g}", (p.entropy, p.perplexity), fontsize=7, xytext=(3, 3), textcoords="offset points"
                )
        axes.set_yscale("log")
        axes.set(xlabel="entropy of a text's tokens, nats", ylabel="the judge's perplexity a token", title=title)
        axes.legend(frameon=False)
