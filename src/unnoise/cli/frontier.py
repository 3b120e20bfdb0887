"""`unnoise plot frontier`: measure, show, draw."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unnoise.evaluation.frontier import Point
    from unnoise.model.model import Model


def plot_frontier_of(
    model: "Model",
    out: Path,
    judge_name: str | None,
    data: str | None,
    samplers: Sequence[str],
    temperatures: Sequence[float],
    steps: int,
    samples: int,
    seed: int,
    float32_gumbel: bool,
    quiet: bool,
    *,
    dark: bool = False,
) -> list[dict[str, Any]]:
    """The points, with a line for each as it comes; the picture is drawn at the end."""
    from unnoise.data.corpus import corpus
    from unnoise.display.frontier import plot_frontier
    from unnoise.evaluation.frontier import REAL, TEMPERATURES, best, frontier, measured
    from unnoise.evaluation.generative import JUDGE, OwnJudge
    from unnoise.evaluation.mauve import FEWEST, can_mauve, features
    from unnoise.model.io import load

    if model.codec.grid:
        raise ValueError("a judge reads texts, and this is a model of images")
    for temperature in temperatures:
        if not 0 < temperature <= 10:
            raise ValueError(f"temperatures lie above 0 and at most at 10, found {temperature}")
    by = OwnJudge(load(judge_name or JUDGE))
    points: list[Point] = []
    real: list[str] = []
    if data is not None:
        rows = model.texts(corpus(data), "test").windows(samples).tolist()
        real = [model.codec.decode([token for token in row if token >= 0]) for row in rows]
        points.append(measured(real, model, by, REAL, 1.0))
    compare = can_mauve() and len(real) >= FEWEST
    if not quiet:
        if float32_gumbel:
            print(
                "drawn with float32 Gumbel noise, which loses rare tokens: only to reproduce that artefact of some papers' code"
            )
        if data is not None and not compare:
            missing = f"at least {FEWEST} texts of each kind" if can_mauve() else "mauve-text, pip install 'unnoise[mauve]'"
            print(f"MAUVE is left out: it needs {missing}")
        print(_header())
        for point in points:
            print(_line(point), flush=True)
    compared = features(by.model, real) if compare else None
    for point in frontier(model, by, samplers, temperatures or TEMPERATURES, steps, samples, seed, compared, float32_gumbel):
        points.append(point)
        if not quiet:
            print(_line(point), flush=True)
    plot_frontier(points, out, f"{samples} texts a point, judged by {judge_name or JUDGE}; numbers are temperatures", dark=dark)
    ahead = best([point for point in points if point.sampler != REAL])
    return [point._asdict() | {"on_frontier": point in ahead} for point in points]


def _header() -> str:
    names = ("sampler", "temperature", "perplexity", "entropy", "distinct-1", "-2", "-3", "mauve")
    return "{:26s} {:>11s} {:>16s} {:>13s} {:>10s} {:>6s} {:>6s} {:>6s}".format(*names)


def _line(point: "Point") -> str:
    compared = "–" if point.mauve is None else f"{point.mauve:.3f}"
    return (
        f"{point.sampler:26s} {point.temperature:11.2f} {point.perplexity:8.2f} ± {point.perplexity_stderr:5.2f} "
        f"{point.entropy:5.3f} ± {point.entropy_stderr:.3f} "
        f"{point.distinct_1:10.3f} {point.distinct_2:6.3f} {point.distinct_3:6.3f} {compared:>6s}"
    )
