"""Style of all pictures by matplotlib (the extra `plot`): fonts, colours, grid and legends, light and dark, PNG or SVG."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unnoise.display.direct_labels import label_lines
from unnoise.files import check_writable, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

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
