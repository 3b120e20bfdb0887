"""`unnoise contrast`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Dark, Json, Seed


@dataclass
class ContrastCommand:
    """Measure and draw two forms of one quantity, with a short explanation.

    path-estimate: the bound estimated from whole paths, and from KL terms.
    subs: the masked loss with and without probability on the mask token.
    score-entropy: squared loss and score entropy of ratios.
    scores: the sum of the probabilities that scores imply.
    concrete-score: the concrete score on a fine grid, and ∇ log p.
    last-step: p(x_0 | x_1) = μ, and the normalised product.

    Example: unnoise contrast path-estimate --out path-estimate.png
    """

    name: Annotated[
        Positional[str],
        arg(
            metavar="NAME",
            help="path-estimate, subs, score-entropy, scores, concrete-score or last-step, with settings such as "
            "subs:updates=50.",
        ),
    ]
    out: Annotated[Path | None, arg(help="Output file, .png or .svg; default: NAME.png.")] = None
    dark: Dark = False
    seed: Seed = 0
    as_json: Json = False

    def run(self) -> int:
        from unnoise.apps.contrasts.named import contrast_named
        from unnoise.apps.plots.style import check
        from unnoise.cli.terminal import share_bar

        contrast = contrast_named(self.name, self.seed)
        name = self.name.partition(":")[0]
        out = self.out or Path(f"{name}.png")
        check(out)
        with share_bar(name) as show:
            found = contrast.measure(show)
        contrast.draw(found, out, dark=self.dark)
        if self.as_json:
            print(json.dumps({"contrast": name, "seed": self.seed, "out": str(out), **found}, ensure_ascii=False))
            return 0
        print("\n".join([contrast.title, "", contrast.about, "", *contrast.lines(found)]))
        print(f"wrote {out}", file=sys.stderr)
        return 0
