"""A command's last screen as a picture: what it wrote into a terminal of 100 columns, colours and all.

    pip install pyte pillow
    python benchmarks/terminal_picture.py demo.png --from "A story" --to "Training" -- unnoise demo --out runs/demo

Runs the command on a pseudo-terminal that is high enough for all of its output, and draws the lines from one with the first
words to the line before one with the second. Needs a monospaced font (`--font`).
"""

import argparse
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pyte  # pyright: ignore[reportMissingImports]
from PIL import Image, ImageDraw, ImageFont

COLUMNS, ROWS = 100, 600
SIZE = 15  # of the letters, in pixels
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
COLOURS = {"default": "#d8d8d8", "green": "#7ec97e", "red": "#e07a7a", "blue": "#7aa7e0", "cyan": "#7ad0d0", "brown": "#d8c27a"}
BACKGROUND = "#16181d"
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def screen_of(command: list[str]) -> Any:
    """The screen after a command has ended."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if not pid:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execvp(command[0], command)
    while True:
        try:
            content = os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
        if not content:
            break
        stream.feed(content)
    os.waitpid(pid, 0)
    return screen


def draw(screen: Any, rows: range, path: Path, font_path: str) -> None:
    """Some rows of a screen as a PNG."""
    font = ImageFont.truetype(font_path, SIZE)
    width, height = round(font.getlength("m")), SIZE + 5
    picture = Image.new("RGB", (COLUMNS * width + 24, len(rows) * height + 24), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    for line, row in enumerate(rows):
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            x, y = 12 + column * width, 12 + line * height
            colour = COLOURS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else COLOURS["default"])
            if "\u2800" <= cell.data <= "\u28ff":
                for i, dots in enumerate(BRAILLE):
                    for j, dot in enumerate(dots):
                        if (ord(cell.data) - 0x2800) & dot:
                            a, b = x + width * (2 * j + 1) / 4, y + height * (2 * i + 1) / 8
                            pen.ellipse((a - 1.3, b - 1.3, a + 1.3, b + 1.3), fill=colour)
            elif cell.data.strip():
                pen.text((x, y), cell.data, font=font, fill=colour)
    picture.save(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("picture", type=Path)
    parser.add_argument("--from", dest="first", default="")
    parser.add_argument("--to", dest="last", default="")
    parser.add_argument("--font", default=FONT)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    screen = screen_of(options.command)
    text = [line.rstrip() for line in screen.display]
    first = next((i for i, line in enumerate(text) if options.first and options.first in line), 0)
    after = (i for i, line in enumerate(text) if i > first and options.last and options.last in line)
    last = next(after, max((i + 1 for i, line in enumerate(text) if line), default=1))
    print("\n".join(text[: max((i + 1 for i, line in enumerate(text) if line), default=1)]))
    if last <= first:
        sys.exit("there is nothing between these lines")
    draw(screen, range(first, last), options.picture, options.font)
