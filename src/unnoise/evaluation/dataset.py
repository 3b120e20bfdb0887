"""Bits per character over a split of a corpus."""

import math
from typing import Any

from unnoise.data.source import Source
from unnoise.model.model import Model


def evaluate_split(model: Model, source: Source, split: str, windows: int | None, samples: int, seed: int) -> dict[str, Any]:
    """Bits per character over a split, its standard error, and what they are of."""
    texts = source.texts(model.codec, split, model.length, model.process.variable_length)
    x = texts.windows(windows)
    bits, error = model.bits_per_char(texts, windows, samples, seed)
    return {
        "bits_per_char": bits,
        "stderr": error,
        "exact": model.method.exact,
        "split": split,
        "windows": len(x),
        "method": model.method.name,
        "nats": bits * math.log(2) * texts.characters * int((x >= 0).sum()),
    }


def figure_kind(model: Model) -> str:
    """What a figure of this model is."""
    return "exact" if model.method.exact else "upper bound"
