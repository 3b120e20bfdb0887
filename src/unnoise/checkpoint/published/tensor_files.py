"""The tensors beside a config.json: model.safetensors, several of them with an index, or pytorch_model.bin; memory-mapped."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unnoise.checkpoint.published.pickled import read_pickle
from unnoise.checkpoint.tensors import read_tensors
from unnoise.files import read_bytes

SAFETENSORS, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
LARGEST_INDEX = 64 * 2**20  # bytes


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by their names, or ValueError."""
    if (folder / SAFETENSORS).exists():
        return _safetensors(folder / SAFETENSORS)
    if (folder / INDEX).exists():
        return _sharded(folder)
    if (folder / PICKLE).exists():
        return state_dict(read_pickle(folder / PICKLE), PICKLE)
    raise ValueError(f"{SAFETENSORS} is missing")


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return read_tensors(path)[1]
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _sharded(folder: Path) -> dict[str, Tensor]:
    try:
        files = set(json.loads(read_bytes(folder / INDEX, LARGEST_INDEX, "index"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{INDEX} is damaged ({error})") from error
    found: dict[str, Tensor] = {}
    for name in sorted(files, key=str):
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).exists():
            raise ValueError(f"its file {name} is missing")
        found |= _safetensors(folder / name)
    return found


def state_dict(found: object, what: str) -> dict[str, Tensor]:
    """A dict of tensors by name, or ValueError."""
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{what} holds no tensors by name")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ValueError(f"{what} holds {str(name)[:60]!r}, which is no tensor")
    return dict(found)
