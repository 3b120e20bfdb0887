"""Names next to lines: over no line, over no other name, each nearer to its own line; weights of schedules."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unnoise
from unnoise import Masked, PerToken
from unnoise.apps.plots.schedules import SCHEDULES, mean_signal, plot_schedule, plot_schedules, schedule_named, weight

pytest.importorskip("matplotlib")

from unnoise.apps.plots.style import picture, series


def names_and_lines(axes: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the boxes of names, and dense lines, in pixels."""
    boxes = {text.get_text(): np.array(text.get_window_extent().extents) for text in axes.texts}
    lines = {}
    for line in axes.lines:
        points = line.get_transform().transform(line.get_xydata())
        at = np.linspace(0, len(points) - 1, 4000)
        lines[line.get_label()] = np.stack([np.interp(at, range(len(points)), points[:, i]) for i in range(2)], 1)
    return boxes, lines


def distance(box: np.ndarray, points: np.ndarray) -> float:
    """Return the distance in pixels from a box to a line."""
    outside = np.maximum(np.maximum(box[:2] - points, points - box[2:]), 0)
    return float(np.linalg.norm(outside, axis=1).min())


@pytest.mark.parametrize("count", [2, 8, 14])
def test_names_lie_over_no_line_and_next_to_their_own(count: int, tmp_path: Path) -> None:
    x = np.linspace(0, 1, 50)
    with picture(tmp_path / "lines.png") as axes:
        for i in range(count):
            axes.plot(x, np.sin(3 * x + 0.35 * i) + 0.25 * i, label=f"series {i}", **series(i, markers=False))
    boxes, lines = names_and_lines(axes)
    assert len(boxes) >= (0.7 if count < 10 else 0.3) * count
    for name, box in boxes.items():
        gaps = {label: distance(box, points) for label, points in lines.items()}
        assert min(gaps.values()) > 2 and min(gaps, key=lambda one: gaps[one]) == name
    frame = np.array(axes.get_window_extent().extents)
    for box in boxes.values():
        assert (box[:2] >= frame[:2] - 1).all() and (box[2:] <= frame[2:] + 1).all()
    for a, b in itertools.combinations(boxes.values(), 2):
        assert (a[2:] <= b[:2]).any() or (b[2:] <= a[:2]).any()


def test_a_single_line_and_a_long_name_have_no_name_in_the_picture(tmp_path: Path) -> None:
    with picture(tmp_path / "one.png") as axes:
        axes.plot([0, 1], [0, 1], label="alone")
    assert not axes.texts
    with picture(tmp_path / "long.png") as axes:
        axes.errorbar([0, 1], [0, 1], yerr=0.1, label="short", **series(0))
        axes.stairs([1, 2, 3], label="x" * 40)
        axes.stairs([5, 6, 5], label="stairs")
    assert {text.get_text() for text in axes.texts} == {"short", "stairs"}


def test_lines_that_coincide_keep_names_near_them(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 50)
    with picture(tmp_path / "same.png") as axes:
        for name, y in (("one", x), ("same", x), ("other", 1 - 0.5 * x)):
            axes.plot(x, y, label=name)
    boxes, lines = names_and_lines(axes)
    assert all(distance(boxes[name], lines[name]) < 12 for name in ("one", "same", "other"))
    assert all(distance(boxes[name], lines["other"]) > 30 for name in ("one", "same"))


@pytest.mark.parametrize("name", SCHEDULES)
def test_weights_are_those_of_the_schedule(name: str) -> None:
    alpha = schedule_named(name)
    t = torch.linspace(0.01, 0.99, 60, dtype=torch.float64)
    schedule = alpha.__self__  # pyright: ignore[reportFunctionMemberAccess]
    assert torch.allclose(weight(alpha, t), schedule.hazard(t), rtol=1e-8)
    if name == "linear":
        assert torch.allclose(weight(alpha, t), 1 / t)


def test_weights_of_learned_schedules_are_by_token() -> None:
    schedule = PerToken(3)
    with torch.no_grad():
        schedule.theta.copy_(torch.tensor([0.0, 1.0, 2.0]))
    t = torch.linspace(0.01, 0.99, 20, dtype=torch.float64)
    w = schedule.exponents(torch.float64).detach()
    assert torch.allclose(weight(schedule.alpha, t), w / t[:, None], rtol=1e-6)
    mean = mean_signal(Masked(3, schedule), "x")
    assert torch.allclose(mean(t), (1 - t[:, None] ** w).mean(1), atol=1e-6)


def test_the_picture_of_schedules_has_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    saved: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (saved.append(figure), save(figure, *a, **k))[1])
    names = ["linear", "cosine", "geometric"]
    plot_schedules({name: schedule_named(name) for name in names}, tmp_path / "s.png", 8, 256)
    signal, weights, uniform, cosine = saved[0].axes
    assert [line.get_label() for line in weights.lines] == names and weights.get_yscale() == "log"
    t, values = weights.lines[0].get_xydata().T
    assert np.allclose(values, 1 / t) and "α′" in weights.get_ylabel()
    assert signal.get_legend() is not None and len(uniform.patches) == len(cosine.patches) == 3
    box, frame = signal.get_legend().get_window_extent(), signal.get_window_extent()
    assert box.x0 >= frame.x1, "the legend covers no line"
    for dark, method in ((False, "mdlm"), (True, "genmd4")):
        model = unnoise.Model.build(method, width=16, depth=1, heads=2, length=8)
        plot_schedule(model, tmp_path / "one.png", dark=dark)
        assert len(saved[-1].axes) == 2 and len(saved[-1].axes[1].lines) == len(saved[-1].axes[0].lines) > 0
