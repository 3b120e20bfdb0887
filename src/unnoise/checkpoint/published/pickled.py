"""Restricted reading of pickles: tensors in files of torch.save, without running code of the file.

A pickle can name any function to call. torch.load(weights_only=True) calls only functions that create tensors. Other objects in
Lightning's checkpoints (omegaconf's configurations, tokenizers) become inert `StandIn`s. A file that names anything else is
refused with that name.
"""

import contextlib
import pickle
import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any, Self

import torch

PLAIN = ("typing.Any", *(f"builtins.{name}" for name in ("bool", "bytes", "dict", "float", "int", "list", "str", "tuple")))
PACKAGES = ("omegaconf.", "transformers.", "tokenizers.", "lightning.", "pytorch_lightning.")
ZIPPED = b"PK"
LEGACY = 5  # pickles in a file before torch 1.6: magic number, version, system, object, names of storages
ALLOCATING = (  # functions that torch.load(weights_only=True) calls and that allocate memory of any size
    *("builtins.bytearray", "__builtin__.bytearray", "torch.Tensor", "torch._tensor.Tensor"),
    *("torch._utils._rebuild_meta_tensor_no_storage", "torch._utils._rebuild_wrapper_subclass"),
)


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
        raise ValueError(f"{path.name} is not an ordinary file")
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
