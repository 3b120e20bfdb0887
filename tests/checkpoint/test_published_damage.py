"""Published checkpoints of the network ddit that are damaged, or that hold code: refused in a sentence, nothing is run."""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import unnoise
from ddit_checkpoints import KINDS, copied, outputs, refused, same
from malformed import Runs
from unnoise.checkpoint.published.export import CHECKPOINT
from unnoise.checkpoint.published.tensor_files import PICKLE, WEIGHTS


def evil(trace: Path) -> Iterator[Any]:
    import builtins
    import os
    import subprocess

    code = f"open({str(trace)!r}, 'w').close()"
    yield Runs(os.system, f"touch {trace}")
    yield Runs(builtins.exec, code)
    yield Runs(builtins.eval, code)
    yield Runs(subprocess.call, ["touch", str(trace)])
    yield Runs(builtins.getattr, "a", "upper")
    yield Runs(pickle.loads, pickle.dumps(Runs(os.system, f"touch {trace}")))


@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_of_a_pickle_is_run(written: dict[str, Path], tmp_path: Path, zipped: bool) -> None:
    trace = tmp_path / "it-ran"
    for number, thing in enumerate(evil(trace)):
        for kind, file in (("sedd", PICKLE), ("flexmdm", CHECKPOINT)):
            folder = copied(written[kind], tmp_path / f"{kind}-{number}")
            held = torch.load(folder / file, weights_only=True)
            for place in ("beside", "instead"):
                saved = {**held, "thing": thing} if place == "beside" else thing
                torch.save(saved, folder / file, _use_new_zipfile_serialization=zipped)
                assert "not opened" in refused(folder) and not trace.exists()
    (tmp_path / "bare.ckpt").write_bytes(pickle.dumps(next(evil(trace))))
    assert "not opened" in refused(tmp_path / "bare.ckpt") and not trace.exists()


def stored(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of the weights' file and its contents."""
    file = next(name for name in (WEIGHTS, PICKLE, CHECKPOINT) if (folder / name).exists())
    return file, load_file(folder / file) if file == WEIGHTS else torch.load(folder / file, weights_only=True)


def put(folder: Path, file: str, held: dict[str, Any]) -> None:
    save_file(held, folder / file) if file == WEIGHTS else torch.save(held, folder / file)


WRONG_TENSORS: tuple[Callable[[Tensor], Tensor | None], ...] = (
    lambda tensor: None,
    lambda tensor: torch.cat([tensor, tensor[:1]]).contiguous(),
    lambda tensor: tensor[None].contiguous(),
    lambda tensor: tensor[:0].contiguous(),
    lambda tensor: tensor.to(torch.int64),
    lambda tensor: torch.full_like(tensor, torch.nan),
    lambda tensor: torch.full_like(tensor, torch.inf),
)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_tensors_are_refused_in_one_sentence(kind: str, written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written[kind], tmp_path / "a")
    file, held = stored(folder)
    inner = held["ema_params"] if file == CHECKPOINT else held
    chosen = [name for name in inner if "blocks.1" not in name and "rotary" not in name and "sampling" not in name]
    for i, name in enumerate(chosen):
        for change in (WRONG_TENSORS[i % 7], WRONG_TENSORS[(i + 3) % 7]):  # every kind of wrong, on different tensors
            wrong = change(inner[name])
            changed = {key: value for key, value in inner.items() if key != name} | ({} if wrong is None else {name: wrong})
            if file == CHECKPOINT:
                state = {key: value for key, value in held["state_dict"].items() if key != name}
                state |= {} if wrong is None else {name: wrong}
                changed = held | {"ema_params": changed, "state_dict": state}
            put(folder, file, changed)
            refused(folder)
    for extra in ("blocks.0.extra.weight", "blocks.7.norm1.weight", "logit_bias", "lm_head.weight"):
        added = {extra: torch.zeros(3)}
        put(folder, file, held | {"ema_params": inner | added} if file == CHECKPOINT else held | added)
        assert "unknown" in refused(folder)


WRONG_VALUES = (None, "x", -1, 0, 1.5, True, [], {}, 10**12, [1], "", float("nan"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_configuration_is_refused_or_changes_nothing(kind: str, written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written[kind], tmp_path / "a")
    described = json.loads((folder / "config.json").read_text())
    if (folder / CHECKPOINT).exists():
        held = torch.load(folder / CHECKPOINT, weights_only=True)
        torch.save({key: held[key] for key in ("state_dict", "ema_params")}, folder / CHECKPOINT)
    expected = [value.clone() for value in outputs(unnoise.load(folder))]
    places = [(key,) for key in described]
    places += [(key, inner) for key in ("model", "graph", "noise", "interpolant") for inner in described.get(key, ())]
    refusals = 0
    for i, place in enumerate(places):
        for wrong in (WRONG_VALUES[i % 12], WRONG_VALUES[(i + 5) % 12], "x", -1, ...):
            changed = json.loads(json.dumps(described))
            parent = changed if len(place) == 1 else changed[place[0]]
            if wrong is ...:
                del parent[place[-1]]
            else:
                parent[place[-1]] = wrong
            (folder / "config.json").write_text(json.dumps(changed))
            try:
                model = unnoise.load(folder)
            except ValueError as error:
                assert "\n" not in str(error), place
                refusals += 1
                continue
            assert model.length >= 1
            if place[-1] in ("dropout", "architectures", "auto_map", "return_dict", "torch_dtype", "attn_backend", "ngpus"):
                assert same(outputs(model), expected)
    assert refusals > 15


@pytest.mark.parametrize("kind", ["mdlm", "sedd", "flexmdm"])
def test_damaged_files_are_refused(kind: str, written: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(written[kind], tmp_path / "a")
    file, _ = stored(folder)
    content = (folder / file).read_bytes()
    generator = torch.Generator().manual_seed(0)
    for cut in (0, 1, 2, 9, 100, len(content) // 2, len(content) - 1):
        (folder / file).write_bytes(content[:cut])
        refused(folder)
    for _ in range(25):  # bytes of the header, where names and shapes are
        place = int(torch.randint(min(4000, len(content)), (1,), generator=generator))
        damaged = bytearray(content)
        damaged[place] ^= 1 + int(torch.randint(255, (1,), generator=generator))
        (folder / file).write_bytes(bytes(damaged))
        try:
            unnoise.load(folder)
        except ValueError as error:
            assert "\n" not in str(error)
    (folder / file).write_bytes(content)
    for text in ("", "{", "[]", "3", "null", '{"model_type": ["mdlm"]}', '{"model_type": "other"}', "\x00"):
        (folder / "config.json").write_text(text)
        if file != CHECKPOINT or text in ("", "{", "\x00"):
            refused(folder)
    (folder / file).unlink()
    (folder / file).mkdir()
    refused(folder)
