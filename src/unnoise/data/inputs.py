"""Input files of `prepare`: their order and their splits."""

import bisect
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from unnoise.data.formats import PACKED, Input, Kind, extra, num_bytes
from unnoise.data.shard_files import SPLITS, is_prepared, split_name

HUB = "hf:"
SUFFIXES = (".txt", ".md", ".jsonl", ".ndjson", ".parquet", ".arrow")  # files of a folder to read


def find_inputs(sources: Sequence[str], field: str = "text", lines: bool = False) -> list[Input]:
    """Return the files of the sources, in a fixed order.

    A source is a file; a folder with files or subfolders train, valid and test; a folder of files; a 🤗 dataset saved by
    save_to_disk, or hf:NAME for a dataset that `datasets` finds. split=SOURCE puts a whole source into one split.
    """
    found = [one for source in sources for one in _expand(source, lines)]
    if not found:
        raise ValueError("give the data to prepare: text files, .jsonl or Parquet files, a folder of them, or a 🤗 dataset")
    return [replace(one, field=field) for one in found]


def _expand(source: str, lines: bool) -> list[Input]:
    split, equals, rest = source.partition("=")
    if equals and split_name(split) in SPLITS:
        return [replace(one, split=split_name(split)) for one in _expand(rest, lines)]
    if source.startswith(HUB):
        return _hub(source.removeprefix(HUB))
    path = Path(source)
    if path.is_dir():
        return _folder(path, lines)
    if path.is_file():
        return [Input(path, _kind(path, lines))]
    raise ValueError(f"there is no file or folder {source!r} to prepare")


def _kind(path: Path, lines: bool) -> Kind:
    suffix = next((suffix for suffix in reversed(path.suffixes) if suffix not in PACKED), "")
    kinds: dict[str, Kind] = {
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".json": "jsonl",
        ".parquet": "parquet",
        ".arrow": "arrow",
    }
    return kinds.get(suffix, "lines" if lines else "text")


def _folder(folder: Path, lines: bool) -> list[Input]:
    if is_prepared(folder):
        raise ValueError(f"{folder} is prepared already: give it to --data")
    if (folder / "dataset_dict.json").exists():
        names = _json(folder / "dataset_dict.json").get("splits", [])
        return _by_split(str(folder), {name: _saved(folder / name) for name in names})
    if (folder / "state.json").exists():
        return _saved(folder)
    named: dict[str, list[Input]] = {}
    for path in sorted(folder.iterdir()):
        split = split_name(path.name if path.is_dir() else re.split(r"[.-]", path.name)[0])
        if split in SPLITS:
            files = list(_files(path)) if path.is_dir() else [path]
            named.setdefault(split, []).extend(Input(file, _kind(file, lines), one_line=True) for file in files)
    if "train" in named:
        return _by_split(str(folder), named)
    found = [Input(path, _kind(path, lines)) for path in _files(folder)]
    if not found:
        raise ValueError(f"the folder {folder} has neither train, valid and test nor files {', '.join(SUFFIXES)}")
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield all supported files below a folder, in order, without hidden ones."""
    for path in sorted(folder.rglob("*")):
        suffix = next((suffix for suffix in reversed(path.suffixes) if suffix not in PACKED), "")
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file() and (suffix in SUFFIXES or path.suffix in PACKED):
            yield path


def _by_split(name: str, found: dict[str, list[Input]]) -> list[Input]:
    """Return the files of each split. If there is only train, they are split later."""
    known = {split: [one for key, some in found.items() if split_name(key) == split for one in some] for split in SPLITS}
    if not known["train"]:
        raise ValueError(f"{name} has no train split, but {', '.join(found) or 'none'}")
    held_out = known["valid"] or known["test"]
    return [replace(one, split=split if held_out else None) for split, some in known.items() for one in some]


def _saved(folder: Path) -> list[Input]:
    """Return the files of a 🤗 dataset saved by save_to_disk."""
    try:
        names = [str(file["filename"]) for file in _json(folder / "state.json")["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'state.json'} does not list the files of a data set ({error})") from error
    return [Input(folder / Path(name).name, "arrow") for name in names]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def _hub(name: str) -> list[Input]:
    """Fetch a data set by its name, or name:CONFIGURATION, with `datasets`, and return its files."""
    datasets = extra("datasets", f"the data set {name}")
    path, _, configuration = name.partition(":")
    try:
        found = datasets.load_dataset(path, configuration or None)
    except Exception as error:  # unknown name, no network, full disk
        raise ValueError(f"datasets cannot load {name!r}: {str(error).partition(chr(10))[0]}") from error
    splits = found if isinstance(found, dict) else {"train": found}
    return _by_split(
        name, {key: [Input(Path(file["filename"]), "arrow") for file in some.cache_files] for key, some in splits.items()}
    )


def divided(inputs: list[Input], valid_share: float, test_share: float) -> list[Input]:
    """Return the inputs. A single text without documents is divided: its last parts are held out."""
    if len(inputs) > 1 or inputs[0].kind != "text" or inputs[0].split is not None:
        return inputs
    (whole,) = inputs
    characters, offsets = [0], [0]
    for piece in whole.pieces():
        assert piece.position is not None
        characters.append(characters[-1] + len(piece.text))
        offsets.append(piece.position)

    def offset(place: int) -> int:
        """Return the byte where a character begins."""
        before = bisect.bisect_right(characters, place) - 1
        text = next(whole.pieces(offsets[before])).text
        return offsets[before] + num_bytes(text[: place - characters[before]])

    valid, test = Fraction(str(valid_share)), Fraction(str(test_share))
    ends = [0, offset(int(characters[-1] * (1 - valid - test))), offset(int(characters[-1] * (1 - test))), offsets[-1]]
    parts = zip(SPLITS, ends[:-1], ends[1:], strict=True)
    return [replace(whole, split=split, start=start, stop=stop) for split, start, stop in parts if stop > start]


def has_documents(inputs: list[Input]) -> bool:
    """Return whether a split has several documents, so that the codec needs an EOS token."""
    splits = [one.split for one in inputs]
    return any(one.kind != "text" or one.split is None for one in inputs) or len(set(splits)) < len(splits)


def digest(inputs: list[Input]) -> str:
    """Return a hash of the names, kinds, splits and sizes of the inputs, in order."""
    listed = [[one.path.name, one.kind, one.split, one.size] for one in inputs]
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=16).hexdigest()
