"""The tensors beside a config.json: model.safetensors, several of them with an index, or pytorch_model.bin; memory-mapped."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unnoise.checkpoint.published.folder import INDEX, WEIGHTS, all_tensors
from unnoise.checkpoint.published.pickled import read_pickle

PICKLE = "pytorch_model.bin"


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by their names, or ValueError."""
    if (folder / PICKLE).exists() and not any((folder / name).exists() for name in (WEIGHTS, INDEX)):
        return state_dict(read_pickle(folder / PICKLE), PICKLE)
    return all_tensors(folder)


def state_dict(found: object, what: str) -> dict[str, Tensor]:
    """A dict of tensors by name, or ValueError."""
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{what} holds no tensors by name")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ValueError(f"{what} holds {str(name)[:60]!r}, which is no tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"{what} holds {name[:60]!r}, which stands for more numbers than are stored")
    return dict(found)
