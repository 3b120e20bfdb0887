"""Published checkpoints that are damaged or made to do harm: tiny ones of every family, each changed in one way.

A variant is drawn by (seed, number). It must be refused by one sentence, or open with finite outputs; nothing of it may be run
(a canary file is never made), and it may take neither long nor much memory.
"""

import contextlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._pytree import tree_flatten

import unnoise
from ddit_checkpoints import KINDS, built, hydra, lightning
from decoders import (
    DREAM,
    MASK,
    TEXTS,
    VOCAB,
    biased,
    random_weights,
    write_gpt2,
    write_huggingface,
    write_llada,
    write_llama2c,
    write_md4,
)
from json_tree import places_in
from unnoise.checkpoint.published.export import CHECKPOINT, export
from unnoise.checkpoint.published.tensor_files import INDEX, PICKLE, WEIGHTS
from unnoise.data.tokenizer import Bpe

SECONDS = 10  # that a variant may take
ROOM = 1 << 30  # bytes of addresses beyond what the process has, that a variant may take
CANARY = "canary"
LLAMA2C = "model.bin"
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 3, 10**6, 2**30, 2**31, 2**63, 10**30, -(10**9), 0.5, -2.5, 1e308, 1e-320, float("nan"), "",
    "x", "32", "a" * 5000, "\x1b[31m", [], [1], [10**9], ["a"] * 50, {}, {"a": 1}, {"type": "x"}, [[[[]]]],
]  # fmt: skip


SCALED = {"factor": 2.0, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
VAST: list[dict[str, Any]] = [
    {"head_dim": 2**30, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"head_dim": 2**30, "rope_scaling": {"rope_type": "llama3", **SCALED}},
    {"cfg": True, "cfg_num_classes": 2**30},
    {"max_position_embeddings": 2**40, "model_length": 2**40, "max_sequence_length": 2**40, "max_seq_len": 2**40},
    dict.fromkeys(("num_hidden_layers", "n_blocks", "n_layers", "n_layer"), 10**6),
    {"n_positions": 2**30, "n_inner": 2**30},
]


class TooSlow(BaseException):
    """A variant took longer than it may."""


class Runs:
    """Pickled, it is a call."""

    def __init__(self, call: Callable[..., Any], *arguments: Any):
        self.call = call, arguments

    def __reduce__(self) -> Any:
        return self.call


# ---- checkpoints that are right ----------------------------------------------------------------------------------------


def make_checkpoints(home: Path) -> list[Path]:
    """Write a folder for every family and kind of file."""
    home.mkdir(parents=True, exist_ok=True)
    for kind, (layout, method, network, labels) in KINDS.items():
        export(built(method, network, labels), layout, home / kind)
    tensors = load_file(home / "mdlm" / WEIGHTS)
    described = (home / "mdlm" / "config.json").read_text()
    for kind in ("in shards", "pickled", "pickled as of old"):
        (home / kind).mkdir()
        (home / kind / "config.json").write_text(described)
        shutil.copyfile(home / "mdlm" / "tokenizer.json", home / kind / "tokenizer.json")
    listed = sorted(tensors)
    shards = {"one.safetensors": listed[:9], "two.safetensors": listed[9:]}
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, home / "in shards" / file)
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    (home / "in shards" / INDEX).write_text(json.dumps(index))
    torch.save(tensors, home / "pickled" / PICKLE)
    torch.save(tensors, home / "pickled as of old" / PICKLE, _use_new_zipfile_serialization=False)
    (home / "lightning").mkdir()
    shadow = [tensor for name, tensor in tensors.items() if "rotary" not in name]
    held = lightning(tensors, hydra(json.loads(described)), ema={"decay": 0.9, "shadow_params": shadow})
    torch.save(held, home / "lightning" / CHECKPOINT)
    weights = random_weights(VOCAB)
    write_huggingface(home / "llama", weights)
    write_huggingface(home / "tied", random_weights(VOCAB, tied=True), model_type="qwen2", tie_word_embeddings=True)
    write_huggingface(home / "dream", biased(weights), **DREAM)
    for kind in ("a2d-qwen3", "sdar", "Fast_dLLM_Qwen"):
        write_huggingface(home / kind, weights, model_type=kind, mask_token_id=MASK)
    write_llada(home / "llada", weights)
    Bpe.train(TEXTS, 300).save(home / "llada")
    write_md4(home / "md4")
    write_gpt2(home / "gpt2")
    Bpe.gpt2(home / "gpt2").save(home / "gpt2")
    write_gpt2(home / "gpt2 pickled")
    torch.save(load_file(home / "gpt2 pickled" / WEIGHTS), home / "gpt2 pickled" / PICKLE)
    (home / "gpt2 pickled" / WEIGHTS).unlink()
    (home / "llama2c").mkdir()
    write_llama2c(home / "llama2c" / LLAMA2C, random_weights(264), ["the", "cat", "sat", "on", "at"])
    return sorted(path for path in home.iterdir() if path.is_dir())


# ---- damage --------------------------------------------------------------------------------------------------------------


def change_bytes(path: Path, rng: random.Random) -> None:
    """Cut short, a bit flipped, zeros, noise, twice, empty, another format."""
    content = path.read_bytes()
    at, much = rng.randrange(len(content) + 1), rng.choice([1, 4, 64, 1024])
    flipped = bytearray(content)
    for _ in range(rng.choice([1, 1, 8])):
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    changed = [content[:at], content[at:], bytes(flipped), bytes(flipped), content + content, b"", rng.randbytes(512)]
    changed += [content[:at] + fill + content[at + much :] for fill in (bytes(much), rng.randbytes(much))]
    changed += [b"version https://git-lfs.github.com/spec/v1\nsize 1\n", b"\x80\x04\x95" + content, b"[" * 100_000]
    path.write_bytes(rng.choice(changed))


def change_kind(path: Path, rng: random.Random) -> None:
    """No file, a folder, a pipe, a device, a link to itself."""
    path.unlink()
    rng.choice(
        [
            lambda: None,
            path.mkdir,
            lambda: os.mkfifo(path),
            lambda: path.symlink_to("/dev/zero"),
            lambda: path.symlink_to(path.name),
        ]
    )()


def change_json(path: Path, rng: random.Random) -> None:
    """One node of the tree replaced, removed, moved or put in besides."""
    tree = json.loads(path.read_bytes())
    places = list(places_in(tree))
    shallow = [(node, key) for node, key in places if node is tree]
    node, key = rng.choice(shallow if rng.randrange(2) else places)
    what = rng.randrange(7)
    if what == 6 and isinstance(tree, dict):
        tree |= rng.choice(VAST)
    elif what == 0:
        del node[key]
    elif what == 1 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
        node[key] = rng.choice([node[key] + 1, node[key] - 1, -node[key], node[key] * 1000, 1_000_000, 2**30, node[key] + 0.5])
    elif what == 2 and isinstance(node, dict):
        node[rng.choice(["x", "mask_token_id", "rope_scaling", "head_dim", "block_size", "eos_token_id"])] = rng.choice(ODD)
    else:
        node[key] = rng.choice(ODD)
    path.write_text(json.dumps(tree))


def change_tensor(tensors: dict[str, Any], rng: random.Random) -> None:
    """One tensor missing, misshapen, of another kind, not finite, vast, or one more than there should be."""
    name = rng.choice(sorted(name for name, tensor in tensors.items() if isinstance(tensor, Tensor) and tensor.dim()))
    tensor = tensors[name]
    spoilt = tensor.clone()
    values = [torch.nan, torch.inf, -torch.inf, 3e38, -3e38]
    spoilt.view(-1)[rng.randrange(spoilt.numel())] = rng.choice(values) if tensor.is_floating_point() else 1
    kinds = [torch.int32, torch.int8, torch.bool, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64]
    what = rng.randrange(8)
    if what == 0:
        del tensors[name]
    elif what == 1:
        tensors[rng.choice(["more", f"{name}.more", "blocks.7.norm1.weight", "model.layers.9.x"])] = torch.zeros(3)
    elif what == 2:
        tensors[f"{name}x"] = tensors.pop(name)
    elif what == 3:
        tensors[name] = tensor.to(rng.choice(kinds))
    elif what == 4:
        tensors[name] = spoilt
    else:
        shapes = [tensor[:-1], tensor[..., :-1], tensor[:0], tensor[None], tensor.reshape(-1), tensor.view(-1)[0], tensor.T]
        shapes += [torch.cat([tensor, tensor]), tensor.flip(0), torch.zeros(0), torch.zeros(1, 1, 1, 1)]
        tensors[name] = rng.choice(shapes).contiguous()


def change_header(path: Path, rng: random.Random) -> None:
    """Damage the header of a safetensors file: wrong shapes, offsets and types, or a length beyond the file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    name = rng.choice([name for name in header if name != "__metadata__"])
    one = header[name]
    what = rng.randrange(5)
    if what == 0:
        one["shape"] = rng.choice([[2**62, 2**62], [2**40], [-1, 5], [0], one["shape"] * 40, ["x"], [10**30], None])
    elif what == 1:
        one["data_offsets"] = rng.choice([[0, 2**62], [2**40, 2**41], [-5, 5], [8, 0], [0, 0], ["a", "b"], [10**30, 10**31]])
    elif what == 2:
        one["dtype"] = rng.choice(["F64", "I8", "BOOL", "F8_E4M3", "X", 3, "C64", None])
    elif what == 3:
        header[name] = rng.choice(ODD)
    else:
        del header[name]
    changed = json.dumps(header).encode()
    stated = rng.choice([len(changed)] * 6 + [2**40, 2**63, 0, len(changed) - 1])
    path.write_bytes(struct.pack("<Q", stated) + changed + content[8 + length :])


def change_index(folder: Path, rng: random.Random) -> None:
    """Damage an index of shards: it names files that are missing or outside of the folder."""
    path = folder / INDEX
    index = json.loads(path.read_text())
    name = rng.choice(sorted(index["weight_map"]))
    outside = folder.parent / "outside.safetensors"
    shutil.copyfile(folder / "one.safetensors", outside)
    names = ["three.safetensors", "../outside.safetensors", str(outside), "/etc/passwd", "/dev/zero", "", ".", "..", 3, None]
    names += [["one.safetensors"], "config.json", "one.safetensors\x00", "x" * 5000, "./one.safetensors", INDEX]
    index["weight_map"][name] = rng.choice(names)
    path.write_text(json.dumps(index if rng.randrange(4) else rng.choice([[], {}, {"weight_map": []}, {"weight_map": "x"}, 3])))


def change_pickle(path: Path, canary: Path, rng: random.Random) -> None:
    """Replace or extend weights by a pickle that would create the canary or allocate vast tensors."""
    held: Any = torch.load(path, weights_only=True) if path.suffix in (".bin", ".ckpt") and path.name != LLAMA2C else {}
    evil: list[Any] = [
        Runs(os.system, f"touch '{canary}'"),
        Runs(exec, f"open({str(canary)!r}, 'w')"),
        Runs(eval, f"open({str(canary)!r}, 'w')"),
        Runs(open, str(canary), "w"),
        Runs(Path.touch, canary),
        Runs(os.mkdir, str(canary)),
        Runs(bytearray, 2**40),
        Runs(list, range(2**40)),
        Runs(np.zeros, 2**40),
        Runs(torch.zeros, 2**40),
    ]
    one = rng.choice(evil)
    whole = rng.choice([one, {**held, "more": one}, {"state_dict": one}, [one], {**held, "hyper_parameters": one}])
    way = rng.randrange(4)
    if way == 0:
        path.write_bytes(pickle.dumps(whole, protocol=rng.choice([0, 2, 4, 5])))
    else:
        torch.save(whole, path, _use_new_zipfile_serialization=way < 3)


def change_sizes(path: Path, rng: random.Random) -> None:
    """Few bytes that stand for very many numbers: a tensor that repeats one of them, an array of zeros that was packed."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            arrays = dict(archive)
        name = rng.choice(sorted(arrays))
        stated = rng.choice([(2**20, 2**12), (2**40,), (2**62, 4), (-1, 4)])
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for key, array in arrays.items():
                stream = io.BytesIO()
                np.save(stream, array)
                content = stream.getvalue()
                if key == name:
                    content = content.replace(repr(array.shape).encode(), repr(stated).encode()) + bytes(2**20)
                packed.writestr(f"{key}.npy", content)
        return
    held = torch.load(path, weights_only=True)
    tensors = held.get("ema_params") or held["state_dict"] if "state_dict" in held else held
    name = rng.choice(sorted(name for name, tensor in tensors.items() if tensor.dim()))
    rows = rng.choice([2**20, 2**31, 2**40])
    for one in [name] if rng.randrange(2) else [key for key in tensors if "vocab_embed" in key or "output_layer.linear" in key]:
        tensors[one] = torch.zeros(1).expand(rows, *tensors[one].shape[1:])
    torch.save(held, path)
    described = json.loads((path.parent / "config.json").read_text()) if (path.parent / "config.json").exists() else {}
    if "tokens" in described:
        (path.parent / "config.json").write_text(json.dumps(described | {"tokens": rows - 1}))
    elif "vocab_size" in described:
        (path.parent / "config.json").write_text(json.dumps(described | {"vocab_size": rows}))


def change_tokenizer(folder: Path, rng: random.Random) -> None:
    """Damage a tokenizer: vast, negative or duplicate token numbers, or no tokenizer at all."""
    path = folder / "tokenizer.json"
    tree = json.loads(path.read_text())
    vocab = tree["model"]["vocab"]
    what = rng.randrange(4)
    if what == 0:
        vocab[rng.choice(sorted(vocab))] = rng.choice([2**31, 2**32 - 1, 10**6, 10**30, -1, 0, 0.5, "x", None])
    elif what == 1:
        content = rng.choice(["[MASK]", "", "<|endoftext|>", "a", "x" * 10**5])
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
        tree["added_tokens"] = [{"id": rng.choice([0, 5, 10**6, 2**32 - 1, -1]), "content": content, **flags}]
    elif what == 2:
        tree["model"]["type"] = rng.choice(["BPE", "WordPiece", "Unigram", "WordLevel", "x", None])
    else:
        change_json(path, rng)
        return
    path.write_text(json.dumps(tree))


def put_tensors(path: Path, rng: random.Random) -> None:
    """One tensor of a file changed."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in archive.items()}
        change_tensor(tensors, rng)
        arrays = {name: tensor for name, tensor in tensors.items() if tensor.dtype != torch.bfloat16}
        np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    elif path.suffix == ".safetensors":
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        change_tensor(tensors, rng)
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, path)
    else:
        held = torch.load(path, weights_only=True)
        parts = [held[name] for name in ("state_dict", "ema_params") if name in held] or [held]
        change_tensor(rng.choice(parts), rng)
        torch.save(held, path)


def spoilt(folder: Path, canary: Path, rng: random.Random) -> str:
    """Change a folder in one way; what was done."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    weights = next(path for path in files if path.suffix in (".safetensors", ".bin", ".ckpt", ".npz"))
    ways: dict[str, Callable[[], None]] = {}
    if weights.name != LLAMA2C:
        ways["tensor"] = lambda: put_tensors(weights, rng)
    if weights.suffix == ".safetensors":
        ways["header"] = lambda: change_header(weights, rng)
    if weights.suffix in (".bin", ".ckpt", ".npz") and weights.name != LLAMA2C:
        ways["sizes"] = lambda: change_sizes(weights, rng)
    if (folder / "config.json").exists():
        ways["configuration"] = ways["configuration again"] = lambda: change_json(folder / "config.json", rng)
    if (folder / INDEX).exists():
        ways["index"] = ways["index again"] = lambda: change_index(folder, rng)
    if (folder / "tokenizer.json").exists():
        ways["tokenizer"] = lambda: change_tokenizer(folder, rng)
    some = rng.choice(files)
    ways |= {
        "pickle": lambda: change_pickle(weights, canary, rng),
        "bytes": lambda: change_bytes(some, rng),
        "bits of weights": lambda: change_bytes(weights, rng),
        "kind of file": lambda: change_kind(some, rng),
    }
    way = rng.choice(sorted(ways))
    ways[way]()
    return way.removesuffix(" again")


# ---- outcomes ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def limits(seconds: int = SECONDS, room: int = ROOM) -> Iterator[None]:
    """TooSlow after so many seconds; an allocation beyond so many bytes fails."""

    def stop(*_: object) -> None:
        raise TooSlow

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    old, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, hard))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (old, hard))


@torch.no_grad()
def finite_outputs(path: Path) -> bool:
    """Open a model, let it compute and write: whether all its outputs are finite."""
    model = unnoise.load(path)
    length = min(4, model.length)
    x = torch.arange(2 * length).view(2, length) % model.codec.vocab
    more = {"gaps": True} if model.process.variable_length else {}
    found = tree_flatten(model.network(x, torch.full((2,), 0.5), **more))[0]
    model.generate(1, length=length, steps=2, seed=0)
    return all(bool(torch.isfinite(one).all()) for one in found)


def outcome(path: Path) -> tuple[str, str]:
    """Open a checkpoint; return `refused` or `harmless` with the message, or a failure (traceback, slow, …)."""
    try:
        with limits(), np.errstate(all="ignore"):
            return ("harmless", "") if finite_outputs(path) else ("not finite", "")
    except ValueError as error:
        words = str(error)
        if any(word in words for word in ("MemoryError", "allocate", "out of memory")):
            return "much memory", words
        return (
            ("refused", words)
            if words and "\n" not in words and len(words) < 1000
            else ("traceback", f"lines: {words[:300]!r}")
        )
    except TooSlow:
        return "too slow", ""
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {str(error)[:300]}"


FAILURES = ("traceback", "not finite", "too slow", "much memory", "was run")


def variants(first: int, last: int, seed: int, home: Path) -> Iterator[tuple[str, str, str]]:
    """Yield outcome, name and message of the variants with these numbers."""
    checkpoints = make_checkpoints(home / "right")
    for i in range(first, last):
        rng = random.Random(f"malformed {seed} {i}")
        original = checkpoints[i % len(checkpoints)]
        folder, canary = home / "spoilt", home / CANARY
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        way = spoilt(folder, canary, rng)
        ended, words = outcome(folder / LLAMA2C if original.name == "llama2c" else folder)
        if canary.exists():
            ended = "was run"
            canary.rmdir() if canary.is_dir() else canary.unlink()
        yield ended, f"{i} {original.name}, {way}", words
