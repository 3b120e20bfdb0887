"""MD4 (arXiv:2406.04329): config.json, the fields of its ml_collections configuration, and params.npz, its flax parameters.

Its own checkpoints are orbax folders; what is read here is the tree of `ema_params` (or `params`) saved by numpy, names joined
by /, kernels [in, out]. Text only: images have another network.
"""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.checkpoint.published.decoder import Tensors, halved
from unnoise.checkpoint.published.fields import expect, flag, whole
from unnoise.checkpoint.published.folder import codec_of, tokenizer_of
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type
from unnoise.data.codec import Codec, Text8
from unnoise.method_table import method

OFFSET = 1e-4  # ε of its schedules
FILES = ("ema_params.npz", "params.npz")
ROOT = "classifier/"
MOST_PACKED = 16  # bytes of arrays for each byte of a file that was compressed
SMALL = 64 * 2**20  # bytes that a file may hold however it was compressed


def read_md4(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    expect(described, task_type="text", cond_type="adaln_zero", time_features="t", model_sharding=False)
    if described.get("classes") is not None and whole({"classes": abs(described["classes"])}, "classes") > 1:
        raise ValueError(f"its classes are {described['classes']}: models with labels are not served")
    features, heads, vocab = (whole(described, name) for name in ("feature_dim", "num_heads", "vocab_size"))
    shape = described.get("data_shape")
    if not isinstance(shape, list) or len(shape) != 1:
        raise ValueError(f"its data_shape must be [length], found {str(shape)[:60]}")
    length = whole({"data_shape": shape[0]}, "data_shape")
    schedule = described.get("noise_schedule", "linear")
    if not isinstance(schedule, str):
        raise ValueError(f"its noise_schedule must be a name, found {str(schedule)[:60]}")
    named = f"md4:offset={OFFSET},schedule={schedule}"
    method(named)  # which knows the schedules
    file = _file(folder)
    hidden = _shapes(file).get(f"{ROOT}Transformer_0/TransformerBlock_0/feed_forward/w1/kernel", ())
    config = {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": length,
        "width": features * heads,
        "depth": whole(described, "n_layers"),
        "heads": heads,
        "hidden": hidden[1] if len(hidden) == 2 else features * heads,
        "features": features,
        "embed_width": features if flag(described, "outside_embed") else 0,
        "mlp_type": described.get("mlp_type", "swiglu"),
        "time": True,
    }
    codec = _codec(folder, described, vocab)
    named = choices.method or named
    return Published("MD4", named, "md4", config, codec, length, lambda: _weights(file, config), notes={"file": file.name})


def _codec(folder: Path, described: Mapping[str, Any], vocab: int) -> Codec:
    """text8's letters and space are numbered there as they are here; otherwise a tokenizer, or plain numbers."""
    tokenizer = tokenizer_of(folder)
    if tokenizer is None and described.get("dataset") == "text8" and vocab == Text8().vocab:
        return Text8()
    return codec_of(tokenizer, vocab, None)


def _file(folder: Path) -> Path:
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{' or '.join(FILES)} is missing: save its parameters so, names joined by /")


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays, without reading them."""
    found: dict[str, tuple[int, ...]] = {}
    unpacked = 0
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as stream:
                    version = np.lib.format.read_magic(stream)
                    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                    shape, _, dtype = read(stream)
                    stated = math.prod(shape) * dtype.itemsize
                    if stated != entry.file_size - stream.tell():
                        raise ValueError(f"{entry.filename[:60]} states {stated:,} bytes, and has others")
                    unpacked += stated
                    found[_called(entry.filename.removesuffix(".npy"))] = shape
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{file.name} is damaged, or no .npz ({error})") from error
    if unpacked > max(SMALL, MOST_PACKED * file.stat().st_size):
        raise ValueError(f"{file.name} would unpack to {unpacked:,} bytes")
    return found


def _called(name: str) -> str:
    """The name from the network on: what contains it may have been saved too."""
    return name[name.index(ROOT) :] if ROOT in name else name


def _arrays(file: Path) -> dict[str, Tensor]:
    _shapes(file)  # which checks the sizes
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {_called(name): torch.from_numpy(np.ascontiguousarray(archive[name])) for name in archive.files}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{file.name} is damaged, or holds something else than numbers ({error})") from error


def _weights(file: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Our network's weights; what is over or missing is a ValueError."""
    tensors = Tensors(_arrays(file))
    width, hidden, features = config["width"], config["hidden"], config["features"]
    outside = config["embed_width"]

    def dense(name: str, inside: int, out: int, bias: bool = True) -> dict[str, Tensor]:
        found = {"weight": tensors.take(f"{ROOT}{name}/kernel", inside, out).T.contiguous()}
        return found | ({"bias": tensors.take(f"{ROOT}{name}/bias", out)} if bias else {})

    parts = {
        "time_in": dense("CondEmbedding_0/dense0", features, 4 * features),
        "time_out": dense("CondEmbedding_0/Dense_0", 4 * features, features),
        "adaln": dense(f"Transformer_0/Dense_{int(bool(outside))}", features, 2 * width),
        "head": dense(f"Transformer_0/Dense_{1 + int(bool(outside))}", width, config["outputs"], bias=False),
    }
    embedding = f"{ROOT}Embed_0/embedding" if outside else f"{ROOT}Transformer_0/Embed_0/embedding"
    parts["embed"] = {"weight": tensors.take(embedding, config["inputs"], outside or width)}
    if outside:
        parts["embed_out"] = dense("Transformer_0/Dense_0", outside, width)
    for layer in range(config["depth"]):
        block = f"Transformer_0/TransformerBlock_{layer}"
        for ours, theirs in {"q": "wq", "k": "wk", "v": "wv", "out": "wo"}.items():
            found = dense(f"{block}/attention/{theirs}", width, width, bias=False)
            turned = {"weight": halved(found["weight"], config["heads"])} if ours in "qk" else found
            parts[f"blocks.{layer}.{ours}"] = turned
        parts[f"blocks.{layer}.gate"] = dense(f"{block}/feed_forward/w1", width, hidden, bias=False)
        parts[f"blocks.{layer}.up"] = dense(f"{block}/feed_forward/w3", width, hidden, bias=False)
        parts[f"blocks.{layer}.down"] = dense(f"{block}/feed_forward/w2", hidden, width, bias=False)
        parts[f"blocks.{layer}.adaln"] = dense(f"{block}/Dense_0", features, 6 * width)
    tensors.check_all_taken("MD4's")
    return {f"{part}.{name}": tensor.float() for part, found in parts.items() for name, tensor in found.items()}


READER = Reader(("md4",), of_type("md4"), read_md4)
