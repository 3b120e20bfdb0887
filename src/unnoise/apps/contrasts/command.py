"""`unnoise contrast`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Dark, Json, Seed
from unnoise.registry import accepted_arguments, check_settings, parse_settings

if TYPE_CHECKING:
    from unnoise.apps.contrasts.base import Contrast


def contrasts() -> "dict[str, type[Contrast]]":
    """Return all contrasts by name."""
    from unnoise.apps.contrasts.paths import LastStep, PathEstimate
    from unnoise.apps.contrasts.scores import GridScore, ImpliedProbabilities, SquaredAndEntropy
    from unnoise.apps.contrasts.subs import MaskProbability

    return {
        "path-estimate": PathEstimate,
        "subs": MaskProbability,
        "score-entropy": SquaredAndEntropy,
        "scores": ImpliedProbabilities,
        "concrete-score": GridScore,
        "last-step": LastStep,
    }


def contrast_named(name: str, seed: int = 0) -> "Contrast":
    """Return the contrast with this name and these settings ("subs:updates=50"), or raise ValueError."""
    base, _, settings = name.partition(":")
    known = contrasts()
    if base not in known:
        raise ValueError(f"unknown contrast {base!r}: use one of {', '.join(known)}")
    chosen = parse_settings(base, settings, "contrast")
    accepted = accepted_arguments(known[base]) or {}
    check_settings(base, chosen, {field: value for field, value in accepted.items() if field != "seed"}, "contrast")
    for field, value in chosen.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{field} of the contrast {base} must be a whole number ≥ 1, found {value!r}")
    return known[base](**chosen, seed=seed)


@dataclass
class ContrastCommand:
    """Measure, draw and explain two forms of one quantity.

    path-estimate: the bound estimated from whole paths, and from KL terms.
    subs: the masked loss with and without probability on the mask token.
    score-entropy: squared loss and score entropy of ratios.
    scores: the sum of the probabilities that scores imply.
    concrete-score: the concrete score on a fine grid, and ∇ log p.
    last-step: p(x_0 | x_1) = μ, and the normalized product.

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
