"""Bits per character over a split of a data set."""

import math
from typing import Any

from unnoise.data.codec import check_end
from unnoise.data.source import Source
from unnoise.data.texts import Cut
from unnoise.model.model import Model


def evaluate_split(
    model: Model,
    source: Source,
    split: str,
    *,
    windows: int | None = None,
    samples: int = 16,
    seed: int = 0,
    error: float = 0.0,
    cut: Cut | None = None,
) -> dict[str, Any]:
    """Measure bits per character over a split, with standard errors and a description of the measurement.

    windows: largest number of windows, evenly spaced; by default all.
    samples: largest number of draws of the bound for each window.
    error: standard error to aim for; 0 takes all draws.
    cut: how the data are cut into sequences, by default as in training.
    """
    cut = cut or model.cut
    texts = model.texts(source, split, cut)
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
        "lossless": source.lossless(model.codec, split, cut),
        "split": split,
        "windows": found.windows,
        "method": model.method.name,
        "nats": found.bits * math.log(2) * texts.characters * int((x >= 0).sum()),
        "tokens": int((x >= 0).sum()),
    }


def checked_cut(model: Model, cut: Cut | None) -> Cut:
    """Return how data are cut for a model, by default as in training. Raise ValueError if the model cannot read them so."""
    if cut is None:
        return model.cut
    if model.process.variable_length:
        raise ValueError(f"{model.method.name} reads texts of any length: leave out --texts")
    if cut == "whole":
        check_end(model.codec)
    return cut


LOSSY = "the codec changes the text, because it lacks some letters or words: these are bits of the changed text"


def kind_of_piece(model: Model, cut: Cut | None = None) -> str:
    """Return the name of the sequences that a model is measured on: images, sentences, whole texts or windows."""
    return "images" if model.codec.grid else {"whole": "whole texts"}.get(cut or model.cut, cut or model.cut)


def bound_kind(model: Model) -> str:
    """Return whether the likelihood of a model is exact or an upper bound."""
    return "exact" if model.method.exact else "upper bound"
