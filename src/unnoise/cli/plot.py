"""`unnoise plot`."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.base import Dark, Json, ModelName, Seed, at_least, model_folders, open_model

if TYPE_CHECKING:
    from unnoise.model.model import Model


@dataclass
class PlotCommand:
    """Draw a picture: the training curve, the noise schedule of a model or several side by side, the loss at each noise level,
    a chain as a filmstrip, the quality of each sampler's texts against network calls, or the frontier of a judge's perplexity
    and the texts' entropy over temperatures.

    Example: unnoise plot chain --model wiki --out chain.png
    """

    kind: Annotated[Positional[str], arg(metavar="KIND", help="curve, schedule, loss, chain, quality or frontier.")]
    model: ModelName = None
    out: Annotated[Path | None, arg(help="The file, .png or .svg; default: KIND.png.")] = None
    data: Annotated[
        str | None,
        arg(help="Held-out text for `loss` (sotu by default), and to set beside the `quality` or `frontier`; as for train."),
    ] = None
    steps: Annotated[
        int, arg(help="Denoising steps of the chain and of the frontier's texts, or those over which schedules reveal tokens.")
    ] = 128
    schedules: Annotated[
        tuple[str, ...],
        arg(help="For `schedule`, instead of a model: linear cosine polynomial:w=2 log-linear geometric hybrid …, or methods."),
    ] = ()
    length: Annotated[int, arg(help="Tokens of the text that schedules reveal.")] = 256
    judge: Annotated[
        str | None, arg(help="Who judges the quality: the folder of an ar model, wiki-ar (default), or smollm2 (extra `eval`).")
    ] = None
    samplers: Annotated[tuple[str, ...], arg(help="Whose quality; names from `unnoise ls`; default: five of them.")] = ()
    calls: Annotated[tuple[int, ...], arg(help="Network calls, at most; default: 16 32 64 128 256.")] = ()
    num_samples: Annotated[int, arg(help="Texts for each point of the quality or frontier.")] = 16
    temperatures: Annotated[tuple[float, ...], arg(help="Of the frontier; default: 0.7 0.8 0.9 1.0.")] = ()
    float32_gumbel: Annotated[
        bool,
        arg(
            help="For `frontier` with --samplers ancestral: draw with float32 Gumbel noise, which loses rare tokens and "
            "flatters the texts; only to reproduce that artefact of some papers' code."
        ),
    ] = False
    dark: Dark = False
    seed: Seed = 0
    as_json: Json = False

    def run(self) -> int:
        """Draw, and say where."""
        from unnoise.display import plot, style
        from unnoise.display.chain import plot_chain

        out = self.out or Path(f"{self.kind}.png")
        more: dict[str, Any] = {}
        if self.kind not in ("curve", "schedule", "loss", "chain", "quality", "frontier"):
            raise ValueError(f"unknown picture {self.kind!r}: use one of curve, schedule, loss, chain, quality, frontier")
        if (self.temperatures or self.float32_gumbel) and self.kind != "frontier":
            raise ValueError("--temperatures and --float32-gumbel are for `unnoise plot frontier`")
        at_least(1, steps=self.steps)
        if self.schedules:
            more["revealed"] = self._schedules(out)
        elif self.kind == "curve":
            plot.plot_curve(Path(self.model) if self.model else model_folders()[-1], out, dark=self.dark)
        else:
            style.check(out)
            model = open_model(self.model, "cpu")
            match self.kind:
                case "schedule":
                    plot.plot_schedule(model, out, dark=self.dark)
                case "loss":
                    plot.plot_loss(model, out, self.data or "sotu", dark=self.dark)
                case "chain":
                    plot_chain(model, out, self.steps, self.seed, dark=self.dark)
                case "frontier":
                    more["frontier"] = self._frontier(model, out)
                case _:
                    more["quality"] = self._quality(model, out)
        print(json.dumps({"out": str(out), **more}) if self.as_json else f"wrote {out}")
        return 0

    def _schedules(self, out: Path) -> list[dict[str, Any]]:
        """Several schedules side by side."""
        from unnoise.display.schedules import plot_schedules

        if self.kind != "schedule" or self.model is not None:
            raise ValueError("--schedules are for `unnoise plot schedule` without --model")
        return [one._asdict() for one in plot_schedules(self.schedules, out, self.steps, self.length, dark=self.dark)]

    def _frontier(self, model: "Model", out: Path) -> list[dict[str, Any]]:
        """Quality against variety over temperatures."""
        from unnoise.cli.frontier import plot_frontier_of

        return plot_frontier_of(
            model,
            out,
            self.judge,
            self.data,
            self.samplers,
            self.temperatures,
            self.steps,
            self.num_samples,
            self.seed,
            self.float32_gumbel,
            self.as_json,
            dark=self.dark,
        )

    def _quality(self, model: "Model", out: Path) -> list[dict[str, Any]]:
        """Measure, with a line for each point as it comes, and draw."""
        from unnoise.data.corpus import corpus
        from unnoise.display.plot import plot_quality
        from unnoise.evaluation.generative import CALLS, JUDGE, Quality, judge, qualities, weigh

        if model.codec.grid:
            raise ValueError("a judge reads texts, and this is a model of images")
        for name in self.samplers:
            model.check_sampler(name)
        by = judge(self.judge or JUDGE)
        real = None
        if self.data is not None:
            rows = corpus(self.data).texts(model.codec, "test", model.length).windows(200).tolist()
            real = weigh([model.codec.decode(row) for row in rows], by)
        found: list[Quality] = []
        for q in itertools.chain(
            [real] if real else [], qualities(model, by, self.samplers, self.calls or CALLS, self.num_samples, self.seed)
        ):
            if not self.as_json:
                if not found:
                    print(f"{'sampler':16s} {'calls':>5s} {'perplexity':>10s} {'entropy':>9s} {'distinct':>9s}")
                calls = q.calls or "–"
                print(f"{q.sampler:16s} {calls:>5} {q.perplexity:10.2f} {q.entropy:9.3f} {q.distinct:9.3f}", flush=True)
            found.append(q)
        plot_quality(found, out, f"{model.method.name}, judged by {self.judge or JUDGE}", dark=self.dark)
        return [q._asdict() for q in found]
