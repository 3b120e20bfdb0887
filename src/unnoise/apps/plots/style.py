"""Style of all pictures by matplotlib (the extra `plot`): light and dark colours, fonts, legends, and labels next to lines."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unnoise.files import check_writable, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

LONGEST = 28  # characters of a label; a longer one is only in the legend
DENSE = 2.0  # pixels between points of a line, at most
EVERY = 8.0  # pixels between the positions that are tried
AWAY = 5.0  # pixels between a name and any line, at least
FAR = 60.0  # pixels; larger distances from other lines are not better
NEARER = 1.4  # smallest ratio of the distances to any other line and to its own
COINCIDE = 0.2  # share of a line on another, beyond which the lines coincide there
SIZE = 7.5


class Line(NamedTuple):
    """A line in pixels.

    name: its label, or an empty string.
    color: colour of the line and its name.
    points: [n, 2], dense.
    """

    name: str
    color: Any
    points: np.ndarray


def label_lines(axes: "Axes", renderer: Any) -> None:
    """Label each line that has room for it, if there are several lines. Call this when the axes have their final position.

    A label is placed where it is farthest from other lines.
    """
    lines = _lines(axes)
    named = [line for line in lines if line.name and len(line.name) <= LONGEST and len(line.points)]
    if len(named) < 2:
        return
    frame = axes.get_window_extent(renderer)
    taken = [np.array(text.get_window_extent(renderer).extents) for text in axes.texts]
    everything = np.concatenate([line.points for line in lines])
    for line in named:
        text = axes.text(0, 0, line.name, fontsize=SIZE, color=line.color, ha="center", va="center")
        text.set_in_layout(False)
        box = text.get_window_extent(renderer)
        half = np.array([box.width, box.height]) / 2
        others = np.concatenate([_apart(other.points, line.points) for other in lines if other is not line])
        place = _best_place(
            line.points, half, others, everything, taken=np.array(taken).reshape(-1, 4), frame=np.array(frame.extents)
        )
        if place is None:
            text.remove()
            continue
        x, y = axes.transData.inverted().transform(place)
        text.set_position((x, y))
        taken.append(np.concatenate([place - half, place + half]))


def _best_place(
    own: np.ndarray, half: np.ndarray, others: np.ndarray, everything: np.ndarray, *, taken: np.ndarray, frame: np.ndarray
) -> np.ndarray | None:
    """Return the centre of a label, [2], or None if there is no room next to its line."""
    spots = own[:: max(1, round(EVERY / DENSE))]
    aside = [(0, half[1] + AWAY), (0, -half[1] - AWAY), (half[0] + AWAY, 0), (-half[0] - AWAY, 0)]
    aside += [(x * (half[0] + AWAY), y * (half[1] + AWAY)) for x in (-1, 1) for y in (-1, 1)]
    centres = (spots[:, None] + np.array(aside)).reshape(-1, 2)
    inside = np.all((centres - half >= frame[:2]) & (centres + half <= frame[2:]), axis=1)
    apart = (centres[:, None] + half <= taken[:, :2] - 2) | (centres[:, None] - half >= taken[:, 2:] + 2)
    centres = centres[inside & np.all(np.any(apart, axis=2), axis=1)]
    if not len(centres):
        return None
    clear = np.any(np.abs(centres[:, None] - everything) >= half + AWAY - 1.5, axis=2)
    centres = centres[np.all(clear, axis=1)]
    if not len(centres):
        return None
    if not len(others):
        return centres[len(centres) // 2]
    distance = _distance(centres, half, others).clip(max=FAR)
    plain = distance >= NEARER * _distance(centres, half, own)
    return centres[plain][int(distance[plain].argmax())] if plain.any() else None


def _distance(centres: np.ndarray, half: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the distance from the edge of each label to a line: [n]."""
    outside = (np.abs(centres[:, None] - points) - half).clip(0)
    return np.sqrt((outside**2).sum(2)).min(1)


def _apart(points: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the points of another line, [n, 2], without the part where both lines coincide. Crossings are kept."""
    if not len(points):
        return points
    near = np.array([np.abs(own - point).max(1).min() <= DENSE for point in points], dtype=bool)
    return points[~near] if near.mean() > COINCIDE else points


def _lines(axes: "Axes") -> list[Line]:
    """Return all lines of axes: plots, error bars and stairs."""
    from matplotlib.container import ErrorbarContainer
    from matplotlib.patches import StepPatch

    labels = {one.lines[0]: str(one.get_label()) for one in axes.containers if isinstance(one, ErrorbarContainer)}
    found = []
    for line in axes.lines:
        if line.get_linestyle() in ("None", "") and not labels.get(line):
            continue
        points = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
        found.append(Line(_shown(labels.get(line) or str(line.get_label())), line.get_color(), _dense(points)))
    for patch in axes.patches:
        if isinstance(patch, StepPatch):
            points = patch.get_transform().transform(patch.get_path().vertices)
            found.append(Line(_shown(str(patch.get_label())), patch.get_edgecolor(), _dense(points)))
    low, high = np.reshape(axes.get_window_extent().extents, (2, 2))
    return [line._replace(points=line.points[((line.points >= low - 1) & (line.points <= high + 1)).all(1)]) for line in found]


def _shown(label: str) -> str:
    return "" if label.startswith("_") else label


def _dense(points: np.ndarray) -> np.ndarray:
    """Return the finite points [n, 2] with interpolated points in between."""
    points = points[np.isfinite(points).all(1)].clip(-1e4, 1e4)
    if len(points) < 2:
        return points
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    at = np.linspace(0, along[-1], max(2, int(along[-1] / DENSE) + 1))
    return np.stack([np.interp(at, along, points[:, i]) for i in range(2)], 1)


LINES = ("-", "--", ":", "-.")
MARKERS = "os^DvXP<>p*h"
FONT = "DejaVu Sans"  # comes with matplotlib
MONOSPACE = "DejaVu Sans Mono"
OTHER_SCRIPTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Unifont")  # if installed
DPI = 130


class Look(NamedTuple):
    """Colours of a picture.

    paper: background.
    ink: text and axes.
    dim: text and lines of less importance.
    grid: grid lines and thin borders.
    colors: series, in the order of `series`; told apart with any kind of colour blindness.
    mask: box of a mask token.
    changed: box of a token that has changed.
    """

    paper: str
    ink: str
    dim: str
    grid: str
    colors: tuple[str, ...]
    mask: str
    changed: str


LIGHT = Look(
    paper="#ffffff",
    ink="#22211f",
    dim="#6f6b63",
    grid="#e2dfd8",
    colors=("#123f96", "#ad2f0d", "#25a562", "#80225c", "#c4860d", "#7f88d0"),
    mask="#d5d1c8",
    changed="#ffd9a6",
)
DARK = Look(
    paper="#171715",
    ink="#e9e6df",
    dim="#a29c90",
    grid="#37352f",
    colors=("#6d92ff", "#f06a3d", "#46dc98", "#cb74b8", "#f5da45", "#d1f0ff"),
    mask="#45423b",
    changed="#7a4a12",
)


def look(dark: bool) -> Look:
    """Return the dark or the light colours."""
    return DARK if dark else LIGHT


def series(i: int, markers: bool = True) -> dict[str, Any]:
    """Return the colour, line style and marker of the i-th line, for `Axes.plot` and `Axes.errorbar`.

    Pairs of colour and line style repeat after 24 lines, markers after twelve.
    """
    count = len(LIGHT.colors)
    found: dict[str, Any] = {"color": f"C{i % count}", "linestyle": LINES[(i + i // count) % len(LINES)]}
    return found | ({"marker": MARKERS[i % len(MARKERS)], "markersize": 5} if markers else {})


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check(path: Path) -> None:
    """Raise ValueError if no picture can be written to `path`. Call this before expensive work."""
    if not can_draw():
        raise ValueError("pictures need matplotlib: pip install 'unnoise[plot]'")
    check_writable(path, (".png", ".svg"))


@contextmanager
def drawing(path: Path, width: float, height: float, *, dark: bool = False) -> "Iterator[Figure]":
    """Yield an empty figure, and write it to `path` when the block ends without an error.

    Size is in inches; the file is cropped or extended to what is drawn, so legends may lie outside the axes.
    """
    check(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_settings(look(dark))), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width, height), dpi=DPI)
        yield figure
        content = BytesIO()
        kind = path.suffix[1:]
        about = {"Date": None} if kind == "svg" else {"Software": None}  # make files reproducible
        figure.savefig(content, format=kind, bbox_inches="tight", pad_inches=0.12, metadata=about)
    write_atomically(path, content.getvalue())


@contextmanager
def pictures(
    path: Path, *, width: float = 7.0, height: float = 4.0, rows: int = 1, share_x: bool = True, dark: bool = False
) -> "Iterator[list[Axes]]":
    """Yield axes below each other, with one x axis or several, and write the picture to `path`.

    Lines with labels have their names next to them, where there is room.
    """
    check(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with drawing(path, width, height, dark=dark) as figure:
        figure.set_layout_engine("constrained")
        yield list(figure.subplots(rows, sharex=share_x, squeeze=False)[:, 0])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # keep the positions of the axes
        renderer = FigureCanvasAgg(figure).get_renderer()
        for axes in figure.axes:
            label_lines(axes, renderer)
            if (found := axes.get_legend()) is not None:
                found.set_in_layout(True)  # include legends outside the axes in the file


@contextmanager
def picture(path: Path, *, width: float = 7.0, height: float = 4.0, dark: bool = False) -> "Iterator[Axes]":
    """Yield the axes of a picture, and write it to `path`."""
    with pictures(path, width=width, height=height, dark=dark) as (axes,):
        yield axes


def legend(axes: "Axes", **options: Any) -> "Legend":
    """Add a legend to the right of the axes, where it covers no line."""
    placed = axes.legend(**{"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0} | options)
    placed.set_in_layout(False)
    return placed


def fonts(family: str = FONT) -> list[str]:
    """Return a font, followed by installed fonts for scripts that it lacks."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [family, *(name for name in OTHER_SCRIPTS if name in installed)]


def _settings(look: Look) -> Any:
    """Return matplotlib's settings."""
    from cycler import cycler

    return {
        "font.family": fonts(),
        "font.size": 9,
        "text.color": look.ink,
        "text.parse_math": False,  # print dollar signs
        "figure.facecolor": look.paper,
        "savefig.facecolor": look.paper,
        "axes.facecolor": look.paper,
        "axes.edgecolor": look.dim,
        "axes.labelcolor": look.ink,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.prop_cycle": cycler(color=look.colors),
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": look.grid,
        "grid.linewidth": 0.6,
        "xtick.color": look.dim,
        "ytick.color": look.dim,
        "xtick.labelcolor": look.ink,
        "ytick.labelcolor": look.ink,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "lines.linewidth": 1.6,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "legend.handlelength": 2.6,
        "svg.hashsalt": "unnoise",
    }
