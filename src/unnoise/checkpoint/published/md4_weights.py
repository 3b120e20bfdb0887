"""MD4 (arXiv:2406.04329): config.json with the fields of its ml_collections configuration, and its flax parameters.

Its own checkpoints are orbax folders. This module reads params.npz, the tree of `ema_params` (or `params`) saved by numpy, with
names joined by / and kernels [in, out]. Only text models are supported; image models have a different network.
"""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.checkpoint.published.decoder import halved
from unnoise.checkpoint.published.reader import Choices, Published, expect, read_bool, read_int, type_reader
from unnoise.checkpoint.published.tensor_files import Tensors
from unnoise.checkpoint.published.tokenizer_files import codec_for, find_tokenizer
from unnoise.data.codec import Codec, Text8
from unnoise.method_table import method

OFFSET = 1e-4  # ε of its schedules
FILES = ("ema_params.npz", "params.npz")
ROOT = "classifier/"
MAX_COMPRESSION = 16  # bytes of arrays for each byte of the file
SMALL = 64 * 2**20  # bytes of arrays that are accepted at any compression


def read_md4(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the model in a folder."""
    expect(described, task_type="text", cond_type="adaln_zero", time_features="t", model_sharding=False)
    if described.get("classes") is not None and read_int({"classes": abs(described["classes"])}, "classes") > 1:
        raise ValueError(f"its classes are {described['classes']}: models with labels are not supported")
    features, heads, vocab = (read_int(described, name) for name in ("feature_dim", "num_heads", "vocab_size"))
    shape = described.get("data_shape")
    if not isinstance(shape, list) or len(shape) != 1:
        raise ValueError(f"its data_shape must be [length], found {str(shape)[:60]}")
    length = read_int({"data_shape": shape[0]}, "data_shape")
    schedule = described.get("noise_schedule", "linear")
    if not isinstance(schedule, str):
        raise ValueError(f"its noise_schedule must be a name, found {str(schedule)[:60]}")
    named = f"md4:offset={OFFSET},schedule={schedule}"
    method(named)  # raises ValueError for an unknown schedule
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        raise ValueError(f"{' or '.join(FILES)} is missing: save the parameters with numpy, names joined by /")
    hidden = _shapes(file).get(f"{ROOT}Transformer_0/TransformerBlock_0/feed_forward/w1/kernel", ())
    config = {
        "inputs": vocab + 1,
        "outputs": vocab,
        "length": length,
        "width": features * heads,
        "depth": read_int(described, "n_layers"),
        "heads": heads,
        "hidden": hidden[1] if len(hidden) == 2 else features * heads,
        "features": features,
        "embed_width": features if read_bool(described, "outside_embed") else 0,
        "mlp_type": described.get("mlp_type", "swiglu"),
        "time": True,
    }
    tokenizer = find_tokenizer(folder, gpt2=False)
    codec: Codec = codec_for(tokenizer, vocab)
    if tokenizer is None and described.get("dataset") == "text8" and vocab == Text8().vocab:
        codec = Text8()  # the same symbols in the same order
    return Published(
        family="MD4",
        method=choices.method or named,
        network="md4",
        config=config,
        codec=codec,
        length=length,
        weights=lambda: _weights(file, config),
        notes={"file": file.name},
    )


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays without loading them; raise ValueError if they are implausibly large."""
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
                        raise ValueError(f"{entry.filename[:60]} states {stated:,} bytes, which is not its size")
                    unpacked += stated
                    found[_called(entry.filename.removesuffix(".npy"))] = shape
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{file.name} is damaged, or not an .npz file ({error})") from error
    if unpacked > max(SMALL, MAX_COMPRESSION * file.stat().st_size):
        raise ValueError(f"{file.name} would unpack to {unpacked:,} bytes")
    return found


def _called(name: str) -> str:
    """Return a name without the containers of the network, which may have been saved as well."""
    return name[name.index(ROOT) :] if ROOT in name else name


def _arrays(file: Path) -> dict[str, Tensor]:
    _shapes(file)  # checks the sizes
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {_called(name): torch.from_numpy(np.ascontiguousarray(archive[name])) for name in archive.files}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{file.name} is damaged, or does not hold numbers only ({error})") from error


def _weights(file: Path, config: Mapping[str, Any]) -> dict[str, Tensor]:
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
    tensors.check_all_taken("MD4's network")
    return {f"{part}.{name}": tensor.float() for part, found in parts.items() for name, tensor in found.items()}


MD4_READER = type_reader("md4", read=read_md4)
