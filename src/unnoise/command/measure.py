"""Commands that measure."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.command.base import Device, ModelName, Quiet, at_least, open_model, text_of

if TYPE_CHECKING:
    from unnoise.data.source import Source
    from unnoise.model import Model


@dataclass
class Score:
    """Bits per character of a text: exact for ar, an upper bound otherwise.

    Example: unnoise score "the state of the union is strong" --model runs/first
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: ModelName = None
    samples: Annotated[int, arg(help="Draws of the bound.")] = 32
    seed: int = 0
    device: Device = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Score and print."""
        model = open_model(self.model, self.device)
        score = model.score(text_of(self.text), self.samples, self.seed)
        if self.quiet:
            print(json.dumps(asdict(score)))
            return 0
        print(
            f"{score.bits_per_char:.4f} bits per {model.codec.unit} ({kind(model)}, ± {score.stderr:.4f}), "
            f"{score.nats:.1f} nats in all"
        )
        if score.read is not None:
            print(f"read in the model's alphabet as {score.read[:200]!r}{'…' if len(score.read) > 200 else ''}")
        if score.windows > 1:
            print(f"longer than the model's {model.length} tokens: scored in {score.windows} windows, each by itself")
        return 0


@dataclass
class _OverTexts:
    """What every command that measures over a data set can be told."""

    data: Annotated[str, arg(help="As for train.")] = "sotu"
    windows: Annotated[int | None, arg(help="At most so many windows, evenly spread; default: all.")] = None
    samples: Annotated[int, arg(help="Draws of the bound for each window.")] = 4
    seed: int = 0
    device: Device = "auto"
    quiet: Quiet = False

    def check(self) -> None:
        """Refuse counts that leave nothing to measure."""
        at_least(2, windows=self.windows)
        at_least(1, samples=self.samples)


@dataclass
class Eval(_OverTexts):
    """Bits per character over a data set.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test
    """

    model: ModelName = None
    split: Annotated[str, arg(help="train, valid or test.")] = "test"

    def run(self) -> int:
        """Evaluate and print."""
        from unnoise.data.corpus import corpus

        self.check()
        model = open_model(self.model, self.device)
        found = over(model, corpus(self.data), self.split, self.windows, self.samples, self.seed)
        if self.quiet:
            print(json.dumps(found))
            return 0
        texts = "images of" if model.codec.grid else "sentences of at most" if model.process.variable else "windows of"
        print(
            f"{found['bits_per_char']:.4f} ± {found['stderr']:.4f} bits per {model.codec.unit} "
            f"({kind(model)}; {found['windows']} {texts} {model.length})"
        )
        return 0


@dataclass
class Compare(_OverTexts):
    """Train several methods alike, and set their bits per character side by side.

    Example: unnoise compare mdlm udlm ar --data path/to/text8 --out runs/compare --steps 1400
    """

    methods: Annotated[Positional[tuple[str, ...]], arg(metavar="METHOD", help="Names from `unnoise ls`.")] = ()
    out: Annotated[Path, arg(help="Folder to write, with a run for each method; methods that are there go on.")] = Path(
        "runs/compare"
    )
    steps: Annotated[int | None, arg(help="Train each for so many steps …")] = None
    minutes: Annotated[float | None, arg(help="… or for so many minutes (3, if neither is given).")] = None
    size: Annotated[str, arg(help="nano, tiny, small or base.")] = "tiny"
    length: Annotated[int, arg(help="Tokens of a text.")] = 256
    codec: Annotated[str, arg(help="As for train.")] = "auto"
    batch: Annotated[int, arg(help="Texts in a batch.")] = 8
    windows: Annotated[int | None, arg(help="Test windows, evenly spread, the same for all.")] = 500
    samples: Annotated[int, arg(help="Draws of the bound for each window.")] = 2

    def run(self) -> int:
        """Train each, measure each, and print the table."""
        from unnoise.comparison import compare

        self.check()
        return compare(self)


def kind(model: "Model") -> str:
    """What a figure of this model is."""
    return "exact" if model.method.exact else "upper bound"


def over(model: "Model", source: "Source", split: str, windows: int | None, samples: int, seed: int) -> dict[str, Any]:
    """Bits per character over a split, its standard error, and what they are of."""
    texts = source.texts(model.codec, split, model.length, model.process.variable)
    x = texts.windows(windows)
    bits, error = model.bits_per_char(texts, windows, samples, seed)
    return {
        "bits_per_char": bits,
        "stderr": error,
        "exact": model.method.exact,
        "windows": len(x),
        "method": model.method.name,
        "nats": bits * math.log(2) * texts.characters * int((x >= 0).sum()),
    }
