"""Schedules side by side: how much of a text is left at each time, and how many tokens each step of a sampler reveals."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from unnoise.display.style import legend, pictures, series
from unnoise.keywords import accepted_arguments, check_settings, parse_settings
from unnoise.method_table import method, methods
from unnoise.process import HybridSchedule
from unnoise.sampler import Ancestral
from unnoise.schedule import Cosine, CosineTable, Geometric, Linear, LogLinear, Polynomial, Schedule

SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "linear": Linear,
    "polynomial": lambda w=2.0: Polynomial(w),
    "cosine": Cosine,
    "log-linear": LogLinear,
    "geometric": Geometric,
    "cosine-table": CosineTable,
    "hybrid": HybridSchedule,
}
GRIDS = ("uniform", "cosine")
POINTS = 201


class Revealed(NamedTuple):
    """A schedule with a grid of times: the tokens that each step reveals, on average."""

    schedule: str
    grid: str
    tokens: list[float]


def schedule_named(name: str) -> Callable[[Tensor], Tensor]:
    """α(t) of a schedule ("cosine", "polynomial:w=2"), or of a method's noise; ValueError if there is none."""
    base, _, settings = name.partition(":")
    if base in SCHEDULES:
        chosen = parse_settings(base, settings, "schedule")
        check_settings(base, chosen, accepted_arguments(SCHEDULES[base]), "schedule")
        try:
            return SCHEDULES[base](**chosen).alpha
        except TypeError as error:
            raise ValueError(f"the schedule {name} cannot be made: {error}") from error
    if base not in methods():
        raise ValueError(f"unknown schedule {name!r}: use one of {', '.join(SCHEDULES)}, or a method such as md4")
    curves = method(name).process(2).curves()
    if not curves:
        raise ValueError(f"{name} has no noise schedule to draw")
    alpha = next(iter(curves.values()))
    return lambda t: alpha(t).view(len(t), -1).mean(1)


@torch.no_grad()
def revealed(alpha: Callable[[Tensor], Tensor], grid: str, steps: int, length: int) -> list[float]:
    """L·(α(s) − α(t)) for each step from t to s of a grid; the first begins with noise alone, the last leaves none: [N].

    Of a text of noise alone, the share (1 − α(t))/(1 − α(1)) is not yet revealed at t.
    """
    times = torch.tensor(Ancestral(steps, "cosine" if grid == "cosine" else "uniform").times(), dtype=torch.float64)
    hidden = 1 - alpha(times.clamp_min(1e-9))
    levels = torch.cat([hidden / hidden[0], torch.zeros(1, dtype=torch.float64)])
    return (-length * levels.diff()).tolist()


def all_revealed(names: Sequence[str], steps: int, length: int) -> list[Revealed]:
    """The same for each schedule and grid."""
    for name, value in (("steps", steps), ("length", length)):
        if value < 1:
            raise ValueError(f"--{name} must be ≥ 1, found {value}")
    alphas = {name: schedule_named(name) for name in names}
    return [Revealed(name, grid, revealed(alpha, grid, steps, length)) for grid in GRIDS for name, alpha in alphas.items()]


def plot_schedules(names: Sequence[str], path: Path, steps: int, length: int, *, dark: bool = False) -> list[Revealed]:
    """α(t) of each schedule, and below it the tokens that each step reveals, on either grid."""
    found = all_revealed(names, steps, length)
    t = torch.linspace(1e-6, 1, POINTS, dtype=torch.float64)
    with (
        pictures(path, width=7.5, height=7.5, rows=1 + len(GRIDS), share_x=False, dark=dark) as (above, *below),
        torch.no_grad(),
    ):
        for i, name in enumerate(names):
            above.plot(t, schedule_named(name)(t), label=name, **series(i, markers=False))
        above.set(xlabel="t (0 is text, 1 is noise)", ylabel="α(t), the share still there", xlim=(0, 1), ylim=(0, 1.02))
        legend(above)
        most = max(max(one.tokens) for one in found)
        for axes, grid in zip(below, GRIDS, strict=True):
            for i, one in enumerate(one for one in found if one.grid == grid):
                axes.stairs(one.tokens, [step + 0.5 for step in range(steps + 1)], baseline=None, **series(i, markers=False))
            axes.set(ylabel="tokens a step", ylim=(0, 1.1 * most), xlim=(0.5, steps + 0.5))
            axes.set_title(f"{grid} grid: a text of {length} tokens in {steps} steps", fontsize=10)
        below[-1].set(xlabel="step, from noise to text")
    return found
