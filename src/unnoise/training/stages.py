"""Runs in stages (`--stages`): each method starts from the weights of the one before."""

from dataclasses import replace
from pathlib import Path

from unnoise.training.options import MINUTES, RunOptions

FOLDER = "stages"


def stages_of(options: RunOptions, out: Path) -> list[tuple[RunOptions, Path]]:
    """Return the runs that a run consists of, with their folders. The last one is the run itself, with the remaining length.

    "ar=0.5" trains ar for the first half, in OUT/stages/1-ar; "ar=0.4; bd3lm:block=1=0.2" has two stages before the last.
    """
    runs: list[tuple[RunOptions, Path]] = []
    left = 1.0
    plain = replace(options, stages="")
    start = options.init
    for part in filter(None, map(str.strip, options.stages.split(";"))):
        name, _, share = part.rpartition("=")
        try:
            size = float(share)
        except ValueError:
            size = -1.0
        left -= size
        if not name or not 0 < size < 1 or left <= 0:
            raise ValueError(
                f"stages are methods with fractions of the run, in all below 1, such as ar=0.5, found {options.stages!r}"
            )
        folder = out / FOLDER / f"{len(runs) + 1}-{name.partition(':')[0]}"
        runs.append((_shortened(replace(plain, method=name, init=start), size), folder))
        start, plain = str(folder), replace(plain, width=None, depth=None, heads=None, codec="auto")
    last = replace(_shortened(plain, left), init=start) if runs else options
    return [*runs, (last, out)]


def _shortened(options: RunOptions, share: float) -> RunOptions:
    if options.steps is not None:
        return replace(options, steps=max(1, round(options.steps * share)))
    return replace(options, minutes=(options.minutes or MINUTES) * share)
