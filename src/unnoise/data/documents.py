"""Data in memory: texts from lists, iterables, 🤗 datasets, JSON lines and tables, and images from .npz files."""

import csv
import importlib.util
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unnoise.data.codec import SAMPLE, Codec, check_end
from unnoise.data.codec_names import AUTO, Pixels, codec as make_codec
from unnoise.data.shard_files import split_documents, split_name
from unnoise.data.texts import LabelledWindows, Segmentation, SequenceData, Sequences, Source, Windows

MAX_LABELS = 100_000
MAX_UNPACKED_BYTES = 2 * 2**30
SEPARATOR = " "  # between texts of one stream, if the codec has no EOS token


@dataclass(frozen=True)
class Documents(Source):
    """Texts of each split and, if they have classes, the class number of each text. label_names: names of the classes."""

    name: str
    documents: dict[str, list[str]]
    labels: dict[str, list[int]] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()

    @staticmethod
    def from_texts(texts: Iterable[Any], labels: Sequence[Any] | None = None, name: str = "texts") -> "Documents":
        """Return a source of strings, or of records with `text` and optionally `label`.

        A mapping (a 🤗 DatasetDict) gives the splits. Otherwise one of every twenty texts is held out for valid, another for
        test.
        """
        if isinstance(texts, Mapping):
            splits = {split_name(str(split)): _records(some, None) for split, some in texts.items()}
            if "train" not in splits:
                raise ValueError(f"data by splits need one named train, found {', '.join(map(str, texts)) or 'none'}")
            if labels is not None:
                raise ValueError("give labels within the records of each split, as `label`")
        else:
            splits = split_documents(_records(texts, labels))
        if not splits["train"]:
            raise ValueError("there are no texts to train on")
        found = [label for records in splits.values() for _, label in records if label is not None]
        if found and len(found) < sum(map(len, splits.values())):
            raise ValueError("some texts have a label and some have none: give one to each, or to none")
        names = _label_names(found)
        return Documents(
            name,
            {split: [text for text, _ in records] for split, records in splits.items()},
            {split: [names.index(str(label)) for _, label in records] for split, records in splits.items()} if found else {},
            tuple(names),
        )

    @property
    def splits(self) -> list[str]:
        return list(self.documents)

    @property
    def train_documents(self) -> list[str]:
        return self.documents["train"]

    def lossless(self, codec: Codec, split: str, segment: Segmentation = "windows") -> bool:
        return codec.read_as(next(iter(self.documents[split]), "")[:SAMPLE]) is None

    def codec(self, name: str, segment: Segmentation = "windows") -> Codec:
        ends = segment == "documents" or (segment == "windows" and len(self.train_documents) > 1)
        return make_codec(name or AUTO, self.train_documents, end=ends)

    def texts(self, codec: Codec, split: str, length: int, segment: Segmentation = "windows") -> SequenceData:
        """Return windows of one stream for each label, or each text by itself. A stream shorter than a window is repeated."""
        self.check_split(split)
        texts, labels = self.documents[split], self.labels.get(split)
        if segment != "windows":
            return self._rows(codec, texts, labels, length, segment == "documents")
        streams = {}
        for label in sorted(set(labels or [0])):
            mine = texts if labels is None else [text for text, own in zip(texts, labels, strict=True) if own == label]
            streams[label] = _stream(codec, mine, length)
        return LabelledWindows(streams) if labels else streams[0]

    def _rows(self, codec: Codec, texts: list[str], labels: list[int] | None, length: int, ends: bool) -> Sequences:
        rows, kept = token_rows(codec, texts, length, ends, self.name)
        chosen = torch.tensor([labels[i] for i in kept]) if labels else None
        return Sequences(*rows, chosen)


def token_rows(
    codec: Codec, texts: Sequence[str], length: int, ends: bool, name: str
) -> tuple[tuple[torch.Tensor, np.ndarray, float], list[int]]:
    """Return the arguments of `Sequences` for the texts with 1 to `length` tokens, and the indices of these texts.

    ends: whether to append the EOS token, which counts as a character.
    name: name of the data, for error messages.
    """
    if ends:
        check_end(codec)
    end = np.array([codec.eos] if ends else [], dtype=np.int64)
    rows = [np.concatenate([tokens, end]) if len(tokens) else tokens for tokens in map(codec.encode, texts)]
    kept = [i for i, row in enumerate(rows) if 0 < len(row) <= length]
    if not kept:
        raise ValueError(f"no text of {name} has 1 to {length} tokens: raise the length, or cut the texts")
    lengths = np.array([len(rows[i]) for i in kept])
    joined = torch.from_numpy(np.concatenate([rows[i] for i in kept]))
    characters = sum(codec.count(texts[i]) + ends for i in kept)
    return (joined, lengths, characters / len(joined)), kept


def _stream(codec: Codec, texts: list[str], length: int) -> Windows:
    if codec.eos is None:
        joined = SEPARATOR.join(texts)
        tokens, characters = codec.encode(joined), codec.count(joined)
    else:
        tokens = np.concatenate([np.append(codec.encode(text), codec.eos) for text in texts])
        characters = sum(map(codec.count, texts)) + len(texts)  # EOS counts as one
    if not len(tokens):
        raise ValueError("the texts are empty: there is nothing to read")
    characters_per_token = characters / len(tokens)
    if len(tokens) < length:
        gap = codec.encode(SEPARATOR) if codec.eos is None else np.zeros(0, dtype=tokens.dtype)
        once = np.concatenate([tokens, gap])
        tokens = np.tile(once, -(-length // len(once)))
    return Windows(torch.from_numpy(tokens), length, characters_per_token)


def _records(texts: Iterable[Any], labels: Sequence[Any] | None) -> list[tuple[str, Any]]:
    """Return (text, label or None) of each text."""
    records = []
    for i, item in enumerate(texts):
        text = item.get("text") if isinstance(item, Mapping) else item
        if not isinstance(text, str):
            what = "a record with `text`" if isinstance(item, Mapping) else "a string"
            raise ValueError(f"each text must be a string, or a record with `text`; number {i + 1} is not {what}")
        records.append((text, item.get("label") if isinstance(item, Mapping) else None))
    if labels is None:
        return records
    if len(labels) != len(records):
        raise ValueError(f"there are {len(records)} texts and {len(labels)} labels: give one for each text")
    return [(text, label) for (text, _), label in zip(records, labels, strict=True)]


def _label_names(labels: list[Any]) -> list[str]:
    """Return the names of the classes: integers in order from 0, anything else alphabetically."""
    if labels and all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in labels):
        if min(labels) < 0:
            raise ValueError(f"labels must be ≥ 0, found {min(labels)}")
        return [str(i) for i in range(int(max(labels)) + 1)]
    return sorted({str(label) for label in labels})


def read_jsonl(text: str, name: str) -> Documents:
    """Return a source of JSON lines with `text` and optionally `label` (a name or a number)."""
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} of {name} is not JSON: {error}") from error
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise ValueError(f"line {number} of {name} must be an object with `text`, and `label` where texts have classes")
        records.append(record)
    return Documents.from_texts(records, name=name)


def rows_as_lines(table: str, name: str) -> str:
    """Return the rows of a table with one column as lines, without its name. name: name of the file."""
    rows = _rows(table, name)
    widest = max(map(len, rows), default=1)
    if widest > 1:
        raise ValueError(f"{name} has {widest} columns: keep the one with the texts, under its name, or give lines of JSON")
    return "\n".join(" ".join(row[0].splitlines()) for row in rows[1:])


def column_texts(table: str, name: str, field: str, joined: Sequence[str] = ()) -> list[str]:
    """Return the texts of the column `field`, or of the columns `joined` with a space between them.

    Case does not matter. If the first row has none of these names, the table has no header, and its last columns are joined.
    """
    rows = _rows(table, name)
    names = [cell.strip().lower() for cell in rows[0]] if rows else []
    if field in names:
        places, rows = [names.index(field)], rows[1:]
    elif joined and set(joined) <= set(names):
        places, rows = [names.index(one) for one in joined], rows[1:]
    elif joined and len(names) > len(joined) and names[0].isdigit():
        places = list(range(len(names) - len(joined), len(names)))
    else:
        wanted = " or ".join([repr(field), *([" and ".join(map(repr, joined))] if joined else [])])
        raise ValueError(f"{name} has no column {wanted}, but {', '.join(names[:9]) or 'none'}")
    short = [number for number, row in enumerate(rows, 1) if len(row) <= max(places)]
    if short:
        raise ValueError(f"row {short[0]} of {name} has {len(rows[short[0] - 1])} columns, too few for its texts")
    return [" ".join(row[place] for place in places) for row in rows]


def _rows(table: str, name: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(table, newline="")) if row]
    except csv.Error as error:
        raise ValueError(f"{name} is not a table: {error}") from error


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

    def codec(self, name: str, segment: Segmentation = "windows") -> Codec:
        if name not in ("auto", Pixels.kind):
            raise ValueError(f"{self.name} holds images: use --codec auto instead of {name!r}")
        return Pixels(next(iter(self.pictures.values())).shape[1:], self.levels)

    def texts(self, codec: Codec, split: str, length: int, segment: Segmentation = "windows") -> SequenceData:
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
            if int(array.min()) < 0 or int(array.max()) >= MAX_LABELS:
                raise ValueError(f"labels must be 0 to {MAX_LABELS - 1}, found {int(array.min())} to {int(array.max())}")
            return array.reshape(-1)
    return None
