"""`unnoise demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from unnoise.cli.base import Seed


@dataclass
class DemoCommand:
    """Train a small model on the embedded corpus and show what it can do.

    Example: unnoise demo
    """

    steps: Annotated[int, arg(help="Training steps; 700 take a minute or two on two cores.")] = 700
    out: Annotated[Path, arg(help="Folder to write.")] = Path("runs/demo")
    seed: Seed = 0

    def run(self) -> int:
        """The main job, from noise to text."""
        from unnoise.display.demo import demo

        return demo(self.steps, self.out, self.seed)
