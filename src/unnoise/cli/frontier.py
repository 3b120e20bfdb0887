"""`unnoise plot quality` and `unnoise plot frontier`: measure samples, print the results, save and draw them."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unnoise.cli.plot import PlotCommand
    from unnoise.evaluation.generative import TextMeasures
    from unnoise.model.model import Model

WINDOWS = 200  # of real text, for the quality


def plot_measures(command: "PlotCommand", models: "dict[str, Model]", out: Path) -> list[dict[str, Any]]:
    """Measure samples of each model, draw the results, and return them for JSON."""
    from unnoise.display.frontier import plot_frontier
    from unnoise.display.plot import plot_quality
    from unnoise.evaluation.frontier import best, frontier
    from unnoise.evaluation.generative import JUDGE, REAL, LikelihoodJudge, TextMeasures, measure_texts, qualities
    from unnoise.evaluation.mauve import FEWEST, can_mauve, features
    from unnoise.evaluation.saved_points import SavedPoints, fingerprint
    from unnoise.model.io import load

    _check_texts(models, command.samplers)
    quality = command.kind == "quality"
    if not quality:
        check_same_codec(models, "the entropy of a frontier is counted in tokens")
    for temperature in command.temperatures:
        if not 0 < temperature <= 10:
            raise ValueError(f"temperatures lie above 0 and at most at 10, found {temperature}")
    options, judge_name = command.options, command.judge or JUDGE
    judge, model = LikelihoodJudge(load(judge_name)), next(iter(models.values()))
    real = _real_texts(command, model)
    compare = not quality and can_mauve() and len(real) >= FEWEST
    if not command.as_json:
        if command.float32_gumbel:
            print(
                "drawn with float32 Gumbel noise, which loses rare tokens: only to reproduce that artefact of some papers' code"
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
    return [_frontier(point) | {"on_frontier": point in ahead} for point in points]


def _real_texts(command: "PlotCommand", model: "Model") -> list[str]:
    """Return real texts to compare samples with, if --data is given."""
    from unnoise.data.corpus import corpus

    if command.data is None:
        return []
    source = corpus(command.data)
    if command.kind == "quality":
        rows = source.texts(model.codec, "test", model.length).windows(WINDOWS)
    else:
        rows = model.texts(source, "test").windows(command.num_samples)
    return [model.codec.decode([token for token in row if token >= 0]) for row in rows.tolist()]


def _say_left_out(point: "TextMeasures", where: str) -> None:
    """Report texts that were not judged."""
    if point.left_out:
        texts = "1 text" if point.left_out == 1 else f"{point.left_out} texts"
        which = point.sampler if point.model == "" else f"{point.model} with {point.sampler} at {where}"
        print(f"{texts} by {which} left out: empty, or outside the judge's alphabet", file=sys.stderr)


def check_same_codec(models: "dict[str, Model]", why: str) -> None:
    """Raise ValueError unless all models have the same tokens."""
    first, *others = models
    for other in others:
        if models[other].codec.identity() != models[first].codec.identity():
            raise ValueError(f"{first} and {other} have different codecs, and {why}: use models with the same codec")


def _check_texts(models: "dict[str, Model]", samplers: Sequence[str]) -> None:
    """Raise ValueError unless all models generate texts and support the samplers."""
    for model in models.values():
        if model.codec.grid:
            raise ValueError("a judge reads texts, and this is a model of images")
        for name in samplers:
            model.check_sampler(name)


def _digest(texts: Sequence[str]) -> str | None:
    return hashlib.sha256(repr(list(texts)).encode()).hexdigest() if texts else None


def _quality(point: "TextMeasures") -> dict[str, Any]:
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


def _frontier(point: "TextMeasures") -> dict[str, Any]:
    """Return a result of `plot frontier` for JSON, per token."""
    return {name: value for name, value in point._asdict().items() if name not in ("calls", "char_entropy")}


def _title(models: "dict[str, Model]", name: str) -> str:
    """Return a cell of the column of models, or nothing for a single model."""
    return "" if len(models) == 1 else f"{name:{max(5, *map(len, models))}s} "


def _header(quality: bool) -> str:
    if quality:
        return f"{'sampler':16s} {'calls':>5s} {'perplexity':>10s} {'entropy':>9s} {'distinct':>9s}"
    names = ("sampler", "temperature", "perplexity", "entropy", "distinct-1", "-2", "-3", "mauve")
    return "{:26s} {:>11s} {:>16s} {:>13s} {:>10s} {:>6s} {:>6s} {:>6s}".format(*names)


def _line(point: "TextMeasures", quality: bool) -> str:
    if quality:
        numbers = f"{point.char_perplexity:10.2f} {point.char_entropy:9.3f} {point.distinct_1:9.3f}"
        return f"{point.sampler:16s} {point.calls or '–':>5} {numbers}"
    compared = "–" if point.mauve is None else f"{point.mauve:.3f}"
    return (
        f"{point.sampler:26s} {point.temperature:11.2f} {point.perplexity:8.2f} ± {point.perplexity_stderr:5.2f} "
        f"{point.entropy:5.3f} ± {point.entropy_stderr:.3f} "
        f"{point.distinct_1:10.3f} {point.distinct_2:6.3f} {point.distinct_3:6.3f} {compared:>6s}"
    )
