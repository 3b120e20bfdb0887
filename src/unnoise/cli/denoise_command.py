"""The command `unnoise denoise`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from unnoise.cli.command_base import (
    SIGNS,
    Device,
    Json,
    ModelName,
    Seed,
    TextArgument,
    at_least,
    open_model,
    percent,
    printable,
    say_read,
    show_result,
    text_of,
)

if TYPE_CHECKING:
    from rich.text import Text

    from unnoise.model.denoise import Denoised


@dataclass
class DenoiseCommand:
    """Recover a clean text from a noised text.

    The text is taken as x_t at the time --at, and x_0 is predicted or sampled. Models of uniform noise (multinomial,
    d3pm-uniform, udlm, sedd-uniform, csm) and of hybrid noise (gidd) define this distribution. For a masked model, --at is the
    share of tokens that random errors have replaced. To correct spelling, use unnoise correct.

    Example: unnoise denoise "mexico citi the aztec stadium" --model runs/multinomial --at 0.3 --edits
    """

    text: TextArgument
    model: ModelName = None
    at: Annotated[float, arg(help="Time t of the text, 0 < t < 1. A larger t changes more tokens.")] = 0.05
    num_samples: int = 0
    """Number of samples of x_0. 0 predicts the most probable token at each position with one network call."""
    steps: int | None = None
    """Steps of the sampler from t to 0 (default: 128), or sweeps of Gibbs sampling for a masked model (default: 4)."""
    edits: Annotated[bool, arg(help="List the changed tokens with their probabilities.")] = False
    label: Annotated[str | None, arg(help="Class of the text, for a model trained with labels.")] = None
    seed: Seed = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from unnoise.cli.terminal import share_bar

        at_least(1, steps=self.steps)
        at_least(0, num_samples=self.num_samples, seed=self.seed)
        text = text_of(self.text)
        model = open_model(self.model, self.device)
        with share_bar("denoising") as bar:
            results = model.denoise(
                text, self.at, n=self.num_samples, steps=self.steps, seed=self.seed, label=self.label, on_progress=bar
            )
        first = results[0]
        say_read(first.read)
        if not self.as_json:
            self._print(results, end="\n" if text == self.text else "")
            return 0
        found = {"t": self.at, "replaced": first.replaced, "read": first.read, "windows": first.windows, "seed": self.seed}
        texts = [{"text": one.text, "edits": [asdict(edit) for edit in one.edits]} for one in results]
        return show_result(True, found | {"texts": texts}, ())

    def _print(self, results: "Sequence[Denoised]", end: str) -> None:
        from rich.console import Console

        first = results[0]
        windows = f"; the text is denoised in {first.windows} windows" if first.windows > 1 else ""
        noise = f"t = {self.at:g}: {percent(first.replaced, 1)} of the tokens are assumed to be noise"
        print(f"{noise}{windows}", file=sys.stderr)
        console = Console(highlight=False)
        for number, one in enumerate(results, 1):
            if len(results) > 1:
                console.print(f"--- {number}")
            console.print(marked(one), soft_wrap=True, end=end)
            for edit in one.edits if self.edits else ():
                old, new = (printable("".join(SIGNS.get(c, c) for c in token)) for token in (edit.old, edit.new))
                print(f"{edit.start:>6}  {old} → {new}  {edit.probability:.2f}", file=sys.stderr)


def marked(denoised: "Denoised") -> "Text":
    """Return the text with the changed tokens green and underlined."""
    from rich.text import Text

    shown, shift = Text(denoised.text), 0
    for edit in denoised.edits:
        start = edit.start + shift
        shown.stylize("bold green underline", start, start + len(edit.new))
        shift += len(edit.new) - len(edit.old)
    return shown
