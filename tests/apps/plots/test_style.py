"""The look of pictures: series that can be told apart, light and dark, legends that cover no line, whole files."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from unnoise.apps.plots.style import DARK, LIGHT, Look, drawing, legend, picture, series

# Machado, Oliveira, Fernandes (2009), full severity, on linear RGB: protanopia, deuteranopia, tritanopia
BLINDNESS = [
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
]
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
WHITE = np.array([0.95047, 1, 1.08883])


def linear(color: str) -> np.ndarray:
    """Linear RGB of a colour written as #rrggbb."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE Lab of linear RGB; a distance of about 2 is just noticeable."""
    xyz = TO_XYZ @ rgb.clip(0, 1) / WHITE
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours by WCAG."""
    dark, light = sorted(float(TO_XYZ[1] @ linear(color)) for color in (a, b))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_series_are_told_apart_by_everyone(look: Look) -> None:
    for matrix in BLINDNESS:
        seen = [lab(matrix @ linear(color)) for color in look.colors]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20
    assert min(contrast(color, look.paper) for color in look.colors) > 3
    assert contrast(look.ink, look.paper) > 12 and contrast(look.dim, look.paper) > 4.5
    assert all(contrast(look.ink, box) > 4.5 for box in (look.mask, look.changed))


def test_lines_differ_without_colour_too() -> None:
    drawn = [series(i) for i in range(24)]
    assert len({(one["color"], one["linestyle"]) for one in drawn}) == 24
    assert len({one["marker"] for one in drawn[:12]}) == 12


@pytest.mark.parametrize("dark", [False, True])
def test_a_legend_lies_outside_and_inside_the_file(tmp_path: Path, dark: bool) -> None:
    image = pytest.importorskip("matplotlib.image")
    with picture(tmp_path / "few.png", width=4, height=3, dark=dark) as axes:
        axes.plot([0, 1], [0, 1])
    with picture(tmp_path / "many.png", width=4, height=3, dark=dark) as axes:
        for i in range(12):
            axes.plot([0, 1], [i, 12 - i], label=f"$a series with a long name$ {i}", **series(i))
        found = legend(axes)
    figure = axes.figure
    box = found.get_window_extent()
    assert box.x0 >= axes.get_window_extent().x1 and not found.get_frame_on()
    few, many = (image.imread(tmp_path / name) for name in ("few.png", "many.png"))
    assert many.shape[1] - few.shape[1] > 0.9 * box.width, "the file grows by the legend"
    paper = np.array([int((DARK if dark else LIGHT).paper[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    assert np.allclose(many[0, 0, :3], paper, atol=0.01) and figure is not None
    edge = np.concatenate([many[:, :3].reshape(-1, 4), many[:, -3:].reshape(-1, 4)])[:, :3]
    assert np.allclose(edge, paper, atol=0.01), "nothing is cut off"


def test_a_picture_is_written_whole_or_not_at_all_and_always_alike(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for suffix in ("png", "svg"):
        for name in ("a", "b"):
            with picture(tmp_path / f"{name}.{suffix}") as axes:
                axes.plot([0, 1], label="x")
                legend(axes)
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    with pytest.raises(RuntimeError), drawing(tmp_path / "c.png", 1, 1):
        raise RuntimeError("while drawing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]
    with pytest.raises(ValueError, match=r"ends in \.png or \.svg"), drawing(tmp_path / "c.gif", 1, 1):
        pass
