"""Noised and denoised texts: lines in a terminal, and a picture with a column for each token."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from unnoise.display.tokens import Kind, Row, plot_rows, visible
from unnoise.model.noise import NoisedText

STYLES = {"kept": "", "noised": "bold red", "mask": "dim"}
MARGIN = len("t = 0.00  100 %  ")
KINDS: dict[str, Kind] = {"kept": "plain", "noised": "changed", "mask": "mask"}
NAMES: dict[Kind, str] = {"mask": "mask", "changed": "replaced token"}


def line(noised: NoisedText, width: int) -> Text:
    """Return a noised text with its time, cut into lines by position, so that tokens stay in their columns."""
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
    """Print the noised texts, then the denoised texts, if there are any."""
    for words, texts in ((title, forward), (back_title, back)):
        if texts:
            console.print(words, style="bold", highlight=False)
            for noised in texts:
                console.print(line(noised, console.width), highlight=False, soft_wrap=True)


def plot_path(path: Path, title: str, forward: Sequence[NoisedText], back: Sequence[NoisedText], *, dark: bool = False) -> None:
    """Draw the noised texts, and the denoised texts if there are any: a row for each time, a column for each token."""
    groups = {"": [_row(one) for one in forward]} | ({"and back": [_row(one) for one in back]} if back else {})
    plot_rows(path, title, groups, NAMES, together=True, dark=dark)


def _row(noised: NoisedText) -> Row:
    return Row(f"t = {noised.t:.2f}", noised.tokens, [KINDS[kind] for kind in noised.kinds])
