"""Tensors next to a config.json: safetensors files or pytorch_model.bin, memory-mapped.

Checked access to the tensors of a published file. The files have no checksum, so damage shows only in the values.

The safetensors files of a Hugging Face folder: one file, or several with an index.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unnoise.checkpoint.format import read_tensors
from unnoise.checkpoint.published.pickled import read_pickle
from unnoise.files import read_bytes

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LARGEST_WEIGHT = 1e9  # a flipped exponent bit gives values near 10^38


class Tensors:
    """Tensors by name. Each is taken once, with the shape it must have."""

    def __init__(self, found: Mapping[str, Tensor]):
        self.found = dict(found)

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor; raise ValueError if it is missing or has the wrong shape, a wrong type or values out of range.

        Matrices keep their type and stay memory-mapped. Vectors and float64 tensors become float32.
        """
        if name not in self.found:
            raise ValueError(f"the tensor {name} is missing")
        tensor = self.found.pop(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"the tensor {name} has shape {list(tensor.shape)}, not {list(shape)}")
        if tensor.dtype not in FLOATING:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"the tensor {name} holds {kind} values, not floating-point numbers")
        if tensor.numel():
            low, high = map(float, torch.aminmax(tensor))
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ValueError(f"the tensor {name} holds numbers that are not finite")
            if max(-low, high) > LARGEST_WEIGHT:
                raise ValueError(f"the tensor {name} holds {max(-low, high):.3g}, too large for a weight: it is damaged")
        return tensor.float() if tensor.dim() == 1 or tensor.dtype == torch.float64 else tensor

    def check_all_taken(self, kind: str) -> None:
        """Raise ValueError if tensors are left over, since the file then holds another network."""
        if self.found:
            raise ValueError(f"the tensor {min(self.found)} is unknown to {kind}")


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
