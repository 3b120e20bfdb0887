"""The files of a saved model: config.json, model.safetensors, card.md and, if needed, codec files.

config.json holds the method, length, labels, codec and network. model.safetensors has a checksum, which detects damage, and a
digest of the configuration that it belongs to. Damage is reported in one sentence, and nothing is unpickled. The first line of
card.md that is not a heading describes the model.

Weights can be saved in half precision, or in eight bits with scales. Row i of a tensor (along its first dimension) is stored as
integers q_i and one scale s_i,

    s_i = max_j |w_ij| / 127,   q_ij = round(w_ij / s_i),   so that |w_ij - s_i q_ij| <= s_i / 2.

The scales are float32, in a separate tensor named NAME.int8_scale; vectors are float16. The metadata of the file states the
type, since integers are refused as weights otherwise. Loading int8 weights gives float32.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from unnoise.files import BUNDLED, read_bytes

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "card.md"
FORMAT = "unnoise-2"
FIELDS = {"method": str, "length": int, "labels": list, "codec": dict, "network": dict, "notes": dict}
RENAMED = {".film.": ".adaln.", "network.clock.": "network.time_embed."}  # weight names of format 1 and their present names
MAX_CONFIG_BYTES, MAX_CARD_BYTES = 64 * 2**20, 2**20
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
ABOUT = "unnoise"  # the only entry of the metadata, since the order of several is not fixed; JSON
CHECKSUM, DIGEST, DTYPE = "crc32", "digest", "dtype"  # keys in that JSON; the type is stated for int8 only
SCALE = ".int8_scale"
LEVELS = 127
PRECISIONS = ("float32", "float16", "bfloat16", "int8")
FLOATING = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return the CRC-32 of names, types, shapes and bytes."""
    value = 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)};".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def packed(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """Return the content of a file. about: metadata. Raise ValueError if a tensor holds numbers that are not finite."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    for name, tensor in plain.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds numbers that are not finite")
    return save(plain, metadata={ABOUT: json.dumps({**about, CHECKSUM: checksum(plain)}, allow_nan=False)})


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file. A file without metadata has no checksum and is not verified."""
    if not path.is_file():  # reading a pipe may never end
        raise ValueError("it is not a regular file")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
        tensors = load_file(path)
    except (SafetensorError, OSError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is corrupted or truncated ({error})") from error
    if not isinstance(about, dict) or (about and about.get(CHECKSUM) != checksum(tensors)):
        raise ValueError("it is damaged: its numbers are not those that were saved")
    return about, tensors


def read_card(folder: Path) -> str:
    """Return the card in a folder, or an empty string if there is none."""
    path = folder / CARD
    if not path.exists():
        return ""
    try:
        return read_bytes(path, MAX_CARD_BYTES, "card").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error})") from error


def card_lines(card: str) -> list[str]:
    """Return the lines of a card without headings and empty lines, and table rows as `name: value`."""
    lines = (line.strip() for line in card.splitlines())
    kept = (line for line in lines if line and not line.startswith("#") and set(line) - set("|-: "))
    return [line.strip("| ").replace(" | ", ": ", 1) if line.startswith("|") else line for line in kept]


def card_description(card: str) -> str:
    """Return the line of a card that describes the model."""
    return next(iter(card_lines(card)), "")


def check_precision(dtype: str) -> None:
    """Raise ValueError unless weights can be saved in this precision."""
    if dtype not in PRECISIONS:
        raise ValueError(f"weights can be saved as {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, found {dtype!r}")


def narrowed(weights: Mapping[str, Tensor], dtype: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return weights in this precision (None: unchanged), and the metadata that the file needs.

    Raise ValueError, starting with the name of the weight, if a number is too large for the precision.
    """
    if dtype is None:
        return dict(weights), {}
    if dtype in FLOATING:
        return {name: _cast(name, value, FLOATING[dtype]) for name, value in weights.items()}, {}
    check_precision(dtype)
    found: dict[str, Tensor] = {}
    for name, value in weights.items():
        if value.dim() < 2 or not value.is_floating_point():
            found[name] = _cast(name, value, torch.float16)
            continue
        rows = value.detach().float().flatten(1)
        scale = rows.abs().amax(1) / LEVELS if rows.numel() else rows.new_zeros(len(rows))
        found[name + SCALE] = scale
        found[name] = (rows / scale.clamp(min=torch.finfo(scale.dtype).tiny)[:, None]).round().to(torch.int8).view(value.shape)
    return found, {DTYPE: "int8"}


def _cast(name: str, value: Tensor, dtype: torch.dtype) -> Tensor:
    if not value.is_floating_point():
        return value
    if float(value.abs().max() if value.numel() else 0) > torch.finfo(dtype).max:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"{name} holds numbers that are too large for {kind}")
    return value.detach().to(dtype)


def widened(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights of a file with int8 weights multiplied by their scales. about: metadata of the file."""
    announced = about.get(DTYPE)
    if announced not in (None, "int8"):
        raise ValueError(f"its weights have the type {announced!r}, which this version of unnoise cannot read")
    if announced is None:
        return dict(tensors)
    weights = {}
    for name, value in tensors.items():
        if name.endswith(SCALE):
            if name.removesuffix(SCALE) not in tensors:
                raise ValueError(f"the scales {name} belong to no weight")
            continue
        scale = tensors.get(name + SCALE)
        if value.dtype != torch.int8:
            if scale is not None:
                raise ValueError(f"the weight {name} has scales, so it must be int8, found {value.dtype}")
            weights[name] = value
        elif scale is None:
            raise ValueError(f"the weight {name} is int8 and has no scales ({name}{SCALE})")
        elif value.dim() < 2 or scale.shape != value.shape[:1] or not scale.is_floating_point():
            raise ValueError(f"the weight {name} has shape {list(value.shape)}, and its scales {list(scale.shape)}")
        elif not bool(torch.isfinite(scale).all()):
            raise ValueError(f"the scales of the weight {name} hold numbers that are not finite")
        else:
            weights[name] = value.float() * scale.float().view(-1, *[1] * (value.dim() - 1))
    return weights


def read_described(folder: Path) -> Any:
    """Return the content of config.json, whichever program wrote it."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no model in {folder}: give a folder that `unnoise train` wrote, or a name from `unnoise ls`"
        )
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds no model: {CONFIG} is missing")
    try:
        return json.loads(read_bytes(folder / CONFIG, MAX_CONFIG_BYTES, "configuration").decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{folder / CONFIG} is damaged: {error}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a saved model, in the present format."""
    config = read_described(folder)
    if isinstance(config, dict) and config.get("format") == "unnoise-1":
        try:
            return upgraded(config)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder / CONFIG} does not describe a model ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{folder / CONFIG} is not a configuration that this version of unnoise can read")
    for field, kind in FIELDS.items():
        if not isinstance(config.get(field), kind) or isinstance(config.get(field), bool):
            raise ValueError(f"{folder / CONFIG} has a missing or wrong {field}")
    if not all(isinstance(label, str) for label in config["labels"]):
        raise ValueError(f"{folder / CONFIG} has labels that are not strings")
    return config


def find_folder(path: str | Path) -> Path:
    """Return the folder of a bundled model ("wiki"), or the path itself."""
    bundled = BUNDLED / path
    return bundled if (bundled / CONFIG).exists() else Path(path)


def digest(config: dict[str, Any], codec_identity: str) -> str:
    """Return a hash of the parts of a configuration that change the meaning of the weights."""
    meaning = {field: config[field] for field in ("method", "length", "labels", "network")} | {"codec": codec_identity}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """Convert a configuration from format 1."""
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
    """Return a hint for an error message if a folder has a pickle instead of the weights."""
    pickled = [path.name for path in folder.iterdir() if path.suffix in PICKLES]
    return f"; {pickled[0]} is a pickle, which unnoise does not open" if pickled else ""


def read_weights(path: Path, belongs_to: str) -> dict[str, Tensor]:
    """Return the tensors of model.safetensors; raise ValueError for a pickle or for weights of a different configuration.

    belongs_to: digest of the configuration and codec. Weights of format 1 have no digest and are not compared.
    Integers are refused unless the metadata states int8 and the file has their scales.
    """
    if not path.is_file():  # reading a pipe may never end
        raise ValueError("it is not a regular file")
    with open(path, "rb") as file:
        start = file.read(9)
    # a safetensors file starts with the length of its header, eight arbitrary bytes, followed by {
    if start[8:] != b"{" and (start[:2] == b"PK" or start[:1] == b"\x80"):
        raise ValueError("it is a pickle, which unnoise does not open; convert it to safetensors")
    about, found = read_tensors(path)
    if about.get(DIGEST, belongs_to) != belongs_to:
        raise ValueError(f"it was saved with a different configuration or codec; {CONFIG} or a codec file was changed since")
    weights = {}
    for name, value in widened(found, about).items():
        if not value.is_floating_point():
            raise ValueError(f"the weight {name} has whole numbers ({value.dtype}), not floating-point numbers")
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"the weight {name} holds numbers that are not finite")
        present = name
        for before, now in RENAMED.items():
            present = present.replace(before, now)
        weights[present] = value
    return weights
