"""Damaged files, killed writers, two runs at once: nothing is lost, nothing wrong is said, and the answer is one sentence."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import forked
import unnoise
from unnoise.cli.main import main
from unnoise.data.corpus import corpus
from unnoise.data.documents import images
from unnoise.files import locked, read_bytes
from unnoise.training.trainer import DivergedError, TrainingRun
from unnoise.training.training_options import TrainingOptions

TEXT = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree. " * 40


def nano(method: str = "mdlm", **options: object) -> unnoise.Model:
    return unnoise.Model.build(method, **{"codec": "text8", "length": 16, "width": 16, "depth": 1, "heads": 2, **options})  # pyright: ignore


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    nano().save(tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


# ---- configuration and weights belong together -------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["heads", "attention_every", "method", "length", "alphabet", "labels"])
def test_a_changed_configuration_does_not_load_with_the_old_weights(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    codec = unnoise.codec("chars", ["abcdef "])
    nano(codec=codec, depth=2).save(folder)
    config = json.loads((folder / "config.json").read_text())
    if what in ("heads", "attention_every"):
        config["network"]["config"][what] = {"heads": 1, "attention_every": 2}[what]
    elif what == "alphabet":
        config["codec"]["symbols"] = "bacdef "[::-1]
    else:
        config[what] = {"method": "mdlm:importance=true", "length": 12, "labels": ["a"]}[what]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"a different configuration|does not fit|needs a network"):
        unnoise.load(folder)


def test_weights_with_another_bit_are_refused(saved: Path) -> None:
    path = saved / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(ValueError, match="its numbers are not those that were saved"):
        unnoise.load(saved)


def test_weights_that_are_no_numbers_are_refused(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    for name, words in (("nan", "not finite"), ("int8", "whole numbers")):
        changed = dict(weights)
        head = changed["network.head.weight"]
        changed["network.head.weight"] = torch.full_like(head, torch.nan) if name == "nan" else head.to(torch.int8)
        save_file(changed, saved / "model.safetensors")
        with pytest.raises(ValueError, match=words):
            unnoise.load(saved)
    model = nano()
    with torch.no_grad():
        next(model.network.parameters()).fill_(torch.inf)
    before = (saved / "config.json").read_bytes()
    with pytest.raises(ValueError, match="not finite: such a model is not saved"):
        model.save(saved)
    assert (saved / "config.json").read_bytes() == before
    broken = nano()
    broken.notes = {"bits": float("nan")}
    with pytest.raises(ValueError, match="not plain JSON"):
        broken.save(saved)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "[" * 10_000 + "]" * 10_000,
        '"x"',
        "{",
        "\x00",
        '{"format": "unnoise-2"}',
        '{"format": "unnoise-1", "network": []}',
    ],
)
def test_a_configuration_that_is_none(saved: Path, content: str) -> None:
    (saved / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        unnoise.load(saved)


@pytest.mark.parametrize(
    "fields",
    [
        {"codec": "text8"},
        {"codec": {"kind": ["a"]}},
        {"codec": {"kind": "chars"}},
        {"codec": {"kind": "chars", "symbols": 5}},
        {"notes": "a text"},
        {"labels": [1]},
        {"length": True},
        {"length": "16"},
        {"network": {"name": "transformer", "config": {"inputs": 28, "outputs": 27, "length": 16, "depth": 100_000}}},
        {"network": {"name": "transformer", "config": {"inputs": 28, "outputs": 27, "length": 16, "width": 2**40}}},
        {"network": {"name": "transformer", "config": []}},
        {"network": {}},
        {"method": "nonsense"},
        {"method": 5},
    ],
)
def test_fields_of_the_wrong_kind_are_one_sentence_and_cost_nothing(saved: Path, fields: dict[str, object]) -> None:
    change(saved, **fields)
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"\w"):
        unnoise.load(saved)
    assert time.monotonic() - start < 5


def test_a_pipe_is_not_read(saved: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (saved / name).rename(saved / f"{name}.kept")
        os.mkfifo(saved / name)
        with pytest.raises(ValueError, match="not a regular file"):
            unnoise.load(saved)
        (saved / name).unlink()
        (saved / f"{name}.kept").rename(saved / name)
    assert unnoise.load(saved)


def test_one_damaged_folder_does_not_spoil_the_list(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = saved.parent / "runs"
    runs.mkdir()
    saved.rename(runs / "good")
    (runs / "bad").mkdir()
    (runs / "bad" / "config.json").write_text("[")
    monkeypatch.chdir(saved.parent)
    assert main(["ls"]) == 0
    out = capsys.readouterr().out
    assert "runs/bad" in out and "damaged" in out and "runs/good" in out


def test_notes_do_not_steer_the_terminal(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(saved, notes={"title": "\x1b[31mred\x07"})
    assert main(["info", "--model", str(saved)]) == 0
    assert "\x1b" not in (out := capsys.readouterr().out) and "red" in out


# ---- codecs, texts and images ------------------------------------------------------------------------------------------


def test_a_tokenizer_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Keep the existing tokenizer when a limit on file sizes stops the new one."""
    model = nano(codec=unnoise.codec("bpe-300", [TEXT]))
    model.save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()
    script = (
        "import resource, signal, unnoise; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"m = unnoise.load({str(tmp_path)!r})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        f"m.save({str(tmp_path)!r})"
    )
    done = forked.run(["-c", script])
    assert done.returncode != 0
    assert (tmp_path / "tokenizer.json").read_bytes() == before and unnoise.load(tmp_path).generate(steps=2)
    (tmp_path / "tokenizer.json").write_bytes(before[:4000])
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer, or damaged"):
        unnoise.load(tmp_path)


def test_another_bpe_does_not_read_the_first_ones_cache(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    source = corpus(str(tmp_path / "text.txt"))
    for size in (300, 290, 280):
        codec = source.codec(f"bpe-{size}", segment="sentences")
        assert int(source.texts(codec, "train", 16).windows().max()) < codec.vocab


def test_a_halved_cache_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXT)
    source = corpus(str(tmp_path / "text.txt"))
    codec = unnoise.codec("chars", [TEXT])
    whole = source.texts(codec, "train", 16).windows()
    (path,) = (tmp_path / "cache" / "tokens").glob("*.uint8")
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], bytes(reversed(content)), b""):
        path.write_bytes(damaged)
        assert torch.equal(source.texts(codec, "train", 16).windows(), whole)


def test_bits_are_per_character_for_tokens_too() -> None:
    codec = unnoise.codec("bpe-300", [TEXT])
    tokens = torch.from_numpy(codec.encode(TEXT))
    per_token = len(TEXT) / len(tokens)
    assert per_token > 1.2
    for data in (tokens, tokens[: len(tokens) // 16 * 16].view(-1, 16)):
        run = TrainingRun(nano(codec=codec), data, TrainingOptions(steps=1))
        assert run.valid_texts.characters == pytest.approx(per_token, rel=0.02)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "words.txt.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        for _ in range(64):
            file.write(b"a 1\n" * 2**18)
    with pytest.raises(ValueError, match="larger than a file may be"):
        read_bytes(bomb, 2**20)
    archive = tmp_path / "bomb.npz"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        info = zipfile.ZipInfo("train.npy")
        file.writestr(info, b"")
    content = bytearray(archive.read_bytes())
    at = content.index(b"PK\x01\x02") + 24  # the size in the directory
    content[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    archive.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="cannot read"):
        images(archive)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"no", "cut", "flip"])
def test_damaged_images(tmp_path: Path, damage: bytes | str) -> None:
    path = tmp_path / "pictures.npz"
    arrays = {"train": np.arange(20 * 16, dtype=np.uint8).reshape(20, 4, 4), "test": np.zeros((2, 4, 4), np.uint8)}
    np.savez_compressed(path, **arrays)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[60:80] = bytes(20)
    path.write_bytes(damage if isinstance(damage, bytes) else content[:200] if damage == "cut" else bytes(flipped))
    with pytest.raises(ValueError, match="cannot read"):
        images(path)


def test_a_vocabulary_beyond_all_bounds() -> None:
    with pytest.raises(ValueError, match="at most 1,000,000 tokens"):
        unnoise.codec("bpe-99999999999", [TEXT])


# ---- runs --------------------------------------------------------------------------------------------------------------


def test_two_runs_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    line = ["train", "mdlm", "--data", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run"), "--steps", "2"]
    with locked(tmp_path / "run"):
        assert main([*line, "--size", "nano", "--length", "16"]) == 2
        assert "another run is writing to" in capsys.readouterr().err
    assert main([*line, "--size", "nano", "--length", "16", "--json"]) == 0


def test_what_a_killed_run_left_behind_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.99.part").write_bytes(b"half")
    with locked(tmp_path):
        assert not list(tmp_path.glob(".*.part"))


def run_of(folder: Path, **options: object) -> TrainingRun:
    chosen = TrainingOptions(**{"steps": 8, "batch": 2, "eval_windows": 2, "save_every": 2, **options})  # pyright: ignore
    tokens = torch.from_numpy(unnoise.codec("text8").encode(TEXT))
    return TrainingRun(nano(), tokens, chosen, folder)


@pytest.mark.parametrize("how", ["cut", "changed", "unfinished"])
def test_a_damaged_state_falls_back_to_the_one_before(how: str, tmp_path: Path) -> None:
    run_of(tmp_path / "whole").run()
    run = run_of(tmp_path / "cut")
    run.run(stop=lambda: run.done >= 6)
    newest = max((tmp_path / "cut" / "checkpoints").iterdir())
    assert newest.name == "step-00000006" and not run.damaged
    if how == "cut":
        path = next(newest.glob("*.safetensors"))
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "changed":
        path = next(newest.glob("*.safetensors"))
        path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    else:
        (newest / "run.json").unlink()
    again = run_of(tmp_path / "cut")
    assert again.resume() and again.done == 4 and "step-00000006 cannot be read" in again.damaged
    again.run()
    whole, cut = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_a_state_without_its_step_is_one_sentence(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.run(stop=lambda: run.done >= 3)
    path = tmp_path / "checkpoints" / "step-00000003" / "run.json"
    about = {"method": "mdlm", "options": {}, "data_digest": run.data_digest, "files": json.loads(path.read_text())["files"]}
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match="does not record the progress"):
        run_of(tmp_path).resume()


def test_the_newest_checkpoints_are_kept_and_a_state_of_an_earlier_version_is_one_sentence(tmp_path: Path) -> None:
    run_of(tmp_path, keep=3).run()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [f"step-{i:08d}" for i in (4, 6, 8)]
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "training.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="was saved by an earlier version of unnoise"):
        run_of(tmp_path).resume()


def test_a_damaged_model_file_does_not_stop_a_run_from_going_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    shape = ["--size", "nano", "--length", "16", "--batch", "2", "--eval-windows", "2", "--json"]
    line = ["train", "mdlm", "--data", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run"), *shape]
    assert main([*line, "--steps", "3"]) == 0
    (tmp_path / "run" / "model.safetensors").write_bytes(b"cut")
    assert main([*line, "--steps", "6", "--resume"]) == 0
    assert unnoise.load(tmp_path / "run").notes["steps"] == 6


def test_a_run_that_comes_apart_is_not_finished_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    run = run_of(tmp_path, muon_lr=1e30, adam_lr=1e30, steps=50, save_every=1)
    with pytest.raises((DivergedError, ValueError), match=r"became|not finite"):
        run.run()
    if (tmp_path / "config.json").exists():
        assert unnoise.load(tmp_path)


def test_ten_kills_while_a_bpe_model_is_saved(tmp_path: Path) -> None:
    nano(codec=unnoise.codec("bpe-300", [TEXT])).save(tmp_path)
    model = unnoise.load(tmp_path)
    wanted = model.generate(steps=2)
    for i in range(10):
        child = os.fork()  # a process that has torch already
        while not child:
            model.save(tmp_path)
        time.sleep(0.02 + 0.013 * i)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert unnoise.load(tmp_path).generate(steps=2) == wanted


FULL_DISK = """
import contextlib, errno, os
from unnoise.cli.main import main

os.chdir("disk")
train = "train mdlm --data ../text.txt --save-every 1 --out run --json".split()
shape = "--size nano --length 16 --batch 2 --eval-windows 2".split()
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    assert main([*train, *shape, "--steps", "3"]) == 0
try:
    with open("fill", "wb", buffering=0) as file:
        while file.write(bytes(1024)):
            pass
except OSError as error:
    assert error.errno == errno.ENOSPC
assert main([*train, "--steps", "6", "--resume"]) == 2
assert not [name for name in os.listdir("run") if "part" in name]
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    assert main("generate --model run --steps 2".split()) == 0
os.remove("fill")
assert main([*train, "--steps", "6", "--resume"]) == 0
"""


def test_a_full_disk_costs_no_checkpoint(tmp_path: Path) -> None:
    """Fill a small file system: the run ends with one sentence, the model still samples, and with room the run resumes."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "disk").mkdir()
    script = [
        "unshare",
        "-rm",
        "bash",
        "-c",
        'mount -t tmpfs -o size=5m tmpfs disk && exec "$@"',
        "",
        sys.executable,
        "-c",
        FULL_DISK,
    ]
    names = {"UNNOISE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(script, cwd=tmp_path, env=os.environ | names, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(lines := done.stderr.strip().splitlines()) == 1 and "No space left on device" in lines[0]
    assert json.loads(done.stdout)["steps"] == 6
