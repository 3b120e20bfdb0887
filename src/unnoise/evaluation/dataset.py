"""Bits per character over a split of a data set, names of tokenizers in results, and model cards.

Perplexities are comparable only for the same tokens. A card has a description, the training data and commands, the held-out
bits and unselected samples. Its author gives the facts about the data; everything else is measured or taken from the model.
"""

import hashlib
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnoise.data import Codec, codec_kind
from unnoise.data.codec import check_end
from unnoise.data.texts import Segmentation, Source
from unnoise.model.model import Model
from unnoise.model.push import known_rows, table
from unnoise.published_tables import GPT2, GPT2_TOKENS

LOSSY = "the codec changes the text, because it lacks some letters or words: these are bits of the changed text"
UNUSED_ROWS = 64  # maximum number of extra tokens, for a mask, padding or a round number
HELLO_WORLD = [15496, 995]  # "Hello world" in GPT-2's tokens
SAMPLES = 6
WIDTH = 100  # characters in a line of the samples
SHADES = " ░▒▓█"


def evaluate_split(
    model: Model,
    source: Source,
    split: str,
    *,
    windows: int | None = None,
    samples: int = 16,
    seed: int = 0,
    error: float = 0.0,
    segment: Segmentation | None = None,
) -> dict[str, Any]:
    """Measure bits per character over a split, with standard errors and a description of the measurement.

    windows: maximum number of windows, evenly spaced; by default all.
    samples: maximum number of draws of the bound for each window.
    error: standard error to aim for; 0 takes all draws.
    segment: how the data are divided into sequences, by default as in training.
    """
    segment = segment or model.segment
    texts = model.texts(source, split, segment)
    x = texts.windows(windows)
    found = model.bits_per_char(texts, windows, samples, seed, error)
    return {
        "bits_per_char": found.bits,
        "stderr": found.stderr,
        "text_stderr": found.text_stderr,
        "interval": found.interval,
        "reached": found.reached,
        "draws": found.draws,
        "exact": model.method.exact,
        "lossless": source.lossless(model.codec, split, segment),
        "split": split,
        "windows": found.windows,
        "method": model.method.name,
        "nats": found.bits * math.log(2) * texts.characters * int((x >= 0).sum()),
        "tokens": int((x >= 0).sum()),
    }


def check_segment(model: Model, segment: Segmentation | None) -> Segmentation:
    """Return the segmentation of data for a model, by default as in training, or raise ValueError if it does not fit."""
    if segment is None:
        return model.segment
    if model.process.variable_length:
        raise ValueError(f"{model.method.name} reads texts of any length: leave out --segment")
    if segment == "documents":
        check_end(model.codec)
    return segment


def kind_of_piece(model: Model, segment: Segmentation | None = None) -> str:
    """Return the name of the sequences that a model is measured on: images, sentences, whole texts or windows."""
    segment = segment or model.segment
    return "images" if model.codec.grid else "whole texts" if segment == "documents" else segment


def bound_kind(model: Model) -> str:
    """Return whether the likelihood of a model is exact or an upper bound."""
    return "exact" if model.method.exact else "upper bound"


@dataclass(frozen=True)
class Tokenizer:
    """Description of a model's tokens.

    name: the kind of codec, or "GPT-2" for its tokens.
    vocab: number of tokens.
    key: hash of the tokens.
    """

    name: str
    vocab: int
    key: str

    @staticmethod
    def of(codec: Codec) -> "Tokenizer":
        """Return the name of a codec's tokens."""
        if is_gpt2(codec):
            return Tokenizer(GPT2, GPT2_TOKENS, GPT2)
        return Tokenizer(codec_kind(codec), codec.vocab, hashlib.sha1(codec.identity().encode()).hexdigest()[:8])


def is_gpt2(codec: Codec) -> bool:
    """Return whether a codec has GPT-2's tokens, judged by their number and by two of them."""
    if not GPT2_TOKENS <= codec.vocab <= GPT2_TOKENS + UNUSED_ROWS or codec.unit != "character":
        return False
    return codec.encode("Hello world").tolist() == HELLO_WORLD


@dataclass(frozen=True)
class CardFacts:
    """Facts about a model that its author provides.

    name: name of the model.
    description: its purpose in one line.
    data: training data and its source.
    license: license of the data.
    commands: commands that created the model, in order.
    """

    name: str
    description: str
    data: str
    license: str
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
        "license of the data": facts.license,
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
