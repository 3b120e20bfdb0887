"""Image data sets: scikit-learn's digits, or arrays in an .npz file. Image sheets as PNG.

Images as tokens: one token for each channel of each pixel.
"""

import importlib.util
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unnoise.data.codec import BLANK, Codec, Tokens
from unnoise.data.texts import Segmentation, SequenceData, Sequences, Source
from unnoise.files import write_atomically


class Pixels(Codec):
    """Mapping between uint8 images of one shape and tokens [H·W·C] with `levels` values; lossless for 256 levels."""

    kind = "pixels"
    unit = "dimension"

    def __init__(self, shape: Sequence[int], levels: int = 256):
        if not 2 <= levels <= 256:
            raise ValueError(f"pixels must have 2 to 256 levels, found {levels}")
        self.shape, self.levels = tuple(int(n) for n in shape), levels
        self.vocab = levels
        self.length = math.prod(self.shape)
        self.grid = self.shape[0], self.length // self.shape[0]
        self.channels = math.prod(self.shape[2:])

    def encode_image(self, image: np.ndarray) -> Tokens:
        """Return the tokens [n] of a uint8 image [H, W] or [H, W, C]."""
        if tuple(image.shape) != self.shape or image.dtype != np.uint8:
            raise ValueError(f"expected a uint8 image of shape {list(self.shape)}, found {image.dtype} {list(image.shape)}")
        return np.rint(image.reshape(-1) * ((self.levels - 1) / 255)).astype(np.int64)

    def decode_image(self, tokens: Sequence[int] | Tokens) -> np.ndarray:
        """Return the uint8 image of tokens [n]."""
        return np.rint(np.asarray(tokens) * (255 / (self.levels - 1))).astype(np.uint8).reshape(self.shape)

    def encode(self, text: str, strict: bool = False) -> Tokens:
        raise ValueError("this is a model of images, which cannot encode text")

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        return " ".join(str(int(token)) for token in tokens)

    def show(self, token: int) -> str:
        return " ░▒▓█"[round(4 * token / (self.levels - 1))]

    def show_states(self, states: Sequence[int]) -> list[str]:
        """Return a picture of characters with square pixels and one line for each row."""
        wide = 2 if self.channels == 1 else 1
        shown = [(self.show(state) if state < self.vocab else BLANK) * wide for state in states]
        return [pixel + "\n" * ((i + 1) % self.grid[1] == 0) for i, pixel in enumerate(shown)]

    def config(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "levels": self.levels}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "Pixels":
        return Pixels(config["shape"], config["levels"])


def half(shape: Sequence[int], which: str) -> np.ndarray:
    """Return a mask of the upper, lower, left or right half of an image: bool of its shape."""
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
            raise ValueError(f"a half must be upper, lower, left or right, found {which!r}")
    return known


MOST_LABELS = 100_000
MAX_UNPACKED_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Images(Source):
    """uint8 images [N, H, W] or [N, H, W, C] and labels [N] for each split. levels: number of values of a pixel."""

    name: str
    pictures: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    levels: int = 256
    label_names: tuple[str, ...] = ()

    @property
    def splits(self) -> list[str]:
        return list(self.pictures)

    def codec(self, name: str, cut: Segmentation = "windows") -> Codec:
        if name not in ("auto", Pixels.kind):
            raise ValueError(f"{self.name} holds images: use --codec auto instead of {name!r}")
        return Pixels(next(iter(self.pictures.values())).shape[1:], self.levels)

    def texts(self, codec: Codec, split: str, length: int, cut: Segmentation = "windows") -> SequenceData:
        self.check_split(split)
        pictures = self.pictures[split]
        if not isinstance(codec, Pixels) or codec.shape != pictures.shape[1:]:
            raise ValueError(f"this model cannot use images of shape {list(pictures.shape[1:])}, the shape of {self.name}")
        rows = torch.from_numpy(np.stack([codec.encode_image(picture) for picture in pictures]))
        labels = torch.from_numpy(self.labels[split].astype(np.int64)) if self.label_names else None
        return Sequences.from_table(rows, labels)


def digits() -> Images:
    """Load 1,797 handwritten digits of 8 × 8 pixels with 17 levels. A tenth is held out for valid, another for test."""
    if importlib.util.find_spec("sklearn") is None:
        raise ValueError("the digits are in scikit-learn: pip install 'unnoise[images]'")
    from sklearn.datasets import load_digits

    flat, target = (np.asarray(array) for array in load_digits(return_X_y=True))
    pictures = np.rint(flat.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    part = np.arange(len(pictures)) % 10
    chosen = {"train": part < 8, "valid": part == 8, "test": part == 9}
    return Images(
        "digits",
        {split: pictures[rows] for split, rows in chosen.items()},
        {split: target[rows] for split, rows in chosen.items()},
        levels=17,
        label_names=tuple("0123456789"),
    )


def images(path: Path) -> Images:
    """Load images from an .npz file with uint8 arrays train (or x_train) and test, [N, H, W(, C)], and optionally labels.

    Every tenth training image is held out for valid.
    """
    arrays = read_arrays(path)
    pictures = {name: array for name, array in arrays.items() if array.dtype == np.uint8 and array.ndim in (3, 4)}
    train = next((name for name in pictures if "train" in name), None)
    test = next((name for name in pictures if "test" in name), None)
    if train is None or test is None:
        raise ValueError(
            f"{path} needs uint8 arrays of images with train and test in their names, found {', '.join(arrays) or 'nothing'}"
        )
    if len(pictures[train]) < 10 or not len(pictures[test]) or not pictures[train][0].size:
        raise ValueError(f"{path} needs at least ten images to train on and one to test on, none of them empty")
    if pictures[train].shape[1:] != pictures[test].shape[1:]:
        raise ValueError(f"the images in {path} have two shapes, {pictures[train].shape[1:]} and {pictures[test].shape[1:]}")
    held_out = np.arange(len(pictures[train])) % 10 == 9
    labels = {split: _labels(arrays, split, len(pictures[name])) for split, name in (("train", train), ("test", test))}
    known = all(found is not None for found in labels.values())
    both = {split: found if found is not None else np.zeros(0) for split, found in labels.items()}
    return Images(
        path.name,
        {"train": pictures[train][~held_out], "valid": pictures[train][held_out], "test": pictures[test]},
        {"train": both["train"][~held_out], "valid": both["train"][held_out], "test": both["test"]} if known else {},
        label_names=tuple(map(str, range(int(max(both["train"].max(), both["test"].max())) + 1))) if known else (),
    )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Load the arrays of an .npz file. A file that would unpack to more than 2 GiB is refused before it is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_UNPACKED_BYTES:
            raise ValueError(f"it would unpack to {size:,} bytes, more than the limit of {MAX_UNPACKED_BYTES:,}")
        with np.load(path, allow_pickle=False) as found:
            return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def _labels(arrays: dict[str, np.ndarray], split: str, count: int) -> np.ndarray | None:
    for name, array in arrays.items():
        if split in name and array.size == count and np.issubdtype(array.dtype, np.integer):
            if int(array.min()) < 0 or int(array.max()) >= MOST_LABELS:
                raise ValueError(f"labels must be 0 to {MOST_LABELS - 1}, found {int(array.min())} to {int(array.max())}")
            return array.reshape(-1)
    return None


def coloured(pictures: np.ndarray, axes: int) -> np.ndarray:
    """Convert grey pictures, with or without a channel axis of length 1, to RGB. axes: number of axes of the result."""
    last = pictures if pictures.ndim == axes else pictures[..., None]
    return np.repeat(last, 3, -1) if last.shape[-1] == 1 else last


def sheet(pictures: np.ndarray, columns: int, path: Path) -> None:
    """Write images [N, H, W(, C)] as one enlarged PNG with `columns` images per row."""
    if importlib.util.find_spec("PIL") is None:
        raise ValueError("pictures need Pillow: pip install 'unnoise[images]'")
    from PIL import Image

    colour = coloured(pictures, 4)
    n, height, width, _ = colour.shape
    scale = max(1, 48 // height)
    rows = -(-n // columns)
    page = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, 3), 128, dtype=np.uint8)
    for i, picture in enumerate(colour):
        top, left = (i // columns) * (height + 1) + 1, (i % columns) * (width + 1) + 1
        page[top : top + height, left : left + width] = picture
    large = np.repeat(np.repeat(page, scale, 0), scale, 1)
    content = BytesIO()
    Image.fromarray(large).save(content, format="PNG")
    write_atomically(path, content.getvalue())
