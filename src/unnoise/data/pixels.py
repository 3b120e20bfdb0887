"""Images as tokens: each pixel's channel is one token, its level."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.codec import BLANK, Codec, Tokens


class Pixels(Codec):
    """uint8 images of one shape ↔ tokens [H·W·C] with `levels` values; exact when levels = 256, nearest level otherwise."""

    kind = "pixels"
    unit = "dimension"

    def __init__(self, shape: Sequence[int], levels: int = 256):
        if not 2 <= levels <= 256:
            raise ValueError(f"pixels have 2 to 256 levels, found {levels}")
        self.shape, self.levels = tuple(int(n) for n in shape), levels
        self.vocab = levels
        self.length = math.prod(self.shape)
        self.grid = self.shape[0], self.length // self.shape[0]
        self.channels = math.prod(self.shape[2:])

    def encode_image(self, image: np.ndarray) -> Tokens:
        """[H, W] or [H, W, C] uint8 → [n]."""
        if tuple(image.shape) != self.shape or image.dtype != np.uint8:
            raise ValueError(f"expected a uint8 image of shape {list(self.shape)}, found {image.dtype} {list(image.shape)}")
        return np.rint(image.reshape(-1) * ((self.levels - 1) / 255)).astype(np.int64)

    def decode_image(self, tokens: Sequence[int] | Tokens) -> np.ndarray:
        """[n] → uint8 image."""
        return np.rint(np.asarray(tokens) * (255 / (self.levels - 1))).astype(np.uint8).reshape(self.shape)

    def encode(self, text: str, strict: bool = False) -> Tokens:
        raise ValueError("this is a model of images: it has no text to read")

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return " ".join(str(int(token)) for token in tokens)

    def show(self, token: int) -> str:
        return " ░▒▓█"[round(4 * token / (self.levels - 1))]

    def show_states(self, states: Sequence[int]) -> list[str]:
        """As a picture of characters: a pixel is as wide as it is high, and each row ends its line."""
        wide = 2 if self.channels == 1 else 1
        shown = [(self.show(state) if state < self.vocab else BLANK) * wide for state in states]
        return [pixel + "\n" * ((i + 1) % self.grid[1] == 0) for i, pixel in enumerate(shown)]

    def config(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "levels": self.levels}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Pixels":
        return Pixels(config["shape"], config["levels"])


def half(shape: Sequence[int], which: str) -> np.ndarray:
    """Where the upper, lower, left or right half of an image is: bool of that shape."""
    known = np.zeros(tuple(shape), dtype=bool)
    rows, columns = shape[0] // 2, shape[1] // 2
    match which:
        case "upper":
            known[:rows] = True
        case "lower":
            known[rows:] = True
        case "left":
            known[:, :columns] = True
        case "right":
            known[:, columns:] = True
        case _:
            raise ValueError(f"a half is upper, lower, left or right, found {which!r}")
    return known
