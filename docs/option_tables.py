"""Write the tables of options into the pages, from the dataclasses that declare the options: python docs/option_tables.py"""

import re
from pathlib import Path

from unnoise.cli.help import option_table
from unnoise.model.sampling_options import SamplingOptions
from unnoise.training.training_options import TrainingOptions

PAGES = {"training.md": TrainingOptions, "samplers.md": SamplingOptions}
TABLE = re.compile(r"\| option \| default \| meaning \|\n(\|.*\n)*")


def with_table(page: str, options: type) -> str:
    """Return a page with its table of options replaced by the one of a dataclass."""
    return TABLE.sub(lambda _: option_table(options) + "\n", page, count=1)


if __name__ == "__main__":
    for name, options in PAGES.items():
        path = Path(__file__).parent / name
        path.write_text(with_table(path.read_text(encoding="utf-8"), options), encoding="utf-8")
