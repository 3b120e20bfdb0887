"""`unnoise noise`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Dark, Device, Json, Seed, open_model, say_read, text_of

if TYPE_CHECKING:
    from unnoise.apps.plots.noise import NoisedText, NoisePath

METHOD = "absorbing"


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
            f"default: {METHOD}."
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
    steps: Annotated[int | None, arg(help="Largest number of network calls for denoising; default: 128.")] = None
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
        text, name = text_of(self.text), self.method or METHOD
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
