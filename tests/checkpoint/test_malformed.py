"""A share of benchmarks/malformed.py: published checkpoints of every family, damaged or made to do harm."""

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from malformed import FAILURES, Runs, make_checkpoints, outcome, variants
from unnoise.checkpoint.published.tensor_files import PICKLE, WEIGHTS

COUNT = 90


def test_malformed_checkpoints_are_refused_in_one_sentence_or_harmless(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ended, which, words in variants(0, COUNT, seed=11, home=tmp_path):
            assert ended not in FAILURES, f"{which}: {ended}: {words}"
            found[ended] += 1
    assert found.total() == COUNT and found["refused"] > COUNT / 2 and found["harmless"] > COUNT / 20


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("right")
    make_checkpoints(folder)
    return folder


def described(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def a_pipe(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def repeated(folder: Path) -> None:
    """Write an embedding of 10¹² rows that stores a single number."""
    held = torch.load(folder / PICKLE, weights_only=True)
    torch.save(held | {"backbone.vocab_embed.embedding": torch.zeros(1).expand(10**12, 16)}, folder / PICKLE)
    described(folder, vocab_size=10**9)


def larger_than_stated(folder: Path) -> None:
    with np.load(folder / "params.npz") as archive:
        arrays = dict(archive)
    name = "classifier/Transformer_0/Dense_1/kernel"
    np.savez(folder / "params.npz", **arrays)
    content = (folder / "params.npz").read_bytes()
    assert content.count(f"{arrays[name].shape}".encode()) == 1
    (folder / "params.npz").write_bytes(content.replace(b"(8, 27)", b"(8, 99)"))


def a_flipped_exponent(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["backbone.blocks.0.norm1.weight"][0] = 3e38
    save_file(tensors, folder / WEIGHTS)


def a_vast_token(folder: Path) -> None:
    tree = json.loads((folder / "tokenizer.json").read_text())
    tree["model"]["vocab"]["a"] = 2**32 - 1
    (folder / "tokenizer.json").write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("kind", "spoil", "words"),
    [
        ("llama", a_pipe, "model.safetensors is not a regular file"),
        (
            "pickled",
            lambda folder: torch.save({"a": Runs(bytearray, 2**40)}, folder / PICKLE),
            "would run __builtin__.bytearray",
        ),
        ("pickled", repeated, "has more elements than are stored"),
        ("md4", larger_than_stated, "params.npz is damaged"),
        ("mdlm", a_flipped_exponent, "holds 3e+38, too large for a weight"),
        ("mdlm", a_vast_token, "has a token with the number 4,294,967,295"),
        (
            "udlm with labels",
            lambda folder: described(folder, cfg_num_classes=2**30),
            "must have 1073741825 rows, one for each class",
        ),
        (
            "llama",
            lambda folder: described(folder, head_dim=2**30, rope_scaling={"type": "linear", "factor": 2}),
            "head_dim must be",
        ),
    ],
)
def test_what_would_take_all_memory_or_never_end_is_refused(
    kind: str, spoil: Callable[[Path], None], words: str, right: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "spoilt"
    folder.mkdir()
    for path in (right / kind).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    spoil(folder)
    ended, said = outcome(folder)
    assert ended == "refused" and words in said
