"""Tensors of published models: safetensors files with or without an index, and files of torch.save, read without running code.

A pickle can name any function to call. torch.load(weights_only=True) calls only functions that create tensors. Other objects in
Lightning's checkpoints (omegaconf's configurations, tokenizers) become inert `StandIn`s. A file that names anything else is
refused with that name. The files have no checksum, so damage shows only in the values, which `Tensors` checks.
"""

import contextlib
import json
import math
import pickle
import pickletools
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unnoise.checkpoint.format import read_tensors
from unnoise.files import read_bytes

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LARGEST_WEIGHT = 1e9  # a flipped exponent bit gives values near 10^38
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
MAX_INDEX_BYTES = 64 * 2**20
PLAIN = ("typing.Any", *(f"builtins.{name}" for name in ("bool", "bytes", "dict", "float", "int", "list", "str", "tuple")))
PACKAGES = ("omegaconf.", "transformers.", "tokenizers.", "lightning.", "pytorch_lightning.")
ZIPPED = b"PK"
LEGACY = 5  # pickles in a file before torch 1.6: magic number, version, system, object, names of storages
ALLOCATING = (  # functions that torch.load(weights_only=True) calls and that allocate memory of any size
    *("builtins.bytearray", "__builtin__.bytearray", "torch.Tensor", "torch._tensor.Tensor"),
    *("torch._utils._rebuild_meta_tensor_no_storage", "torch._utils._rebuild_wrapper_subclass"),
)


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
        """Raise ValueError if tensors are left over, since the file then contains a different network."""
        if self.found:
            raise ValueError(f"the tensor {min(self.found)} is unknown to {kind}")


def tensor_paths(folder: Path) -> list[Path]:
    """Return the weight file, or the files that the index lists."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / WEIGHTS).exists():  # reading a pipe may never end
        raise ValueError(f"{WEIGHTS} is not a regular file")
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
            raise ValueError(f"{path.name}: it is corrupted or truncated ({error})") from error
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


class StandIn:
    """A placeholder for an object whose class is not imported. state: its saved state."""

    state: Any = None

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        return super().__new__(cls)

    def __init__(self, *arguments: Any, **keywords: Any):
        return

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_pickle(path: Path) -> Any:
    """Return the content of a file of torch.save, its tensors memory-mapped; raise ValueError if it would run code."""
    if not path.is_file():
        raise ValueError(f"{path.name} is not a regular file")
    with open(path, "rb") as file:
        zipped = file.read(2) == ZIPPED
    try:
        check_sizes(path, zipped)
        named = torch.serialization.get_unsafe_globals_in_checkpoint(path) if zipped else []
        for name in named:
            if name not in PLAIN and not name.startswith(PACKAGES):
                raise ValueError(f"{path.name} is a pickle that would run {name}: it is not opened")
        with torch.serialization.safe_globals([(StandIn, name) for name in named]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about old pickles
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path.name} is a pickle that holds more than tensors: it is not opened ({_first(error)})") from error
    except ValueError:
        raise
    except (RuntimeError, OSError, EOFError, KeyError, IndexError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path.name} is not a file of torch.save, or damaged ({_first(error)})") from error


def check_sizes(path: Path, zipped: bool) -> None:
    """Raise ValueError for a pickle that makes torch.load allocate more memory than the file holds."""
    with open(path, "rb") as file, contextlib.ExitStack() as opened:
        if not zipped:
            _check_names(path, file, LEGACY)
            return
        archive = opened.enter_context(zipfile.ZipFile(file))
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{path.name} is not a file of torch.save: {entry.filename[:60]!r} is compressed")
            if entry.filename.endswith(".pkl"):
                _check_names(path, opened.enter_context(archive.open(entry)), 1)


def _check_names(path: Path, stream: IO[bytes], pickles: int) -> None:
    """Raise ValueError if one of the first pickles of a stream names a function that allocates memory."""
    for _ in range(pickles):
        try:
            for opcode, name, _ in pickletools.genops(stream):
                if opcode.name == "GLOBAL" and str(name).replace(" ", ".", 1) in ALLOCATING:
                    raise TypeError(str(name).replace(" ", ".", 1))
        except TypeError as error:
            raise ValueError(f"{path.name} is a pickle that would run {error}: it is not opened") from error
        except Exception:  # not a pickle, or its end; torch.load reports it
            return


def _first(error: Exception) -> str:
    words = str(error).strip().splitlines()
    return words[0][:160] if words else type(error).__name__


def plain(value: Any) -> Any:
    """Convert a configuration of omegaconf to dictionaries and lists."""
    if isinstance(value, StandIn):
        state = value.state if isinstance(value.state, dict) else {}
        return plain(state.get("_content", state.get("_val")))
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
