"""Bits per character over a split of a corpus."""

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
    windows: int | None,
    samples: int,
    seed: int,
    *,
    error: float = 0.0,
    cut: Cut | None = None,
) -> dict[str, Any]:
    """Return bits per character over a split, the standard errors, and what was measured.

    cut: how the corpus is cut into sequences (default: as the model reads it).
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
    """Return how a corpus is cut for a model, its own way by default, or raise ValueError if the model cannot read it so."""
    if cut is None:
        return model.cut
    if model.process.variable_length:
        raise ValueError(f"{model.method.name} reads texts of any length as they are: leave --texts out")
    if cut == "whole":
        check_end(model.codec)
    return cut


LOSSY = "the codec changes the text (letters or words that it lacks): these are bits of the text as it reads it"


def kind_of_piece(model: Model, cut: Cut | None = None) -> str:
    """Return the name of the sequences that a model is measured on: images, sentences, whole texts or windows."""
    return "images" if model.codec.grid else {"whole": "whole texts"}.get(cut or model.cut, cut or model.cut)


def figure_kind(model: Model) -> str:
    """What a figure of this model is."""
    return "exact" if model.method.exact else "upper bound"
