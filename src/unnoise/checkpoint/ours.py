"""The files of a saved model, read with care: what is damaged is named in one sentence, and nothing is unpickled.

A folder holds config.json (method, length, labels, codec, network), model.safetensors and, where needed, codec files.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.precision import widened
from unnoise.checkpoint.tensors import read_tensors
from unnoise.files import BUNDLED, read_bytes

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DIGEST = "digest"  # said in the file of the weights
LARGEST_CONFIG = 64 * 2**20  # bytes
FIELDS = {"method": str, "length": int, "labels": list, "codec": dict, "network": dict, "notes": dict}
FORMAT = "unnoise-2"
RENAMED = {".film.": ".adaln.", "network.clock.": "network.time_embed."}  # weights since format 1


def read_described(folder: Path) -> Any:
    """What config.json holds, whoever wrote it, or ValueError."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no model in {folder}: give a folder that `unnoise train` wrote, or a name from `unnoise ls`"
        )
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds no model: {CONFIG} is missing")
    try:
        return json.loads(read_bytes(folder / CONFIG, LARGEST_CONFIG, "configuration").decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{folder / CONFIG} is damaged: {error}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """What the config.json of a saved model holds, or ValueError."""
    config = read_described(folder)
    if isinstance(config, dict) and config.get("format") == "unnoise-1":
        try:
            return upgraded(config)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder / CONFIG} does not describe a model ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{folder / CONFIG} is not a configuration that this version of unnoise reads")
    for field, kind in FIELDS.items():
        if not isinstance(config.get(field), kind) or isinstance(config.get(field), bool):
            raise ValueError(f"{folder / CONFIG} has no {field} as it should be")
    if not all(isinstance(label, str) for label in config["labels"]):
        raise ValueError(f"{folder / CONFIG} has labels that are no names")
    return config


def folder_of(path: str | Path) -> Path:
    """The folder of a bundled model by its name ("wiki"), or the path itself."""
    bundled = BUNDLED / path
    return bundled if (bundled / CONFIG).exists() else Path(path)


def digest(config: dict[str, Any], codec_identity: str) -> str:
    """What the weights belong to: everything of a configuration that changes what they mean."""
    meaning = {field: config[field] for field in ("method", "length", "labels", "network")} | {"codec": codec_identity}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration of the first format in the present one."""
    network = dict(config["network"])
    network["attention_every"] = network.pop("every", 1)
    codec = dict(config["codec"])
    if codec.get("kind") in ("pixels", "bpe"):
        codec.pop("end", None)
    return {
        "format": FORMAT,
        "method": config["method"],
        "length": network["length"] - bool(network.get("gaps", False)),
        "labels": [str(i) for i in range(network.get("labels", 0))],
        "codec": codec,
        "network": {"name": "transformer", "config": network},
        "notes": config.get("notes", {}),
    }


def other_weights(folder: Path) -> str:
    """A hint, where a folder has a pickle instead of the weights."""
    pickled = [path.name for path in folder.iterdir() if path.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl")]
    return f"; {pickled[0]} is a pickle, which unnoise does not open" if pickled else ""


def read_weights(path: Path, belongs_to: str) -> dict[str, Tensor]:
    """The tensors of model.safetensors, or ValueError; a pickle is refused, and weights that belong to something else.

    belongs_to: the digest of the configuration and codec. Weights of the first format have none and are taken as they are.
    Whole numbers are refused, unless the file announces them and has their scales.
    """
    if not path.is_file():
        raise ValueError("it is not an ordinary file")
    with open(path, "rb") as file:
        start = file.read(9)
    # a safetensors file begins with the length of its header, eight bytes of which the first may be any, and then {
    if start[8:] != b"{" and (start[:2] == b"PK" or start[:1] == b"\x80"):
        raise ValueError("it is a pickle, which unnoise does not open; convert it to safetensors")
    about, found = read_tensors(path)
    if about.get(DIGEST, belongs_to) != belongs_to:
        raise ValueError(f"it was saved with another configuration or codec; {CONFIG} or a codec file was changed since")
    found = widened(found, about)
    for name, value in found.items():
        if not value.is_floating_point():
            raise ValueError(f"the weight {name} has whole numbers ({value.dtype}), not floating-point ones")
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"the weight {name} holds numbers that are not finite")
    return {_present_name(name): value for name, value in found.items()}


def _present_name(name: str) -> str:
    for before, now in RENAMED.items():
        name = name.replace(before, now)
    return name
