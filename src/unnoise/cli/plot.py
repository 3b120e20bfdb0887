"""`unnoise plot`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.base import Dark, Json, ModelNames, Seed, at_least, named_models, only_model, open_models

KINDS = ("curve", "schedule", "loss", "chain", "quality", "frontier")


@dataclass
class PlotCommand:
    """Draw a picture: the training curve, the noise schedule of a model or several side by side, the loss at each noise level,
    a chain as a filmstrip, the quality of each sampler's texts against network calls, or the frontier of a judge's perplexity
    and the texts' entropy over temperatures. All but the chain take several models.

    Example: unnoise plot chain --model wiki --out chain.png
    """

    kind: Annotated[Positional[str], arg(metavar="KIND", help="curve, schedule, loss, chain, quality or frontier.")]
    model: ModelNames = ()
    out: Annotated[
        Path | None,
        arg(
            help="The file, .png or .svg; default: KIND.png. Points of quality and frontier are saved next to it, in a file "
            ".json, as they are measured, and not measured again."
        ),
    ] = None
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
        """Draw, and print the name of the file."""
        from unnoise.display import style

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

    def _draw(self, out: Path) -> dict[str, Any]:
        """Draw the picture, and return the numbers in it that were measured for it."""
        from unnoise.cli.frontier import check_same_codec, plot_frontier_of, plot_quality_of
        from unnoise.display import plot, schedules
        from unnoise.display.chain import plot_chain

        if self.kind == "curve":
            folders = named_models(self.model)
            if len(folders) == 1:
                plot.plot_curve(next(iter(folders.values())), out, dark=self.dark)
            else:
                plot.plot_comparison(folders, out, dark=self.dark)
            return {}
        if self.schedules:
            signals = {name: schedules.schedule_named(name) for name in self.schedules}
            found = schedules.plot_schedules(signals, out, self.steps, self.length, dark=self.dark)
            return {"revealed": [one._asdict() for one in found]}
        if self.kind == "chain":
            only_model(self.model, "unnoise plot chain")
        models = open_models(self.model, "cpu")
        first = next(iter(models.values()))
        match self.kind:
            case "schedule" if len(models) > 1:
                signals = {name: schedules.mean_signal(model.process, name) for name, model in models.items()}
                found = schedules.plot_schedules(signals, out, self.steps, self.length, dark=self.dark)
                return {"revealed": [one._asdict() for one in found]}
            case "schedule":
                schedules.plot_schedule(first, out, dark=self.dark)
            case "loss":
                check_same_codec(models, "the loss is measured in bits of a token")
                plot.plot_loss(models, out, self.data or "sotu", dark=self.dark)
            case "chain":
                plot_chain(first, out, self.steps, self.seed, dark=self.dark)
            case "frontier":
                return {"frontier": plot_frontier_of(self, models, out)}
            case _:
                return {"quality": plot_quality_of(self, models, out)}
        return {}
