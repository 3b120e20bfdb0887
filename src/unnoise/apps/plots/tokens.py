"""Pictures of rows of tokens, with a column for each position, cut into lines."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from unnoise.apps.plots.style import DPI, MONOSPACE, Look, drawing, fonts, look
from unnoise.cli.command_base import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["plain", "changed", "mask"]
SIZE, SMALL = 8.0, 7.0  # points of tokens, of times and names
PITCH = 13.5  # points from one line to the next
GAP = 7.0  # points between states
PAD = 0.75  # points on either side of a token
WIDEST = 500.0  # points of a line, unless a single token is longer
NARROWEST = 240.0  # points of a picture
LABEL = 44.0  # points to the left of the lines, for times


class Row(NamedTuple):
    """Tokens of one state.

    label: text to the left of the first line.
    tokens: tokens as `Codec.show_states` gives them.
    kinds: box of each token.
    """

    label: str
    tokens: Sequence[str]
    kinds: Sequence[Kind]


class Layout(NamedTuple):
    """Places of columns.

    lines: positions of each line.
    lefts: left edge of each column, in points.
    widths: width of each column, in points.
    """

    lines: list[range]
    lefts: list[float]
    widths: list[float]


def measure(size: float) -> Callable[[str], float]:
    """Return a function that measures the width of a text in points, in the monospaced font, including spaces at its ends."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    renderer, font = RendererAgg(1, 1, DPI), FontProperties(family=fonts(MONOSPACE), size=size)
    known: dict[str, float] = {}

    def pixels(text: str) -> float:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            return float(renderer.get_text_width_height_descent(text, font, ismath=False)[0])

    frame = pixels("||")

    def width(text: str) -> float:
        if text not in known:
            known[text] = (pixels(f"|{text}|") - frame) * 72 / DPI
        return known[text]

    return width


def lay_out(rows: Sequence[Row], width: Callable[[str], float], widest: float = WIDEST) -> Layout:
    """Return one layout for rows of equal length, so that a position has the same place in each row.

    Lines are cut before words of the last row, or within words that are longer than half a line.
    """
    texts = [[visible(token, kind == "plain") for token, kind in zip(row.tokens, row.kinds, strict=True)] for row in rows]
    widths = [max(map(width, column)) + 2 * PAD for column in zip(*texts, strict=True)]
    last = rows[-1].tokens
    begins = [i == 0 or last[i][:1].isspace() or last[i - 1][-1:].isspace() for i in range(len(last))]
    lines, lefts, start = [], [0.0] * len(widths), 0
    while start < len(widths):
        end, x = start, 0.0
        while end < len(widths) and (end == start or x + widths[end] <= widest):
            x += widths[end]
            end += 1
        if end < len(widths):
            words = [i for i in range(start + 1, end + 1) if begins[i] and sum(widths[start:i]) > widest / 2]
            end = words[-1] if words else end
        for i in range(start, end):
            lefts[i] = sum(widths[start:i])
        lines.append(range(start, end))
        start = end
    return Layout(lines, lefts, widths)


class Page:
    """Page of lines. They are drawn at the end, because the size of the picture depends on them.

    width: width of a text in points, from `measure`.
    """

    def __init__(self, width: Callable[[str], float]):
        self.width = width
        self.right, self.y = NARROWEST, 0.0
        self.drawings: list[Callable[[Axes, Look], object]] = []

    def space(self, height: float = GAP) -> None:
        """Add vertical space."""
        self.y += height

    def heading(self, text: str) -> None:
        """Add a heading."""
        y = self.y
        self.drawings.append(lambda axes, colors: axes.text(0, y + 0.7 * PITCH, text, fontsize=SIZE, color=colors.ink))
        self.y += PITCH

    def line(self, row: Row, layout: Layout, places: range, label: str) -> None:
        """Add one line of a row, with a label to its left."""
        y, base = self.y, self.y + 0.72 * PITCH
        text = {"fontsize": SIZE, "family": fonts(MONOSPACE)}
        if label:
            self.drawings.append(lambda axes, colors: axes.text(0, base, label, fontsize=SMALL, color=colors.dim))
        for place in places:
            token, kind = row.tokens[place], row.kinds[place]
            shown, left, wide = visible(token, kind == "plain"), LABEL + layout.lefts[place], layout.widths[place]
            self.right = max(self.right, left + wide)
            if kind != "plain":
                self.drawings.append(partial(_box, place=(left, y), width=wide, kind=kind))
            word = shown.strip(" ")
            x = left + PAD + self.width(shown[: len(shown) - len(shown.lstrip(" "))])
            if kind == "mask":  # centre the dot in its box
                x = left + (wide - self.width(word)) / 2
            if word:
                self.drawings.append(partial(_word, place=(x, base), word=word, kind=kind, **text))
        self.y += PITCH

    def names(self, names: dict[Kind, str]) -> None:
        """Add a legend of boxes."""
        y, x = self.y, LABEL
        for kind, name in names.items():
            self.drawings.append(partial(_box, place=(x, y), width=PITCH, kind=kind))
            self.drawings.append(
                lambda axes, colors, x=x, name=name: axes.text(
                    x + 1.5 * PITCH, y + 0.72 * PITCH, name, fontsize=SMALL, color=colors.dim
                )
            )
            x += 1.5 * PITCH + self.width(name) + PITCH
        self.right = max(self.right, x)
        self.y += PITCH

    def write(self, path: Path, dark: bool) -> None:
        """Draw all lines and write the picture."""
        with drawing(path, self.right / 72, self.y / 72, dark=dark) as figure:
            axes = figure.add_axes((0, 0, 1, 1))
            axes.axis("off")
            axes.set(xlim=(0, self.right), ylim=(self.y, 0))  # a unit is a point
            for draw in self.drawings:
                draw(axes, look(dark))


def plot_rows(
    path: Path,
    title: str,
    groups: Mapping[str, Sequence[Row]],
    names: dict[Kind, str],
    *,
    together: bool,
    dark: bool = False,
) -> None:
    """Draw groups of rows with headings, and write the picture. Rows of equal length share their columns.

    names: legend of the kinds of boxes. Only kinds that occur are shown.
    together: whether to draw all rows of a line below each other, instead of all lines of a row.
    """
    page, rows = Page(measure(SIZE)), [row for some in groups.values() for row in some]
    equal = len({len(row.tokens) for row in rows}) == 1
    shared = lay_out(rows, page.width) if equal else None
    page.heading(title)
    if together and shared is not None:
        for places in shared.lines:
            for heading, some in groups.items():
                page.space()
                if heading:
                    page.heading(heading)
                for row in some:
                    page.line(row, shared, places, row.label)
            page.space()
    else:
        for heading, some in groups.items():
            if heading:
                page.heading(heading)
            for row in some:
                page.space()
                layout = shared or lay_out([row], page.width)
                for i, places in enumerate(layout.lines or [range(0)]):
                    page.line(row, layout, places, "" if i else row.label)
    page.space()
    kinds = {kind for row in rows for kind in row.kinds}
    page.names({kind: name for kind, name in names.items() if kind in kinds})
    page.write(path, dark)


def _box(axes: "Axes", colors: Look, *, place: tuple[float, float], width: float, kind: Kind) -> None:
    """Draw the box of a token, with a gap to its neighbours."""
    from matplotlib.patches import Rectangle

    left, top = place
    shade = colors.mask if kind == "mask" else colors.changed
    axes.add_patch(Rectangle((left + 0.5, top + 0.5), width - 1, PITCH - 1, facecolor=shade, linewidth=0))


def _word(axes: "Axes", colors: Look, *, place: tuple[float, float], word: str, kind: Kind, **text: Any) -> None:
    axes.text(*place, word, color=colors.dim if kind == "mask" else colors.ink, **text)
