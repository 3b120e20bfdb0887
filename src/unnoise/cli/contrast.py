"""`unnoise contrast`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.cli.base import Dark, Json


@dataclass
class ContrastCommand:
    """Measure and draw two forms of one quantity next to each other, with ten lines of explanation.

    path-estimate: the bound by whole paths, and by KL terms. subs: the masked loss with probability on the mask, and SUBS.
    score-entropy: squared loss and score entropy of ratios. scores: the sum of the probabilities that scores imply.
    concrete-score: the concrete score on a fine grid, and ∇ log p. last-step: p(x_0 | x_1) = μ, and the normalised product.

    Example: unnoise contrast path-estimate --out path-estimate.png
    """

    name: Annotated[
        Positional[str],
        arg(
            metavar="NAME",
            help="path-estimate, subs, score-entropy, scores, concrete-score or last-step; settings as in subs:updates=50.",
        ),
    ]
    out: Annotated[Path | None, arg(help="The file, .png or .svg; default: NAME.png.")] = None
    dark: Dark = False
    seed: int = 0
    as_json: Json = False

    def run(self) -> int:
        """Measure, draw and explain."""
        from rich.console import Console
        from rich.progress import Progress, TimeRemainingColumn

        from unnoise.display.contrasts import contrast_named
        from unnoise.display.style import check

        contrast = contrast_named(self.name, self.seed)
        base = self.name.partition(":")[0]
        out = self.out or Path(f"{base}.png")
        check(out)
        console = Console(stderr=True)
        columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(base, total=1.0)
            found = contrast.measure(lambda share: bar.update(task, completed=share))
        contrast.draw(found, out, dark=self.dark)
        if self.as_json:
            print(json.dumps({"contrast": base, "seed": self.seed, "out": str(out), **found}, ensure_ascii=False))
            return 0
        print("\n".join([contrast.title, "", contrast.about, "", *contrast.lines(found)]))
        print(f"wrote {out}", file=sys.stderr)
        return 0
