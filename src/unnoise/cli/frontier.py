"""`unnoise plot quality` and `unnoise plot frontier`: measure, show, save, draw."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unnoise.cli.plot import PlotCommand
    from unnoise.evaluation.frontier import Point
    from unnoise.evaluation.generative import Quality
    from unnoise.model.model import Model

WINDOWS = 200  # of real text, for the quality


def plot_quality_of(command: "PlotCommand", models: "dict[str, Model]", out: Path) -> list[dict[str, Any]]:
    """Measure the quality of each model's texts by each sampler, with a line for each point, and draw it."""
    from unnoise.data.corpus import corpus
    from unnoise.display.plot import plot_quality
    from unnoise.evaluation.generative import CALLS, JUDGE, OwnJudge, Quality, qualities, weigh
    from unnoise.evaluation.saved_points import SavedPoints, fingerprint
    from unnoise.model.io import load

    _check_texts(models, command.samplers)
    judge = command.judge or JUDGE
    by = OwnJudge(load(judge))
    saved = SavedPoints(out.with_suffix(".json"), Quality, picture="quality", judge=judge, judge_weights=fingerprint(by.model))
    points: list[Quality] = []

    def take(point: Quality) -> None:
        if not command.as_json:
            if not points:
                print(_titles(models) + f"{'sampler':16s} {'calls':>5s} {'perplexity':>10s} {'entropy':>9s} {'distinct':>9s}")
            calls = point.calls or "–"
            numbers = f"{calls:>5} {point.perplexity:10.2f} {point.entropy:9.3f} {point.distinct:9.3f}"
            print(f"{_title(models, point.model)}{point.sampler:16s} {numbers}", flush=True)
        _say_left_out(point, f"{point.calls} calls")
        points.append(point)

    if command.data is not None:
        codec, length = next(iter(models.values())).codec, next(iter(models.values())).length
        rows = corpus(command.data).texts(codec, "test", length).windows(WINDOWS).tolist()
        real = [codec.decode([token for token in row if token >= 0]) for row in rows]
        take(saved.get(lambda: weigh(real, by), data=_digest(real)))
    calls = command.calls or CALLS
    for name, model in models.items():
        for point in qualities(model, by, command.samplers, calls, command.num_samples, command.seed, name=name, saved=saved):
            take(point)
    _say_saved(saved.found, saved.path)
    plot_quality(points, out, f"{', '.join(models)}: {command.num_samples} texts a point, judged by {judge}", dark=command.dark)
    return [point._asdict() for point in points]


def plot_frontier_of(command: "PlotCommand", models: "dict[str, Model]", out: Path) -> list[dict[str, Any]]:
    """Measure quality and variety of each model's texts over temperatures, with a line for each point, and draw them."""
    from unnoise.data.corpus import corpus
    from unnoise.display.frontier import plot_frontier
    from unnoise.evaluation.frontier import TEMPERATURES, Point, best, frontier, measured
    from unnoise.evaluation.generative import JUDGE, REAL, OwnJudge
    from unnoise.evaluation.mauve import FEWEST, can_mauve, features
    from unnoise.evaluation.saved_points import SavedPoints, fingerprint
    from unnoise.model.io import load

    _check_texts(models, command.samplers)
    check_same_codec(models, "the entropy of a frontier is counted in tokens")
    for temperature in command.temperatures:
        if not 0 < temperature <= 10:
            raise ValueError(f"temperatures lie above 0 and at most at 10, found {temperature}")
    judge, samples = command.judge or JUDGE, command.num_samples
    by, model = OwnJudge(load(judge)), next(iter(models.values()))
    points: list[Point] = []
    real: list[str] = []
    if command.data is not None:
        rows = model.texts(corpus(command.data), "test").windows(samples).tolist()
        real = [model.codec.decode([token for token in row if token >= 0]) for row in rows]
    compare = can_mauve() and len(real) >= FEWEST
    if not command.as_json:
        if command.float32_gumbel:
            print(
                "drawn with float32 Gumbel noise, which loses rare tokens: only to reproduce that artefact of some papers' code"
            )
        if command.data is not None and not compare:
            missing = f"at least {FEWEST} texts of each kind" if can_mauve() else "mauve-text, pip install 'unnoise[mauve]'"
            print(f"MAUVE is left out: it needs {missing}")
        print(_titles(models) + _header())

    def take(point: Point) -> None:
        if not command.as_json:
            print(_title(models, point.model) + _line(point), flush=True)
        _say_left_out(point, f"temperature {point.temperature:g}")
        points.append(point)

    shared = {"picture": "frontier", "judge": judge, "judge_weights": fingerprint(by.model), "real": _digest(real)}
    saved = SavedPoints(out.with_suffix(".json"), Point, **shared)
    if real:
        take(saved.get(lambda: measured(real, model, by, REAL, 1.0), codec=model.codec.identity()))
    compared = features(by.model, real) if compare else None
    for name, one in models.items():
        for point in frontier(
            one,
            by,
            command.samplers,
            command.temperatures or TEMPERATURES,
            command.steps,
            samples,
            command.seed,
            compared,
            command.float32_gumbel,
            name=name,
            saved=saved,
        ):
            take(point)
    _say_saved(saved.found, saved.path)
    title = f"{', '.join(models)}: {samples} texts a point, judged by {judge}; numbers are temperatures"
    plot_frontier(points, out, title, dark=command.dark)
    ahead = best([point for point in points if point.sampler != REAL])
    return [point._asdict() | {"on_frontier": point in ahead} for point in points]


def check_same_codec(models: "dict[str, Model]", why: str) -> None:
    """Raise ValueError unless all models have the same tokens."""
    first, *others = models
    for other in others:
        if models[other].codec.identity() != models[first].codec.identity():
            raise ValueError(f"{first} and {other} have different codecs, and {why}: take models with the same codec")


def _check_texts(models: "dict[str, Model]", samplers: Sequence[str]) -> None:
    """Raise ValueError unless these models write texts with these samplers."""
    for model in models.values():
        if model.codec.grid:
            raise ValueError("a judge reads texts, and this is a model of images")
        for name in samplers:
            model.check_sampler(name)


def _digest(texts: Sequence[str]) -> str | None:
    return hashlib.sha256(repr(list(texts)).encode()).hexdigest() if texts else None


def _say_left_out(point: "Quality | Point", where: str) -> None:
    """Report texts that were not judged."""
    if point.left_out:
        texts = "1 text" if point.left_out == 1 else f"{point.left_out} texts"
        which = point.sampler if point.model == "" else f"{point.model} with {point.sampler} at {where}"
        print(f"{texts} by {which} left out: empty, or outside the judge's alphabet", file=sys.stderr)


def _say_saved(found: int, path: Path) -> None:
    """Report points that were not measured again."""
    if found:
        print(f"{found} {'point' if found == 1 else 'points'} from {path}, measured before", file=sys.stderr)


def _titles(models: "dict[str, Model]") -> str:
    """Return the heading of the column of models, or nothing for a single model."""
    return "" if len(models) == 1 else f"{'model':{_widest(models)}s} "


def _title(models: "dict[str, Model]", name: str) -> str:
    return "" if len(models) == 1 else f"{name or '–':{_widest(models)}s} "


def _widest(models: "dict[str, Model]") -> int:
    return max(5, *map(len, models))


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
