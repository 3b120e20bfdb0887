"""`unnoise generate` with several models: texts of the same seed in columns."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unnoise.cli.base import open_models, printable

if TYPE_CHECKING:
    from unnoise.cli.write import GenerateCommand


def write_side_by_side(command: "GenerateCommand") -> int:
    """Sample from each model, print a column for each, and return the exit code."""
    options = {"--watch": command.watch, "--stream": command.stream, "--replay": command.replay, "--out": command.out}
    given = [name for name, value in options.items() if value] + ["--workers"] * (command.workers != 1)
    if given:
        raise ValueError(f"texts of several models are printed side by side: leave out {given[0]}, or give one --model")
    models = open_models(command.model, command.device)
    for name, model in models.items():  # before any of them samples
        if model.codec.grid:
            raise ValueError(f"only texts are printed side by side, and {name} is a model of images: give it alone")
        model.check_sampler(model.sampling_options(command.options()).resolve(model.method.sampler))
    found = []
    for name, model in models.items():
        command.say_recommended(model, name)
        texts = model.generate(command.num_samples, command.length, **command.options())
        kept = command.follows_distribution(model)
        found.append({"model": name, "method": model.method.name, "texts": texts, "keeps_distribution": kept})
    if command.as_json:
        print(json.dumps({"models": found, "seed": command.seed}, ensure_ascii=False))
    else:
        print_columns([one["model"] for one in found], [one["texts"] for one in found])
    return 0


def print_columns(names: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    """Print texts with a column for each model and a row for each text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, pad_edge=False)
    for name in names:
        table.add_column(Text(name), ratio=1, overflow="fold")
    for row in zip(*texts, strict=True):
        table.add_row(*(Text("\n".join(map(printable, text.split("\n")))) for text in row))
    Console().print(table)
