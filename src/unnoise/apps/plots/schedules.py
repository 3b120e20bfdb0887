"""Pictures of noise schedules: α(t), the weight of the loss, and the number of tokens revealed in each sampler step."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from unnoise.apps.plots.style import legend, look, pictures, series
from unnoise.cli.info_command import learned_exponents
from unnoise.method_table import method, methods
from unnoise.model.model import Model
from unnoise.process import HybridSchedule, ProcessBase
from unnoise.registry import accepted_arguments, check_settings, parse_settings
from unnoise.sampler import Ancestral
from unnoise.schedule import Cosine, CosineTable, Geometric, Linear, LogLinear, Polynomial, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
NAMED = 5  # tokens named at each end of a learned schedule
TIME, SHARE = "t (0 is text, 1 is noise)", "α(t), share of signal"
Signal = Callable[[Tensor], Tensor]
"""α(t): [n] → [n], or [n, K] where it differs between K tokens."""


class Revealed(NamedTuple):
    """Expected number of tokens that each step reveals, for a schedule and a grid of times."""

    schedule: str
    grid: str
    tokens: list[float]


def schedule_named(name: str) -> Signal:
    """Return α(t) of a schedule ("cosine", "polynomial:w=2") or of a method, or raise ValueError."""
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
    return mean_signal(method(name).process(2), name)


def mean_curves(process: ProcessBase) -> dict[str, Signal]:
    """Return the curves α(t) of a process by name, averaged over tokens if they differ between tokens."""
    return {name: (lambda t, alpha=alpha: alpha(t).view(len(t), -1).mean(1)) for name, alpha in process.curves().items()}


def mean_signal(process: ProcessBase, name: str) -> Signal:
    """Return the first curve α(t) of a process, or raise ValueError if there is none."""
    curves = mean_curves(process)
    if not curves:
        raise ValueError(f"{name} has no noise schedule to draw")
    return next(iter(curves.values()))


def weight(alpha: Signal, t: Tensor) -> Tensor:
    """Return −α′/(1 − α) at times t: [n] → [n], or [n, K] where α differs between K tokens.

    It is the weight of the cross-entropy in the bound of masked noise, and the rate at which a mask is revealed.
    """
    values, slope, *_ = torch.func.jvp(alpha, (t,), (torch.ones_like(t),))
    return -slope / (1 - values)


@torch.no_grad()
def revealed(alpha: Signal, grid: str, steps: int, length: int) -> list[float]:
    """Return the expected number of tokens revealed in each step of a grid, from pure noise to text: [N].

    At time t, the share (1 − α(t))/(1 − α(1)) of the tokens is not revealed yet.
    """
    times = torch.tensor(Ancestral(steps, "cosine" if grid == "cosine" else "uniform").times(), dtype=torch.float64)
    hidden = 1 - alpha(times.clamp_min(1e-9))
    levels = torch.cat([hidden / hidden[0], torch.zeros(1, dtype=torch.float64)])
    return (-length * levels.diff()).tolist()


def plot_schedules(signals: Mapping[str, Signal], path: Path, steps: int, length: int, *, dark: bool = False) -> list[Revealed]:
    """Draw α(t) of each schedule, its weight −α′/(1 − α), and the tokens that each step reveals on either grid."""
    found = [Revealed(name, grid, revealed(alpha, grid, steps, length)) for grid in GRIDS for name, alpha in signals.items()]
    t = torch.linspace(1e-4, 1 - 1e-4, POINTS, dtype=torch.float64)
    with (
        pictures(path, width=7.5, height=9.5, rows=2 + len(GRIDS), share_x=False, dark=dark) as (above, weights, *below),
        torch.no_grad(),
    ):
        for i, (name, alpha) in enumerate(signals.items()):
            above.plot(t, alpha(t), label=name, **series(i, markers=False))
            weights.plot(t, weight(alpha, t), label=name, **series(i, markers=False))
        above.set(xlabel=TIME, ylabel=SHARE, xlim=(0, 1), ylim=(0, 1.02))
        _as_weights(weights)
        legend(above)
        most = max(max(one.tokens) for one in found)
        for axes, grid in zip(below, GRIDS, strict=True):
            for i, one in enumerate(one for one in found if one.grid == grid):
                edges = [step + 0.5 for step in range(steps + 1)]
                axes.stairs(one.tokens, edges, baseline=None, label=one.schedule, linewidth=1.4, **series(i, markers=False))
            axes.set(ylabel="tokens a step", ylim=(0, 1.1 * most), xlim=(0.5, steps + 0.5))
            axes.set_title(f"{grid} grid: a text of {length} tokens in {steps} steps", fontsize=10)
        below[-1].set(xlabel="step, from noise to text")
    return found


def _as_weights(axes: "Axes") -> None:
    """Set a logarithmic axis for weights, which diverge at t = 0."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=TIME, ylabel="−α′/(1 − α), weight\nof the masked loss", xlim=(0, 1), ylim=(0.05, 200))


def plot_schedule(model: Model, path: Path, *, dark: bool = False) -> None:
    """Draw α(t) and its weight −α′/(1 − α), with a line for each token if the schedule is learned.

    The tokens that are revealed first and last are named.
    """
    curves = model.process.curves()
    if not curves:
        raise ValueError(f"{model.method.name} has no noise schedule to draw")
    t = torch.linspace(1e-4, 1 - 1e-4, POINTS, dtype=torch.float64)
    with pictures(path, height=6.0, rows=2, dark=dark) as (above, weights), torch.no_grad():
        for i, (name, alpha) in enumerate(curves.items()):
            for axes, values in ((above, alpha(t)), (weights, weight(alpha, t))):
                if values.dim() == 1:
                    axes.plot(t, values, label=name, **series(i, markers=False))
                else:
                    _plot_by_token(axes, t, values, learned_exponents(model), dark)
        above.set(ylabel=SHARE, xlim=(0, 1), ylim=(0, 1.02), title=model.method.name)
        _as_weights(weights)
        legend(above)


def _plot_by_token(axes: "Axes", t: Tensor, values: Tensor, ranked: list[tuple[str, float]], dark: bool) -> None:
    """Draw a line for each token, [n, K], with colours and names for the tokens revealed first and last."""
    order = values[len(t) // 2].argsort(descending=True).tolist()
    axes.plot(t, values[:, order[NAMED:-NAMED]], color=look(dark).dim, alpha=0.4, linewidth=0.7)
    for i, (which, some) in enumerate((("first", slice(NAMED)), ("last", slice(-NAMED, None)))):
        names = "  ".join(token for token, _ in ranked[some])
        lines = axes.plot(t, values[:, order[some]], **series(i, markers=False), linewidth=1)
        lines[0].set_label(f"revealed {which}: {names}")
