"""The models that come with the package: how each is trained, made small and described.

    python benchmarks/models.py --data path/to/data
    python benchmarks/models.py --data path/to/data --only wiki-ar --show

Each stage of a model is one `unnoise train --resume` into a folder of its own below --runs, so that what was stopped goes on by
the same command, and what is finished is not trained again. The last stage is converted into --out, where its card is written.
`--show` prints the commands and runs nothing. The folder --data holds what the recipes below name.
"""

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import unnoise
from unnoise.checkpoint.card import CARD
from unnoise.cli.main import main
from unnoise.evaluation.card import CardFacts, model_card
from unnoise.files import write_atomically

PACKAGE = Path(__file__).parents[1] / "src" / "unnoise" / "models"
TEXT8 = "the first 20 M characters of text8 (English Wikipedia of 2006, in lower case, without punctuation)"


@dataclass(frozen=True)
class Stage:
    """One training: a method, and options of `unnoise train`, in which {before} is the folder of the stage before."""

    method: str
    options: str


@dataclass(frozen=True)
class ShippedModel:
    """What a model is trained on and how. data: as for `unnoise train`, in which {data} is the folder of all data."""

    name: str
    description: str
    data: str
    about_data: str
    licence: str
    stages: tuple[Stage, ...]
    dtype: str = "float16"
    sampling: str = "none"
    windows: int = 500  # that its bits are measured on

    def commands(self, data: str, runs: str) -> list[str]:
        """What is typed to train it."""
        folders = [f"{runs}/{self.name}-{number}" for number in range(1, len(self.stages) + 1)]
        typed = []
        for stage, before, folder in zip(self.stages, ["", *folders], folders, strict=False):
            options = stage.options.format(before=before)
            typed.append(f"unnoise train {stage.method} --data {self.data.format(data=data)} --out {folder} {options}")
        return typed


STORIES = "--texts whole --length 256 --batch 16 --precision bfloat16"
MODELS = [
    ShippedModel(
        name="stories",
        description="Block diffusion of little stories in plain English: writes them, and fills in words.",
        data="{data}/stories",
        about_data="35,539 stories sampled from the public model stories15M (llama2.c, trained on TinyStories)",
        licence="made for this project; stories15M is MIT, TinyStories CDLA-Sharing 1.0",
        stages=(
            Stage(
                "ar",
                f"{STORIES} --codec bpe-4096 --network transformer:attention_every=2 --width 256 --depth 6 --heads 8 "
                "--steps 2600",
            ),
            Stage(
                "bd3lm:block=4,whole=0.5",
                f"{STORIES} --init {{before}} --matrix-lr 0.012 --other-lr 0.002 --steps 2400",
            ),
        ),
        dtype="int8",
    ),
    ShippedModel(
        name="wiki-ar",
        description="An autoregressive model of English in 27 letters, with exact likelihoods: judges other models' texts.",
        data="{data}/text8",
        about_data=f"{TEXT8}, of which 16.6 M were read",
        licence="CC BY-SA",
        stages=(Stage("ar", "--steps 8091"),),
    ),
    ShippedModel(
        name="wiki",
        description="A masked diffusion model of English in 27 letters: fills in, checks spelling, serves first tries.",
        data="{data}/text8",
        about_data=f"{TEXT8}, of which 16.6 M were read",
        licence="CC BY-SA",
        stages=(Stage("mdlm", "--steps 8091"),),
    ),
    ShippedModel(
        name="digits",
        description="A masked diffusion model of handwritten digits, 8 × 8 pixels of 17 levels, with labels.",
        data="digits",
        about_data="1,797 handwritten digits (UCI's optical recognition of handwritten digits, as in scikit-learn)",
        licence="CC BY 4.0",
        stages=(Stage("mdlm", "--steps 1500 --batch 32"),),
    ),
]


def make(shipped: ShippedModel, data: Path, runs: Path, out: Path) -> int:
    """Train, convert, describe; returns the exit code."""
    folder = runs
    for command in shipped.commands(str(data), str(runs)):
        print(f"== {command}", flush=True)
        words = shlex.split(command)[1:]
        folder = Path(words[words.index("--out") + 1])
        if code := main([*words, "--resume"]):
            return code
    new = out / f"{shipped.name}.new"  # what was there before stays until all of this is
    shutil.rmtree(new, ignore_errors=True)
    convert = ["convert", str(folder), "--out", str(new), "--dtype", shipped.dtype, "--sampling", shipped.sampling]
    if code := main(convert):
        return code
    facts = CardFacts(
        shipped.name, shipped.description, shipped.about_data, shipped.licence, shipped.commands("path/to", "runs")
    )
    source = unnoise.corpus(shipped.data.format(data=data))
    card = model_card(unnoise.load(new), facts, source, windows=shipped.windows)
    write_atomically(new / CARD, card.encode())
    shutil.rmtree(out / shipped.name, ignore_errors=True)
    new.rename(out / shipped.name)
    print(f"{out / shipped.name} is ready", flush=True)
    return 0


def chosen(names: Sequence[str]) -> list[ShippedModel]:
    """The models of these names, all of them for none."""
    unknown = set(names) - {shipped.name for shipped in MODELS}
    if unknown:
        raise SystemExit(f"there is no recipe for {', '.join(sorted(unknown))}; there are {', '.join(m.name for m in MODELS)}")
    return [shipped for shipped in MODELS if not names or shipped.name in names]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="the folder with text8 and so on")
    parser.add_argument("--only", nargs="+", default=[], help="some of the models, by name")
    parser.add_argument("--runs", type=Path, default=Path("runs/shipped"), help="where they are trained")
    parser.add_argument("--out", type=Path, default=PACKAGE, help="where they are put")
    parser.add_argument("--show", action="store_true", help="print the commands and run nothing")
    options = parser.parse_args()
    for shipped in chosen(options.only):
        if options.show:
            print("\n".join(shipped.commands(str(options.data), str(options.runs))))
        elif code := make(shipped, options.data, options.runs, options.out):
            sys.exit(code)
