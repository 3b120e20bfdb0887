"""The models that come with the package: how each is trained, made small and described.

    python benchmarks/models.py --data path/to/data
    python benchmarks/models.py --data path/to/data --only wiki-ar --show

Each stage of a model is one `unnoise train --resume` into a folder of its own below --runs, so that what was stopped goes on by
the same command, and what is finished is not trained again. The last stage is converted into --out, where its card is written.
`--show` prints the commands and runs nothing, `--letters` only makes the text that `wiki` is trained on.
The folder --data holds what the recipes below name: text8, stories and moses.
"""

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import unnoise
from unnoise.checkpoint.format import CARD
from unnoise.cli.main import main
from unnoise.data.corpus import Corpus, corpus
from unnoise.evaluation.dataset import CardFacts, model_card
from unnoise.files import write_atomically

PACKAGE = Path(__file__).parents[1] / "src" / "unnoise" / "models"
TEXT8 = "the first 20 M characters of text8 (English Wikipedia of 2006, in lower case, without punctuation)"
LETTERS = 10_000_000  # characters of stories beside text8


@dataclass(frozen=True)
class Stage:
    """One training: a method, and options of `unnoise train`, in which {before} is the folder of the stage before.

    data: if it is not that of the model.
    """

    method: str
    options: str
    data: str = ""


@dataclass(frozen=True)
class ShippedModel:
    """What a model is trained on and how. data: as for `unnoise train`, in which {data} is the folder of all data, and {runs}
    that of the runs, where `letters` is what `plain_letters` makes."""

    name: str
    description: str
    data: str
    about_data: str
    license: str
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
            source = (stage.data or self.data).format(data=data, runs=runs)
            typed.append(f"unnoise train {stage.method} --data {source} --out {folder} {options}")
        return typed


NETWORK = "--network transformer:attention_every=2 --width 256 --depth 6 --precision bfloat16"
WHOLE_STORIES = "--segment documents --length 256"
STORIES = f"{WHOLE_STORIES} --batch 16"
AFTER = "--loss fast --init {before}"
MOLECULES = "--segment documents --length 64 --batch 64"
WIKI_AR = f"--codec text8bpe-8192 --length 128 --batch 32 {NETWORK} --heads 4"
MODELS = [
    ShippedModel(
        name="stories",
        description="A block diffusion model of short stories in simple English that generates stories and fills in words.",
        data="{data}/stories",
        about_data="35,539 stories sampled (top-p 0.9) from the public model stories15M (llama2.c, trained on TinyStories)",
        license="made for this project; stories15M is MIT, TinyStories CDLA-Sharing 1.0",
        stages=(
            Stage("ar", f"{STORIES} --codec bpe-4096 {NETWORK} --heads 8 --steps 1400"),
            Stage(
                "bd3lm:block=4,whole=0.5",
                f"{STORIES} {AFTER} --precision bfloat16 --muon-lr 0.012 --adam-lr 0.002 --steps 2000",
            ),
            Stage(
                "bd3lm:block=4,whole=0.85,hidden=0.7,span=2",
                f"{WHOLE_STORIES} --batch 24 {AFTER} --precision bfloat16 --muon-lr 0.01 --adam-lr 0.0015 --steps 1700",
            ),
            Stage(
                "bd3lm:block=4,whole=0.9,hidden=0.6",
                f"{WHOLE_STORIES} --batch 24 {AFTER} --precision bfloat16 --muon-lr 0.01 --adam-lr 0.0015 --steps 4300",
            ),
            Stage(
                "bd3lm:block=4,whole=0.9,hidden=0.6",
                f"{WHOLE_STORIES} --batch 48 --workers 2 {AFTER} --precision bfloat16 --muon-lr 0.01 "
                "--adam-lr 0.0015 --seed 7 --steps 3800",
            ),
        ),
        dtype="int8",
        sampling="sampler=block:inner=confidence,temperature=0.9,top_p=0.9,steps=256",
    ),
    ShippedModel(
        name="wiki-ar",
        description="An autoregressive model of English in the 27 symbols of text8 with exact likelihoods, used to "
        "judge the texts of other models.",
        data="{data}/text8",
        about_data=TEXT8,
        license="CC BY-SA",
        stages=(Stage("ar", f"{WIKI_AR} --steps 1493"),),
        dtype="int8",
    ),
    ShippedModel(
        name="wiki",
        description="A masked diffusion model of English in the 27 symbols of text8, trained on Wikipedia and on "
        "children's stories, that fills in words and checks spelling.",
        data="{runs}/letters",
        about_data=f"{TEXT8}, and 10 M characters of the stories of `stories` in the same letters",
        license="CC BY-SA (text8); the stories were made for this project",
        stages=(
            Stage("ar", f"{WIKI_AR} --steps 500", "{data}/text8"),
            Stage("mdlm", f"{AFTER} --length 128 --batch 32 --precision bfloat16 --steps 2300"),
            Stage(
                "mdlm",
                f"{AFTER} --length 128 --batch 32 --precision bfloat16 --muon-lr 0.012 --adam-lr 0.002 --steps 5000",
            ),
            Stage(
                "mdlm",
                f"--no-curriculum {AFTER} --length 128 --batch 64 --workers 2 --precision bfloat16 --muon-lr 0.008 "
                "--adam-lr 0.0012 --seed 7 --steps 2900",
            ),
            Stage(
                "mdlm",
                f"--no-curriculum --network transformer:pointer=true {AFTER} --length 128 --batch 64 --workers 2 "
                "--precision float32 --muon-lr 0.008 --adam-lr 0.0015 --seed 11 --steps 1900",
            ),
        ),
        dtype="int8",
        sampling="steps=128,temperature=0.95,top_p=0.9",
    ),
    ShippedModel(
        name="molecules",
        description="A block diffusion model of drug-like molecules in SMILES notation that generates new molecules "
        "and completes partial ones.",
        data="{data}/moses",
        about_data="the training set of MOSES, 1,584,663 molecules (Polykovskiy et al. 2020)",
        license="MIT",
        stages=(
            Stage("ar", f"{MOLECULES} --codec chars {NETWORK} --heads 8 --steps 900"),
            Stage(
                "bd3lm:block=4",
                f"{MOLECULES} {AFTER} --precision bfloat16 --muon-lr 0.016 --adam-lr 0.0025 --steps 1300",
            ),
            Stage(
                "bd3lm:block=4",
                f"--segment documents --length 64 --batch 128 {AFTER} --precision bfloat16 --muon-lr 0.012 "
                "--adam-lr 0.0018 --seed 7 --steps 944",
            ),
        ),
        dtype="int8",
        sampling="sampler=block:inner=confidence,temperature=0.9,top_p=0.95",
    ),
    ShippedModel(
        name="digits",
        description="A masked diffusion model of handwritten digits, 8 × 8 pixels of 17 levels, with labels.",
        data="digits",
        about_data="1,797 handwritten digits (UCI's optical recognition of handwritten digits, as in scikit-learn)",
        license="CC BY 4.0",
        stages=(Stage("mdlm", "--loss fast --steps 1500 --batch 32"),),
    ),
]


def plain_letters(data: Path, out: Path) -> None:
    """text8 with stories behind it, in the 27 symbols of text8; what is held out is text8's."""
    if (out / "train.txt").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    text8, stories = (corpus(str(data / name)) for name in ("text8", "stories"))
    assert isinstance(text8, Corpus) and isinstance(stories, Corpus)
    added = re.sub("[^a-z]+", " ", "\n".join(stories.documents["train"]).lower())[:LETTERS]
    for split in ("valid", "test"):
        write_atomically(out / f"{split}.txt", "".join(text8.documents[split]).encode())
    write_atomically(out / "train.txt", f"{''.join(text8.documents['train']).rstrip()} {added.strip()} ".encode())


def make(shipped: ShippedModel, data: Path, runs: Path, out: Path) -> int:
    """Train, convert, describe; returns the exit code."""
    folder = runs
    if "{runs}/letters" in shipped.data:
        plain_letters(data, runs / "letters")
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
        shipped.name, shipped.description, shipped.about_data, shipped.license, shipped.commands("path/to", "runs")
    )
    source = corpus(shipped.data.format(data=data, runs=runs))
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
    parser.add_argument("--letters", action="store_true", help="only make the text that wiki is trained on, below --runs")
    options = parser.parse_args()
    if options.letters:
        plain_letters(options.data, options.runs / "letters")
        sys.exit()
    for shipped in chosen(options.only):
        if options.show:
            print("\n".join(shipped.commands(str(options.data), str(options.runs))))
        elif code := make(shipped, options.data, options.runs, options.out):
            sys.exit(code)
