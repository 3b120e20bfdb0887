"""Write the tables of options into the pages, from the dataclasses that declare the options: python docs/option_tables.py"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from unnoise.cli.help import field_docstrings
from unnoise.model.sampling_options import SamplingOptions
from unnoise.training.training_options import TrainingOptions

PAGES = {"training.md": TrainingOptions, "samplers.md": SamplingOptions}
TABLE = re.compile(r"\| option \| default \| meaning \|\n(\|.*\n)*")


def option_table(options: type[Any]) -> str:
    """Return the options of a dataclass as a table in Markdown: name, default and help."""
    described = field_docstrings(options)
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for one in fields(options):
        default = "–" if one.default in (None, "") else f"`{one.default}`"
        meaning = re.sub(r"(?<![\w`-])(--?[a-z][\w-]*)", r"`\1`", described[one.name]).replace("|", r"\|")
        lines.append(f"| `{one.name}` | {default} | {meaning} |")
    return "\n".join(lines)


def with_table(page: str, options: type) -> str:
    """Return a page with its table of options replaced by the one of a dataclass."""
    return TABLE.sub(lambda _: option_table(options) + "\n", page, count=1)


if __name__ == "__main__":
    for name, options in PAGES.items():
        path = Path(__file__).parent / name
        path.write_text(with_table(path.read_text(encoding="utf-8"), options), encoding="utf-8")
