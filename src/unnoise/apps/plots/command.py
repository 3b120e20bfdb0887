"""`unnoise plot`, `unnoise noise`, and commands of the core with pictures."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli import eval_command, generate_command, info_command, train_command
from unnoise.cli.command_base import (
    Dark,
    Device,
    Json,
    ModelNames,
    Seed,
    at_least,
    named_models,
    only_model,
    open_model,
    open_models,
    say_read,
    text_of,
)

if TYPE_CHECKING:
    from unnoise.apps.plots.noise import NoisedText, NoisePath
    from unnoise.model.generate import Step
    from unnoise.model.model import Model
    from unnoise.training.callbacks import Callback

KINDS = ("curve", "schedule", "loss", "chain", "quality", "frontier")
NOISE = "absorbing"  # default noise of `unnoise noise`


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
        if wrong := [temperature for temperature in self.temperatures if not 0 < temperature <= 10]:
            raise ValueError(f"temperatures must lie above 0 and at most at 10, found {wrong[0]}")
        at_least(1, steps=self.steps, length=self.length)
        style.check(out)
        found = self._draw(out)
        print(json.dumps({"out": str(out), **found}) if self.as_json else f"wrote {out}")
        return 0

    def _draw(self, out: Path) -> dict[str, Any]:
        """Draw the picture, and return the results that were measured for it."""
        from unnoise.apps.plots import figures, schedules
        from unnoise.apps.plots.chain import plot_chain
        from unnoise.apps.plots.quality import check_same_codec, plot_measures

        if self.kind == "curve":
            folders = named_models(self.model)
            if len(folders) == 1:
                figures.plot_curve(next(iter(folders.values())), out, dark=self.dark)
            else:
                figures.plot_comparison(folders, out, dark=self.dark)
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
                figures.plot_loss(models, out, self.data or "sotu", dark=self.dark)
            case "chain":
                plot_chain(first, out, self.steps, self.seed, dark=self.dark)
            case _:
                return {self.kind: plot_measures(self, models, out)}
        return {}


@dataclass
class NoiseCommand:
    """Show a text at several times of the forward noise process. With --model, also denoise it from the last time.

    Example: unnoise noise "the quick brown fox jumps over the lazy dog" --method uniform
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="Text, file, or - for standard input.")]
    method: Annotated[
        str | None,
        arg(
            help="Noise: uniform, absorbing, nearest-neighbour, hybrid, gaussian, or a method from `unnoise ls`; "
            f"default: {NOISE}."
        ),
    ] = None
    model: Annotated[str | None, arg(help="Model whose noise and sampler are used: a folder, or a bundled name.")] = None
    times: Annotated[tuple[float, ...], arg(help="Increasing times from 0 (text) to 1 (noise).")] = (
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
    )
    steps: Annotated[int | None, arg(help="Maximum number of network calls for denoising; default: 128.")] = None
    codec: Annotated[
        str | None,
        arg(help="Codec of the text without --model: as for train, or the name of a bundled model; default: text8."),
    ] = None
    picture: Annotated[Path | None, arg(help="Draw the noised texts to this file, .png or .svg.")] = None
    dark: Dark = False
    seed: Seed = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from rich.console import Console

        from unnoise.apps.plots.noise import plot_path, show_path
        from unnoise.apps.plots.style import check

        if self.dark and self.picture is None:
            raise ValueError("--dark is for a picture: give --picture too")
        if self.picture is not None:
            check(self.picture)
        title, path, back_title, back = self._with_model() if self.model is not None else self._without_model()
        forward = path.texts()
        if self.picture is not None:
            plot_path(self.picture, title, forward, back, dark=self.dark)
        if self.as_json:
            found: dict[str, Any] = {"noise": title, "seed": self.seed, "texts": [_message(one) for one in forward]}
            if back:
                found |= {"back": [_message(one) for one in back]}
            print(json.dumps(found | ({"picture": str(self.picture)} if self.picture else {}), ensure_ascii=False))
            return 0
        show_path(title, forward, back_title, back, Console())
        if self.picture is not None:
            print(f"wrote {self.picture}", file=sys.stderr)
        return 0

    def _without_model(self) -> "tuple[str, NoisePath, str, list[NoisedText]]":
        from unnoise.apps.plots.noise import NoisePath, noise_named
        from unnoise.data import codec

        if self.steps is not None:
            raise ValueError("--steps is for denoising: give --model too")
        text, name = text_of(self.text), self.method or NOISE
        read = codec(self.codec or "text8", [text])
        if read.grid:
            raise ValueError(f"{self.codec} has a codec of images, and noise is shown for texts")
        say_read(read.read_as(text))
        tokens = read.encode(read.with_leading_space(text) if text else "").tolist()
        return name, NoisePath(noise_named(name, read), read, tokens, self.times, self.seed), "", []

    def _with_model(self) -> "tuple[str, NoisePath, str, list[NoisedText]]":
        from unnoise.apps.plots.noise import can_denoise_from, denoise_from, model_path, moments
        from unnoise.model.sampling_options import SamplingOptions

        if self.method is not None or self.codec is not None:
            raise ValueError("a model has its own noise and codec: leave out --method and --codec, or --model")
        model = open_model(self.model, self.device)
        text = text_of(self.text)
        path = model_path(model, text, self.times, self.seed)
        say_read(model.codec.read_as(text))
        if not can_denoise_from(model):
            print(
                f"{model.method.name} samples only from pure noise: it cannot denoise a partially noised text", file=sys.stderr
            )
            return model.method.name, path, "", []
        options = SamplingOptions(steps=self.steps, seed=self.seed)
        back = moments(list(denoise_from(model, path, options)), self.times[-2::-1])
        return model.method.name, path, f"and back, by {self.model}", back


def _message(noised: "NoisedText") -> dict[str, Any]:
    return {"t": noised.t, "text": "".join(noised.tokens), "tokens": noised.tokens, "kinds": noised.kinds}


@dataclass(frozen=True, kw_only=True)
class TrainCommand(train_command.TrainCommand):
    __doc__ = train_command.TrainCommand.__doc__

    def callbacks(self) -> "list[Callback]":
        from unnoise.apps.plots.figures import CurvePicture

        return [*super().callbacks(), CurvePicture()]


@dataclass(frozen=True, kw_only=True)
class CompareCommand(eval_command.CompareCommand):
    __doc__ = eval_command.CompareCommand.__doc__

    def callbacks(self) -> "list[Callback]":
        from unnoise.apps.plots.figures import CurvePicture

        return [*super().callbacks(), CurvePicture()]

    def draw(self) -> Path | None:
        from unnoise.apps.plots.figures import plot_comparison
        from unnoise.apps.plots.style import can_draw

        if not can_draw():
            return None
        picture = self.out / "comparison.png"
        plot_comparison({name: self.out / name for name in self.methods}, picture)
        return picture


@dataclass(frozen=True, kw_only=True)
class GenerateCommand(generate_command.GenerateCommand):
    __doc__ = generate_command.GenerateCommand.__doc__

    replay: Annotated[Path | None, arg(help="Write the denoising chain as an animated HTML page.")] = None

    def single_model_options(self) -> list[str]:
        return [*super().single_model_options(), *(["--replay"] if self.replay else [])]

    @property
    def keeps_chain(self) -> bool:
        return self.replay is not None

    def _sample(self, device: str) -> "tuple[Model, list[Step], Any]":
        from unnoise.files import check_writable

        if self.replay is not None:
            check_writable(self.replay, (".html",))
        return super()._sample(device)

    def _finish(self, found: "tuple[Model, list[Step], Any]") -> int:
        from unnoise.apps.plots.chain import write_replay

        model, steps, _ = found
        if self.replay is not None:
            kind = "an image" if model.codec.grid else "a text"
            write_replay(self.replay, steps, f"{model.method.name}: {kind} from noise, seed {self.seed}")
            print(f"wrote {self.replay}", file=sys.stderr)
        return super()._finish(found)


@dataclass
class InfoCommand(info_command.InfoCommand):
    __doc__ = info_command.InfoCommand.__doc__

    picture: Annotated[Path | None, arg(help="Draw the noise schedule to this file, .png or .svg.")] = None
    dark: Dark = False

    def run(self) -> int:
        if self.dark and self.picture is None:
            raise ValueError("--dark is for a picture: give --picture too")
        return super().run()

    @property
    def needs_weights(self) -> bool:
        return self.schedule or self.picture is not None

    def draw(self, model: "Model") -> None:
        if self.picture is not None:
            from unnoise.apps.plots.schedules import plot_schedule

            plot_schedule(model, self.picture, dark=self.dark)
            print(f"wrote {self.picture}", file=sys.stderr)
