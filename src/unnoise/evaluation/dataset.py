"""Bits per character over a split of a corpus."""

import math
from typing import Any

from unnoise.data.codec import check_end
from unnoise.data.source import Source
from unnoise.model.model import Model


def evaluate_split(
    model: Model, source: Source, split: str, windows: int | None, samples: int, seed: int, error: float = 0.0
) -> dict[str, Any]:
    """Bits per character over a split, its standard errors, and what they are of."""
    texts = model.texts(source, split)
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
        "lossless": source.lossless(model.codec, split, model.cut),
        "split": split,
        "windows": found.windows,
        "method": model.method.name,
        "nats": found.bits * math.log(2) * texts.characters * int((x >= 0).sum()),
        "tokens": int((x >= 0).sum()),
    }


def read_texts(model: Model, whole: bool) -> None:
    """Let a model read data as whole texts, each with its end, or as windows of a stream; ValueError if it cannot."""
    if model.process.variable_length:
        raise ValueError(f"{model.method.name} reads texts of any length as they are: leave --texts out")
    if whole:
        check_end(model.codec)
    model.whole_texts = whole


LOSSY = "the codec changes the text (letters or words that it lacks): these are bits of the text as it reads it"


def kind_of_piece(model: Model) -> str:
    """Return the name of the pieces that a model measures data in: images, sentences, whole texts or windows."""
    if model.codec.grid:
        return "images"
    return "sentences" if model.process.variable_length else "whole texts" if model.whole_texts else "windows"


def figure_kind(model: Model) -> str:
    """What a figure of this model is."""
    return "exact" if model.method.exact else "upper bound"
