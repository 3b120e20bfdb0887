"""`unnoise generate` with several models: a column for each, the texts of each alone, one sentence for what does not go."""

import json
import shlex
from pathlib import Path

import pytest
import torch

import unnoise
from unnoise.cli.main import main
from unnoise.data import Text8


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, method in (("a", "mdlm"), ("b", "udlm"), ("c", "ar")):
        model = unnoise.Model.build(method, Text8(), length=12, width=16, depth=1, heads=2)
        with torch.no_grad():
            for weight in model.network.parameters():
                weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
        model.save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(shlex.split(line))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_each_writes_as_alone(capsys: pytest.CaptureFixture[str]) -> None:
    both = "generate --model a --model b --model c --seed 4 --length 9 --json"
    found = json.loads(run(both, capsys)[1])
    assert found["seed"] == 4 and [one["model"] for one in found["models"]] == ["a", "b", "c"]
    for one in found["models"]:
        alone = json.loads(run(f"generate --model {one['model']} --seed 4 --length 9 --json", capsys)[1])
        assert alone["texts"] == one["texts"] and alone["method"] == one["method"]
        assert alone["keeps_distribution"] == one["keeps_distribution"]


def test_texts_stand_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("generate --model a --model b --num-samples 3 --steps 5", capsys)
    assert code == 0 and out.split()[:2] == ["a", "b"]
    columns = [[], []]
    for line in out.splitlines():
        for column, part in zip(columns, (line[:30], line[30:]), strict=True):
            column.append(part.strip())
    for name, column in zip("ab", columns, strict=True):
        for text in unnoise.load(name).generate(3, steps=5):
            assert text.strip() in column


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("generate --model a --model b --watch", "leave out --watch, or give one --model"),
        ("generate --model a --model b --stream", "leave out --stream"),
        ("generate --model a --model b --replay r.html", "leave out --replay"),
        ("generate --model a --model b --workers 2", "leave out --workers"),
        ("generate --model a --model digits", "digits is a model of images: give it alone"),
        ("generate --model a --model c --sampler ancestral", "ar cannot sample with ancestral"),
        ("generate --model a --model a", "give each --model once"),
        ("generate --model a --model b --num-samples 0", "the number of samples must be ≥ 1"),
        ("complete --prefix a --model a --model b", "unnoise complete takes one --model, found a and b"),
    ],
)
def test_mistakes(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(line, capsys)
    assert code == 2 and not out and err.startswith("unnoise: ") and words in err and err.count("\n") == 1
