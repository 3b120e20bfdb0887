"""`unnoise demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg


@dataclass
class DemoCommand:
    """Train a small model on the embedded corpus and show what it can do.

    Example: unnoise demo
    """

    minutes: Annotated[float, arg(help="Minutes of training.")] = 2.5
    out: Annotated[Path, arg(help="Folder to write.")] = Path("runs/demo")
    seed: int = 0

    def run(self) -> int:
        """The main job, from noise to text."""
        from unnoise.display.demo import demo

        return demo(self.minutes, self.out, self.seed)
