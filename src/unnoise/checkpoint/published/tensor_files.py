"""Tensors next to a config.json: safetensors files or pytorch_model.bin, memory-mapped."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unnoise.checkpoint.published.folder import INDEX, WEIGHTS, load_safetensors
from unnoise.checkpoint.published.pickled import read_pickle

PICKLE = "pytorch_model.bin"


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    """Load all tensors of a folder, from safetensors files if there are any and from pytorch_model.bin otherwise."""
    if (folder / PICKLE).exists() and not any((folder / name).exists() for name in (WEIGHTS, INDEX)):
        return check_state_dict(read_pickle(folder / PICKLE), PICKLE)
    return load_safetensors(folder)


def check_state_dict(found: object, what: str) -> dict[str, Tensor]:
    """Return the object as a dictionary of tensors; raise ValueError if it is anything else.

    what: name of the object, for error messages.
    """
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{what} holds no tensors by name")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ValueError(f"the entry {str(name)[:60]!r} of {what} is not a tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"the tensor {name[:60]!r} of {what} has more elements than are stored")
    return dict(found)
