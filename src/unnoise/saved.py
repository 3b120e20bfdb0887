"""The files of a saved model, read with care: what is damaged is named in one sentence, and nothing is unpickled."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json holds, or ValueError."""
    if not folder.is_dir():
        raise ValueError(f"there is no model in {folder}: give the folder that `unnoise train --out` wrote")
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds no model: {CONFIG} is missing")
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / CONFIG} is damaged: {error}") from error
    if not isinstance(config, dict) or config.get("format") != "unnoise-1":
        raise ValueError(f"{folder / CONFIG} is not a configuration that this version of unnoise reads")
    return config


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of model.safetensors, or ValueError; a pickle is refused."""
    if not path.exists():
        pickled = [p.name for p in path.parent.iterdir() if p.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl")]
        hint = f"; {pickled[0]} is a pickle, which unnoise does not open" if pickled else ""
        raise ValueError(f"{path} is missing{hint}")
    with open(path, "rb") as file:
        start = file.read(4)
    if start[:2] == b"PK" or start[:1] == b"\x80":
        raise ValueError("it is a pickle, which unnoise does not open; convert it to safetensors")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it is damaged or cut short ({error})") from error
