"""`unnoise denoise`."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Device, Json, ModelName, Seed, at_least, open_model, percent, printable, say_read, text_of

if TYPE_CHECKING:
    from rich.text import Text

    from unnoise.model.denoise import Denoised


@dataclass
class DenoiseCommand:
    """Treat a text as x_t, noised up to time t, and predict or sample the clean text x_0.

    Models of uniform noise (multinomial, d3pm-uniform, udlm, sedd-uniform, csm) and hybrid noise (gidd) do this by definition.
    For a masked model, --at is the share of tokens that random errors have replaced. To correct spelling, use unnoise correct.

    Example: unnoise denoise "mexico citi the aztec stadium" --model runs/multinomial --at 0.3 --edits
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="Text, file, or - for standard input.")]
    model: ModelName = None
    at: Annotated[float, arg(help="The time t of the text's noise, 0 < t < 1. A larger t changes more tokens.")] = 0.05
    num_samples: Annotated[
        int, arg(help="Samples of x_0; 0 predicts it: the most probable token of each position, from one network call.")
    ] = 0
    steps: Annotated[
        int | None,
        arg(
            help="Steps of the sampler from t to 0 (default: 128), or for a masked model sweeps of Gibbs sampling (default: 4)."
        ),
    ] = None
    edits: Annotated[bool, arg(help="List the changed tokens with their probabilities.")] = False
    label: Annotated[str | None, arg(help="Class of the text, for a model trained with labels.")] = None
    seed: Seed = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from rich.console import Console

        at_least(1, steps=self.steps)
        at_least(0, num_samples=self.num_samples, seed=self.seed)
        text = text_of(self.text)
        results = self._denoised(text)
        first = results[0]
        say_read(first.read)
        if self.as_json:
            found = {"t": self.at, "replaced": first.replaced, "read": first.read, "windows": first.windows, "seed": self.seed}
            texts = [{"text": one.text, "edits": [asdict(edit) for edit in one.edits]} for one in results]
            print(json.dumps(found | {"texts": texts}, ensure_ascii=False))
            return 0
        print(
            f"t = {self.at:g}: {percent(first.replaced, 1)} of the tokens are assumed to be noise"
            + (f"; the text is denoised in {first.windows} windows" if first.windows > 1 else ""),
            file=sys.stderr,
        )
        console = Console(highlight=False)
        for number, one in enumerate(results, 1):
            if len(results) > 1:
                console.print(f"--- {number}")
            console.print(marked(one), soft_wrap=True, end="\n" if text == self.text else "")
            for edit in one.edits if self.edits else ():
                print(f"{edit.start:>6}  {_shown(edit.old)} → {_shown(edit.new)}  {edit.probability:.2f}", file=sys.stderr)
        return 0

    def _denoised(self, text: str) -> "list[Denoised]":
        from unnoise.cli.terminal import share_bar

        model = open_model(self.model, self.device)
        with share_bar("denoising") as show:
            return model.denoise(
                text,
                self.at,
                self.num_samples,
                steps=self.steps,
                seed=self.seed,
                label=self.label,
                on_progress=show,
            )


def marked(denoised: "Denoised") -> "Text":
    """Return the text with the changed tokens green and underlined."""
    from rich.text import Text

    shown, shift = Text(denoised.text), 0
    for edit in denoised.edits:
        start = edit.start + shift
        shown.stylize("bold green underline", start, start + len(edit.new))
        shift += len(edit.new) - len(edit.old)
    return shown


def _shown(token: str) -> str:
    """Return a token for a list, a blank as ␣."""
    return printable(token.replace(" ", "␣").replace("\n", "↵"))
