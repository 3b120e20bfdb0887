"""Contrasts: two forms of one quantity next to each other, measured and drawn by one command each."""

from unnoise.apps.contrasts.base import Contrast
from unnoise.apps.contrasts.paths import LastStep, PathEstimate
from unnoise.apps.contrasts.scores import GridScore, ImpliedProbabilities, SquaredAndEntropy
from unnoise.apps.contrasts.subs import MaskProbability
from unnoise.registry import accepted_arguments, check_settings, parse_settings

CONTRASTS: dict[str, type[Contrast]] = {
    "path-estimate": PathEstimate,
    "subs": MaskProbability,
    "score-entropy": SquaredAndEntropy,
    "scores": ImpliedProbabilities,
    "concrete-score": GridScore,
    "last-step": LastStep,
}


def contrast_named(name: str, seed: int = 0) -> Contrast:
    """Return the contrast of this name, with its settings where there are any ("subs:updates=50"), or raise ValueError."""
    base, _, settings = name.partition(":")
    if base not in CONTRASTS:
        raise ValueError(f"unknown contrast {base!r}: use one of {', '.join(CONTRASTS)}")
    chosen = parse_settings(base, settings, "contrast")
    known = {field: default for field, default in (accepted_arguments(CONTRASTS[base]) or {}).items() if field != "seed"}
    check_settings(base, chosen, known, "contrast")
    for field, value in chosen.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{field} of the contrast {base} must be a whole number ≥ 1, found {value!r}")
    return CONTRASTS[base](**chosen, seed=seed)
