"""Tensors as one safetensors file with a checksum, so that damage is found and not computed with."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

ABOUT = "unnoise"  # the one entry of metadata (the order of several is not fixed): JSON
CHECKSUM = "crc32"  # in it


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """The CRC-32 of names, kinds of number, shapes and bytes."""
    value = 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)};".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def packed(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """The content of a file, with what is to be said about it; ValueError if a tensor holds numbers that are not finite."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    for name, tensor in plain.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds numbers that are not finite")
    return save(plain, metadata={ABOUT: json.dumps({**about, CHECKSUM: checksum(plain)}, allow_nan=False)})


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is said about a file, and its tensors, or ValueError; a file that nothing is said about is taken as it is."""
    if not path.is_file():  # a pipe may never end
        raise ValueError("it is not an ordinary file")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
        tensors = load_file(path)
    except (SafetensorError, OSError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is damaged or cut short ({error})") from error
    if not isinstance(about, dict) or (about and about.get(CHECKSUM) != checksum(tensors)):
        raise ValueError("it is damaged: its numbers are not those that were saved")
    return about, tensors
