"""`unnoise demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from unnoise.cli.base import Seed


@dataclass
class DemoCommand:
    """Show the bundled models, then train a small model on the built-in corpus and sample from it.

    Example: unnoise demo
    """

    steps: Annotated[int, arg(help="Training steps. 700 steps take one or two minutes on two cores.")] = 700
    out: Annotated[Path, arg(help="Output folder.")] = Path("runs/demo")
    seed: Seed = 0

    def run(self) -> int:
        from unnoise.display.demo import demo

        return demo(self.steps, self.out, self.seed)
