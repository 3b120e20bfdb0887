"""Pictures of rows of tokens, cut into lines, with a column for each position."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from unnoise.apps.plots.style import DPI, MONOSPACE, Look, drawing, fonts, look
from unnoise.cli.command_base import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Positions of each line, and the left edges and widths of all columns in points."""

    lines: list[range]
    lefts: list[float]
    widths: list[float]


def measure(size: float) -> Callable[[str], float]:
    """Return a function that measures the width of a text in points, in the monospaced font, including spaces at its ends."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    renderer, font = RendererAgg(1, 1, DPI), FontProperties(family=fonts(MONOSPACE), size=size)

    def pixels(text: str) -> float:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            return float(renderer.get_text_width_height_descent(text, font, ismath=False)[0])

    frame = pixels("||")
    return cache(lambda text: (pixels(f"|{text}|") - frame) * 72 / DPI)


def lay_out(rows: Sequence[Row], width: Callable[[str], float]) -> Layout:
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
        while end < len(widths) and (end == start or x + widths[end] <= WIDEST):
            x += widths[end]
            end += 1
        if end < len(widths):
            words = [i for i in range(start + 1, end + 1) if begins[i] and sum(widths[start:i]) > WIDEST / 2]
            end = words[-1] if words else end
        for i in range(start, end):
            lefts[i] = sum(widths[start:i])
        lines.append(range(start, end))
        start = end
    return Layout(lines, lefts, widths)


class Page:
    """Lines of tokens, drawn into a figure whose size follows from them. A unit of its axes is a point."""

    def __init__(self, figure: "Figure", colors: Look):
        self.figure, self.colors, self.width = figure, colors, measure(SIZE)
        self.right, self.y = NARROWEST, 0.0
        self.axes = figure.add_axes((0, 0, 1, 1))
        self.axes.axis("off")

    def text(self, x: float, text: str, size: float = SMALL, **style: Any) -> None:
        """Draw text on the current line."""
        self.axes.text(x, self.y + 0.72 * PITCH, text, **{"fontsize": size, "color": self.colors.dim} | style)

    def box(self, left: float, width: float, kind: Kind) -> None:
        """Draw the box of a token, with a gap to its neighbours."""
        from matplotlib.patches import Rectangle

        shade = self.colors.mask if kind == "mask" else self.colors.changed
        self.axes.add_patch(Rectangle((left + 0.5, self.y + 0.5), width - 1, PITCH - 1, facecolor=shade, linewidth=0))

    def heading(self, text: str) -> None:
        """Add a heading, unless it is empty."""
        if text:
            self.text(0, text, SIZE, color=self.colors.ink)
            self.y += PITCH

    def line(self, row: Row, layout: Layout, places: range, label: str) -> None:
        """Add one line of a row, with a label to its left."""
        if label:
            self.text(0, label)
        for place in places:
            kind, left, wide = row.kinds[place], LABEL + layout.lefts[place], layout.widths[place]
            shown = visible(row.tokens[place], kind == "plain")
            self.right = max(self.right, left + wide)
            if kind != "plain":
                self.box(left, wide, kind)
            word = shown.strip(" ")
            x = left + PAD + self.width(shown[: len(shown) - len(shown.lstrip(" "))])
            if kind == "mask":  # centre the dot in its box
                x = left + (wide - self.width(word)) / 2
            if word:
                color = self.colors.dim if kind == "mask" else self.colors.ink
                self.text(x, word, SIZE, family=fonts(MONOSPACE), color=color)
        self.y += PITCH

    def names(self, names: Mapping[Kind, str]) -> None:
        """Add a legend of boxes."""
        x = LABEL
        for kind, name in names.items():
            self.box(x, PITCH, kind)
            self.text(x + 1.5 * PITCH, name)
            x += 1.5 * PITCH + self.width(name) + PITCH
        self.right = max(self.right, x)
        self.y += PITCH

    def fit(self) -> None:
        """Give the figure the size of its lines."""
        self.figure.set_size_inches(self.right / 72, self.y / 72)
        self.axes.set(xlim=(0, self.right), ylim=(self.y, 0))


def plot_rows(
    path: Path,
    title: str,
    groups: Mapping[str, Sequence[Row]],
    names: Mapping[Kind, str],
    *,
    together: bool,
    dark: bool = False,
) -> None:
    """Draw groups of rows with headings, and write the picture. Rows of equal length share their columns.

    names: legend of the kinds of boxes. Only kinds that occur are shown.
    together: whether to draw all rows of a line below each other, instead of all lines of a row.
    """
    rows = [row for some in groups.values() for row in some]
    equal = len({len(row.tokens) for row in rows}) == 1
    with drawing(path, 1, 1, dark=dark) as figure:
        page = Page(figure, look(dark))
        shared = lay_out(rows, page.width) if equal else None
        page.heading(title)
        if together and shared is not None:
            for places in shared.lines:
                for heading, some in groups.items():
                    page.y += GAP
                    page.heading(heading)
                    for row in some:
                        page.line(row, shared, places, row.label)
                page.y += GAP
        else:
            for heading, some in groups.items():
                page.heading(heading)
                for row in some:
                    page.y += GAP
                    layout = shared or lay_out([row], page.width)
                    for i, places in enumerate(layout.lines or [range(0)]):
                        page.line(row, layout, places, "" if i else row.label)
        page.y += GAP
        kinds = {kind for row in rows for kind in row.kinds}
        page.names({kind: name for kind, name in names.items() if kind in kinds})
        page.fit()
