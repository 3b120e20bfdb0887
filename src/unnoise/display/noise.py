"""A text on its way into noise, and back: lines in a terminal, and a picture with a cell for each token."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from unnoise.display.plot import shown_token
from unnoise.display.style import look, picture
from unnoise.model.noise import NoisedText

STYLES = {"kept": "", "noised": "bold red", "mask": "dim"}
MARGIN = len("t = 0.00  100 %  ")
COLUMNS = 64  # cells of a row in a picture
NAMES = {"kept": "as it was", "noised": "another token", "mask": "mask"}


def visible(token: str, kept: bool) -> str:
    """A token in one line; a blank that does not belong there can be seen."""
    return " " if token == " " and kept else shown_token(token)


def line(noised: NoisedText, width: int) -> Text:
    """A text at its time, cut by position, so that what stands below each other is the same token."""
    share = 100 * noised.changed / len(noised.tokens)
    text, at = Text(f"t = {noised.t:.2f}  {share:3.0f} %  "), 0
    for token, kind in zip(noised.tokens, noised.kinds, strict=True):
        for character in visible(token, kind == "kept"):
            if at == max(1, width - MARGIN):
                text.append("\n" + " " * MARGIN)
                at = 0
            text.append(character, STYLES[kind])
            at += 1
    return text


def show_path(title: str, forward: Sequence[NoisedText], back_title: str, back: Sequence[NoisedText], console: Console) -> None:
    """The lines of the way into noise, and those of the way back, if there are any."""
    for words, texts in ((title, forward), (back_title, back)):
        if texts:
            console.print(words, style="bold", highlight=False)
            for noised in texts:
                console.print(line(noised, console.width), highlight=False, soft_wrap=True)


def plot_path(path: Path, title: str, forward: Sequence[NoisedText], back: Sequence[NoisedText], *, dark: bool = False) -> None:
    """A grid: a row for each time, a column for each token, its shade says whether it is still the text's own."""
    from matplotlib.patches import Patch, Rectangle

    texts, colors = [*forward, *back], look(dark)
    shades = {"kept": colors.paper, "noised": colors.changed, "mask": colors.mask}
    length = len(texts[0].tokens)
    columns, blocks = min(length, COLUMNS), -(-length // COLUMNS)
    gap = 1.0 if back else 0.0
    height = len(texts) + gap + 0.7  # of a block of columns, in cells
    with picture(path, width=0.17 * (columns + 7) + 0.2, height=0.235 * height * blocks + 0.75, dark=dark) as axes:
        axes.axis("off")
        axes.set(xlim=(-7, columns + 0.1), ylim=(height * blocks + 1.4, -1.6))
        axes.text(-7, -1.1, title, fontsize=9, va="center")
        for block in range(blocks):
            for number, noised in enumerate(texts):
                top = block * height + number + (gap if number >= len(forward) else 0)
                axes.text(-0.6, top + 0.5, f"t = {noised.t:.2f}", fontsize=7, ha="right", va="center")
                some = slice(block * COLUMNS, (block + 1) * COLUMNS)
                for place, (token, kind) in enumerate(zip(noised.tokens[some], noised.kinds[some], strict=True)):
                    axes.add_patch(Rectangle((place, top), 1, 1, facecolor=shades[kind], edgecolor=colors.grid, linewidth=0.4))
                    shown = visible(token, kind == "kept")[:3]
                    size = 7 if len(shown) < 2 else 4
                    axes.text(
                        place + 0.5,
                        top + 0.54,
                        shown,
                        fontsize=size,
                        family="monospace",
                        ha="center",
                        va="center",
                    )
            if back:
                axes.text(-7, block * height + len(forward) + 0.5, "and back", fontsize=7, style="italic", va="center")
        kinds = [kind for kind in shades if any(kind in noised.kinds for noised in texts)]
        patches = [Patch(facecolor=shades[kind], edgecolor=colors.dim, label=NAMES[kind]) for kind in kinds]
        axes.legend(handles=patches, loc="lower left", ncols=3, frameon=False, fontsize=7, borderpad=0)
