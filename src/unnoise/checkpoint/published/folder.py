"""The safetensors files of a Hugging Face folder: one file, or several with an index."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from unnoise.checkpoint.tensors import read_tensors
from unnoise.files import read_bytes

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 * 2**20


def tensor_paths(folder: Path) -> list[Path]:
    """Return the weight file, or the files that the index lists."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / WEIGHTS).exists():  # reading a pipe may never end
        raise ValueError(f"{WEIGHTS} is not an ordinary file")
    if not (folder / INDEX).exists():
        pickled = " (a pickle, such as pytorch_model.bin, is not opened)" if list(folder.glob("*.bin")) else ""
        raise ValueError(f"{WEIGHTS} is missing{pickled}")
    try:
        files = set(json.loads(read_bytes(folder / INDEX, MAX_INDEX_BYTES, "index"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{INDEX} is damaged ({error})") from error
    for name in files:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise ValueError(f"its file {name} is missing")
    return [folder / name for name in sorted(files)]


def tensor_names(folder: Path) -> set[str]:
    """Return the names of all tensors without loading them."""
    found: set[str] = set()
    for path in tensor_paths(folder):
        try:
            with safe_open(path, "pt") as file:
                found |= set(file.keys())
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path.name}: it is damaged or cut short ({error})") from error
    return found


def load_safetensors(folder: Path) -> dict[str, Tensor]:
    """Load the tensors of all files, memory-mapped."""
    found: dict[str, Tensor] = {}
    for path in tensor_paths(folder):
        try:
            found |= read_tensors(path)[1]
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    return found
