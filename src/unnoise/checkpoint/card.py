"""The card of a model, card.md in its folder: what it was trained on, by which command, how good it is, and what it writes.

The first line that is no heading describes the model.
"""

from pathlib import Path

from unnoise.files import read_bytes

CARD = "card.md"
LARGEST_CARD = 2**20  # bytes


def read_card(folder: Path) -> str:
    """The card in a folder, empty where there is none; ValueError if it is no text."""
    path = folder / CARD
    if not path.exists():
        return ""
    try:
        return read_bytes(path, LARGEST_CARD, "card").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 ({error})") from error


def card_lines(card: str) -> list[str]:
    """The lines of a card without headings and empty ones, a row of a table as `name: words`."""
    lines = (line.strip() for line in card.splitlines())
    kept = (line for line in lines if line and not line.startswith("#") and set(line) - set("|-: "))
    return [line.strip("| ").replace(" | ", ": ", 1) if line.startswith("|") else line for line in kept]


def card_description(card: str) -> str:
    """The first of these lines, in which a card says what the model is."""
    return next(iter(card_lines(card)), "")
