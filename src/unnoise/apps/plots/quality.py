"""`unnoise plot quality` and `unnoise plot frontier`: measure samples, print and save the results, and draw them."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unnoise.apps.plots.style import legend, look, picture, pictures, series
from unnoise.data.corpus import corpus
from unnoise.evaluation.frontier import (
    CALLS,
    TEMPERATURES,
    FrontierOptions,
    SavedPoints,
    best,
    fingerprint,
    frontier,
    qualities,
)
from unnoise.evaluation.generative import FEWEST, JUDGE, REAL, LikelihoodJudge, TextMeasures, can_mauve, features, measure_texts
from unnoise.model.io import load
from unnoise.model.model import Model

if TYPE_CHECKING:
    from unnoise.apps.plots.command import PlotCommand

WINDOWS = 200  # windows of real text, for `plot quality`


def plot_measures(command: "PlotCommand", models: dict[str, Model], out: Path) -> list[dict[str, Any]]:
    """Measure samples of each model, draw the results, and return them for JSON."""
    for model in models.values():
        if model.codec.grid:
            raise ValueError("a judge scores texts, but this is a model of images")
        for sampler in command.samplers:
            model.check_sampler(sampler)
    quality = command.kind == "quality"
    if not quality:
        check_same_codec(models, "the entropy of a frontier is counted in tokens")
    options = FrontierOptions(
        samplers=command.samplers,
        calls=command.calls or CALLS,
        temperatures=command.temperatures or TEMPERATURES,
        steps=command.steps,
        num_samples=command.num_samples,
        seed=command.seed,
        float32_gumbel=command.float32_gumbel,
    )
    judge_name = command.judge or JUDGE
    judge, model = LikelihoodJudge(load(judge_name)), next(iter(models.values()))
    real = _real_texts(command, model)
    compare = not quality and can_mauve() and len(real) >= FEWEST
    if not command.as_json:
        if command.float32_gumbel:
            print(
                "sampling with float32 Gumbel noise, which loses rare tokens: "
                "use it only to reproduce that artefact of some papers' code"
            )
        if real and not quality and not compare:
            missing = f"at least {FEWEST} texts of each kind" if can_mauve() else "mauve-text, pip install 'unnoise[mauve]'"
            print(f"MAUVE is left out: it needs {missing}")
    shared = {"picture": command.kind, "judge": judge_name, "judge_weights": fingerprint(judge.model)}
    saved = SavedPoints(out.with_suffix(".json"), TextMeasures, **shared, real=None if quality else _digest(real))
    points: list[TextMeasures] = []

    def take(point: TextMeasures) -> None:
        if not command.as_json:
            if not points:
                print(_title(models, "model") + _header(quality))
            print(_title(models, point.model or "–") + _line(point, quality), flush=True)
        _say_left_out(point, f"{point.calls} calls" if quality else f"temperature {point.temperature:g}")
        points.append(point)

    if real:
        take(saved.get(lambda: measure_texts(real, model, judge), codec=model.codec.identity(), data=_digest(real)))
    compared = features(judge.model, real) if compare else None
    for name, one in models.items():
        found = (
            qualities(one, judge, options, name=name, saved=saved)
            if quality
            else frontier(one, judge, options, real=compared, name=name, saved=saved)
        )
        for point in found:
            take(point)
    if saved.found:
        print(f"{saved.found} {'point' if saved.found == 1 else 'points'} from {saved.path}, measured before", file=sys.stderr)
    title = f"{', '.join(models)}: {options.num_samples} texts a point, judged by {judge_name}"
    if quality:
        plot_quality(points, out, title, dark=command.dark)
        return [_quality(point) for point in points]
    plot_frontier(points, out, f"{title}; numbers are temperatures", dark=command.dark)
    ahead = best([point for point in points if point.sampler != REAL])
    fields = [name for name in TextMeasures._fields if name not in ("calls", "char_entropy")]  # per token
    return [{name: point._asdict()[name] for name in fields} | {"on_frontier": point in ahead} for point in points]


def _real_texts(command: "PlotCommand", model: Model) -> list[str]:
    """Return real texts to compare samples with, if --data is given."""
    if command.data is None:
        return []
    source = corpus(command.data)
    if command.kind == "quality":
        rows = source.texts(model.codec, "test", model.length).windows(WINDOWS)
    else:
        rows = model.texts(source, "test").windows(command.num_samples)
    return [model.codec.decode([token for token in row if token >= 0]) for row in rows.tolist()]


def _say_left_out(point: TextMeasures, where: str) -> None:
    """Report texts that were not judged."""
    if point.left_out:
        texts = "1 text" if point.left_out == 1 else f"{point.left_out} texts"
        which = point.sampler if point.model == "" else f"{point.model} with {point.sampler} at {where}"
        print(f"{texts} by {which} left out: empty, or outside the judge's alphabet", file=sys.stderr)


def check_same_codec(models: dict[str, Model], why: str) -> None:
    """Raise ValueError unless all models have the same tokens."""
    first, *others = models
    for other in others:
        if models[other].codec.identity() != models[first].codec.identity():
            raise ValueError(f"{first} and {other} have different codecs, and {why}: use models with the same codec")


def _digest(texts: Sequence[str]) -> str | None:
    return hashlib.sha256(repr(list(texts)).encode()).hexdigest() if texts else None


def _quality(point: TextMeasures) -> dict[str, Any]:
    """Return a result of `plot quality` for JSON, per character."""
    return {
        "sampler": point.sampler,
        "calls": point.calls,
        "perplexity": point.char_perplexity,
        "entropy": point.char_entropy,
        "distinct": point.distinct_1,
        "left_out": point.left_out,
        "model": point.model,
    }


def _title(models: dict[str, Model], name: str) -> str:
    """Return a cell of the column of models, or nothing for a single model."""
    return "" if len(models) == 1 else f"{name:{max(5, *map(len, models))}s} "


def _header(quality: bool) -> str:
    if quality:
        return f"{'sampler':16s} {'calls':>5s} {'perplexity':>10s} {'entropy':>9s} {'distinct':>9s}"
    names = ("sampler", "temperature", "perplexity", "entropy", "distinct-1", "-2", "-3", "mauve")
    return "{:26s} {:>11s} {:>16s} {:>13s} {:>10s} {:>6s} {:>6s} {:>6s}".format(*names)


def _line(point: TextMeasures, quality: bool) -> str:
    if quality:
        numbers = f"{point.char_perplexity:10.2f} {point.char_entropy:9.3f} {point.distinct_1:9.3f}"
        return f"{point.sampler:16s} {point.calls or '–':>5} {numbers}"
    compared = "–" if point.mauve is None else f"{point.mauve:.3f}"
    return (
        f"{point.sampler:26s} {point.temperature:11.2f} {point.perplexity:8.2f} ± {point.perplexity_stderr:5.2f} "
        f"{point.entropy:5.3f} ± {point.entropy_stderr:.3f} "
        f"{point.distinct_1:10.3f} {point.distinct_2:6.3f} {point.distinct_3:6.3f} {compared:>6s}"
    )


def by_sampler(points: Sequence[TextMeasures]) -> dict[str, list[TextMeasures]]:
    """Group results by sampler, and by model if there are several."""
    several = len({point.model for point in points if point.sampler != REAL}) > 1
    lines: dict[str, list[TextMeasures]] = {}
    for point in points:
        name = f"{point.model}, {point.sampler}" if several and point.sampler != REAL else point.sampler
        lines.setdefault(name, []).append(point)
    return lines


def plot_quality(found: Sequence[TextMeasures], path: Path, title: str, *, dark: bool = False) -> None:
    """Draw the judge's perplexity and the entropy of texts against network calls, a line for each model and sampler."""
    lines = by_sampler(found)
    left_out = sum(point.left_out for point in found)
    with pictures(path, height=5.5, rows=2, dark=dark) as (above, below):
        for real in lines.pop(REAL, []):
            for axes, value in ((above, real.char_perplexity), (below, real.char_entropy)):
                axes.axhline(value, color=look(dark).dim, alpha=0.5, linewidth=3, label=REAL)
        for i, (name, points) in enumerate(lines.items()):
            calls = [point.calls for point in points]
            above.plot(calls, [point.char_perplexity for point in points], label=name, **series(i))
            below.plot(calls, [point.char_entropy for point in points], label=name, **series(i))
        calls = sorted({point.calls for points in lines.values() for point in points})
        above.set_xscale("log", base=2)
        above.set_xticks(calls, [str(number) for number in calls])
        above.set(ylabel="the judge's perplexity\na character", title=title + (f"; {left_out} left out" if left_out else ""))
        below.set(xlabel="network calls", ylabel="entropy of the\ncharacters, bits")
        legend(above)


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
            axes.errorbar(
                [real.entropy],
                [real.perplexity],
                fmt="*",
                markersize=13,
                color=look(dark).paper,
                mec=look(dark).ink,
                label=REAL,
                xerr=real.entropy_stderr,
                yerr=real.perplexity_stderr,
                elinewidth=0.7,
                ecolor=pale,
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
