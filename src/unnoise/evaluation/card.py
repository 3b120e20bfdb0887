"""Model cards: description, training data and commands, held-out bits, and unselected samples.

The facts about the data are given by the author. Everything else is measured or taken from the model.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unnoise.data.source import Source
from unnoise.evaluation.dataset import bound_kind, evaluate_split
from unnoise.model.card import known_rows, table
from unnoise.model.model import Model

SAMPLES = 6
WIDTH = 100  # characters in a line of the samples
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class CardFacts:
    """Facts about a model that its author provides.

    name: name of the model.
    description: its purpose in one line.
    data: training data and its source.
    licence: licence of the data.
    commands: commands that created the model, in order.
    """

    name: str
    description: str
    data: str
    licence: str
    commands: Sequence[str] = ()


def model_card(
    model: Model,
    facts: CardFacts,
    source: Source,
    *,
    split: str = "test",
    windows: int | None = 500,
    draws: int = 16,
    seed: int = 0,
) -> str:
    """Return the card in Markdown, with bits over windows of a split and six unselected samples of one seed."""
    found = evaluate_split(model, source, split, windows=windows, samples=draws, seed=seed, error=0.005)
    drawn = "" if model.method.exact else f", ± {found['stderr']:.3f} over draws"
    spread = "" if found["text_stderr"] is None else f" ± {found['text_stderr']:.3f}"
    unit = "images" if model.codec.grid else "texts" if model.whole_texts or model.process.variable_length else "windows"
    known = known_rows(model)
    rows = {
        **{name: known[name] for name in ("method", "network", "codec")},
        "data": facts.data,
        "licence of the data": facts.licence,
        "training": f"{known['training']}{_stage(facts.commands)}",
        f"held-out bits per {model.codec.unit}": f"{found['bits_per_char']:.3f}{spread} over {found['windows']} {unit} of the "
        f"{split} part ({bound_kind(model)}{drawn})",
        "recommended sampling": known["recommended sampling"],
    }
    parts = [
        f"# {facts.name}",
        facts.description,
        table(rows),
    ]
    if facts.commands:
        parts += ["## Made by", _indented("\n".join(facts.commands))]
    command = f"unnoise generate --model {facts.name} --num-samples {SAMPLES} --seed {seed}"
    parts += ["## Unselected samples", _indented(command), _samples(model, seed)]
    return "\n\n".join(parts) + "\n"


def _stage(commands: Sequence[str]) -> str:
    """Return a note if the training steps are those of the last of several stages."""
    trainings = sum(command.startswith("unnoise train") for command in commands)
    return f", the last of {trainings} stages" if trainings > 1 else ""


def _samples(model: Model, seed: int) -> str:
    """Return samples: texts as indented blocks, images side by side in shades of grey."""
    if model.codec.grid:
        return _indented(shaded(model.draw(SAMPLES, seed=seed)))
    texts = [text.encode("utf-8", "replace").decode() for text in model.generate(SAMPLES, seed=seed)]
    return "\n\n".join(_indented(f"{i}  {_wrapped(text)}") for i, text in enumerate(texts, 1))


def _wrapped(text: str) -> str:
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH, break_on_hyphens=False) or [""]]
    return "\n   ".join("".join(c if c.isprintable() else "�" for c in line) for line in lines)


def shaded(images: np.ndarray) -> str:
    """Draw images [n, H, W(, C)] uint8 side by side, each pixel as two characters."""
    grey = images if images.ndim == 3 else images.mean(-1)
    levels = (grey.astype(np.float64) * (len(SHADES) - 1) / 255).round().astype(int)
    rows = ("  ".join("".join(2 * SHADES[level] for level in image[y]) for image in levels) for y in range(images.shape[1]))
    return "\n".join(row.rstrip() for row in rows)


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ", lambda line: True)
