"""Measured points survive a killed run; texts that cannot be judged are counted; several models in one picture."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import unnoise
from unnoise.cli.main import main
from unnoise.data import Bpe, Characters, Text8
from unnoise.evaluation.frontier import SavedPoints, fingerprint
from unnoise.evaluation.generative import LikelihoodJudge, TextMeasures, measure_texts
from unnoise.model.model import Model

pytest.importorskip("matplotlib")


def small(method: str, codec: unnoise.Codec | None = None, seed: int = 0) -> Model:
    """Return a model that writes varied letters."""
    model = Model.build(method, codec or Text8(), length=12, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel() + seed)))
    return model


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with models of three codecs and a judge."""
    small("mdlm").save(tmp_path / "a")
    small("mdlm", seed=1).save(tmp_path / "b")
    small("mdlm", Characters("Abcdefgh ")).save(tmp_path / "capitals")
    small("mdlm", Bpe.train(["the cat sat"], 260)).save(tmp_path / "pairs")
    small("ar").save(tmp_path / "judge")
    monkeypatch.chdir(tmp_path)
    return tmp_path


QUALITY = "plot quality --model a --judge judge --samplers ancestral --calls 2 3 4 --num-samples 2 --out q.png"
FRONTIER = (
    "plot frontier --model a --judge judge --samplers ancestral --temperatures 0.5 0.8 1 --steps 3 --num-samples 2 --out q.png"
)


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(shlex.split(line))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(("line", "kind"), [(QUALITY, "quality"), (FRONTIER, "frontier")])
def test_a_killed_run_continues(
    line: str, kind: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in its third point, the file has two; then only one is measured, and the result is the same."""
    assert run(f"{line} --json".replace("q.png", "whole.png"), capsys)[0] == 0
    whole = json.loads((home / "whole.json").read_text())["points"]
    generate, calls = Model.generate, []

    def follow(model: Model, *arguments: Any, **options: Any) -> list[str]:
        calls.append(options)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(model, *arguments, **options)

    monkeypatch.setattr(Model, "generate", follow)
    assert run(line, capsys)[0] == 130
    assert json.loads((home / "q.json").read_text())["points"] == whole[:2] and not (home / "q.png").exists()
    code, out, err = run(f"{line} --json", capsys)
    assert code == 0 and len(calls) == 4 and "2 points from q.json, measured before" in err
    assert json.loads((home / "q.json").read_text())["points"] == whole and len(json.loads(out)[kind]) == 3
    assert (home / "q.png").read_bytes() == (home / "whole.png").read_bytes()


def test_a_point_is_measured_again_when_anything_that_it_depends_on_differs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(QUALITY, capsys)[0] == 0
    for other in ("--seed 1", "--num-samples 3", "--calls 5 6", "--judge judge2"):
        small("ar", seed=3).save(home / "judge2")
        assert "measured before" not in run(f"{QUALITY} {other}", capsys)[2], other
    small("mdlm", seed=2).save(home / "a")  # other weights under the same name
    assert "measured before" not in run(QUALITY, capsys)[2]
    assert "3 points from q.json, measured before" in run(QUALITY, capsys)[2]


def test_fingerprints_tell_models_apart() -> None:
    one = fingerprint(small("mdlm"))
    assert one == fingerprint(small("mdlm")) and len({one, fingerprint(small("mdlm", seed=1)), fingerprint(small("md4"))}) == 3


@pytest.mark.parametrize("content", ["[]", "{}", "no json", '{"format": "unnoise-points-1", "points": [3]}'])
def test_a_file_of_another_kind_is_not_written_over(content: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "q.json").write_text(content)
    code, out, err = run(QUALITY, capsys)
    assert code == 2 and not out and err.count("\n") == 1 and "q.json exists and holds no measured points" in err
    assert (home / "q.json").read_text() == content


def test_saved_points_are_written_one_by_one(tmp_path: Path) -> None:
    point = TextMeasures("x", 1.0, 1, 2.0, 3.0, 0.5, 0.5, 0.5, 0.5, 0.5)
    saved = SavedPoints(tmp_path / "p.json", TextMeasures, judge="j")
    for i in range(3):
        assert saved.get(lambda: point, i=i) == point
        assert len(json.loads((tmp_path / "p.json").read_text())["points"]) == i + 1
    again = SavedPoints(tmp_path / "p.json", TextMeasures, judge="j")
    assert again.get(lambda: pytest.fail("measured again"), i=1) == point and again.found == 1
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_texts_that_cannot_be_judged_are_counted(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report them, and measure the others."""
    by = LikelihoodJudge(small("ar"))
    plain = measure_texts(["the cat", "a hat"], by.model, by)
    some = measure_texts(["the cat", "Ωmega", "", "a hat", "it’s"], by.model, by)
    assert plain.left_out == 0 and some == plain._replace(left_out=3)
    monkeypatch.setattr(Model, "generate", lambda *_, **__: ["the cat", "the \x80at"])
    code, _, err = run(QUALITY, capsys)
    assert code == 0 and "1 text by a with ancestral at 2 calls left out: empty, or outside the judge's alphabet" in err
    assert [one["left_out"] for one in json.loads(run(f"{QUALITY} --json", capsys)[1])["quality"]] == [1, 1, 1]
    code, _, err = run(FRONTIER.replace("q.png", "f.png"), capsys)
    assert code == 0 and "1 text by a with ancestral at temperature 0.5 left out" in err


@pytest.mark.parametrize("line", [QUALITY, FRONTIER])
def test_several_models_in_one_picture(line: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(f"{line} --model b --json", capsys)
    found = json.loads(out)[line.split()[1]]
    assert code == 0 and [one["model"] for one in found] == ["a"] * 3 + ["b"] * 3
    for name in "ab":  # each as alone
        alone = json.loads(
            run(f"{line.replace('--model a', f'--model {name}')} --json".replace("q.png", f"{name}.png"), capsys)[1]
        )
        assert [{**one, "on_frontier": 0} for one in alone[line.split()[1]]] == [
            {**one, "on_frontier": 0} for one in found if one["model"] == name
        ]
    code, out, _ = run(f"{line} --model b", capsys)
    assert code == 0 and out.splitlines()[0].split()[:2] == ["model", "sampler"] and "\nb     ancestral" in out
    svg = run(f"{line} --model b --out both.svg", capsys)
    assert svg[0] == 0 and (home / "both.svg").stat().st_size > 0


def test_several_models_of_the_other_pictures(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = home / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log while the rat ran round the hat " * 60)
    options = "--width 16 --depth 1 --heads 2 --length 16 --batch 4 --eval-windows 4"
    for name in ("x", "y"):
        assert run(f"train mdlm --data text.txt --out runs/{name} --steps 3 {options} --json", capsys)[0] == 0
    both = "--model runs/x --model runs/y"
    for kind in ("curve", "schedule", "loss"):
        code, _, err = run(f"plot {kind} {both} --data text.txt --steps 4 --out {kind}.svg --json", capsys)
        assert code == 0, err
        assert (home / f"{kind}.svg").read_bytes()[:5] == b"<?xml"
    found = json.loads(run(f"plot schedule {both} --steps 4 --json --out s.png", capsys)[1])["revealed"]
    assert [one["schedule"] for one in found] == ["x", "y"] * 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plot chain --model a --model b", "unnoise plot chain takes one --model, found a and b"),
        ("score abc --model a --model b", "unnoise score takes one --model, found a and b"),
        ("infill [MASK] --model a --model=b", "unnoise infill takes one --model, found a and b"),
        ("plot quality --model a --model a", "give each --model once, found a a"),
        ("plot loss --model a --model pairs", "a and pairs have different codecs"),
        ("plot frontier --judge judge --model a --model pairs", "the entropy of a frontier is counted in tokens"),
        ("plot quality --judge judge --model a --model digits", "a judge scores texts"),
        ("plot quality --judge judge --model a --model nowhere", "there is no model in nowhere"),
        ("plot curve --model a --model b", "a has no training log"),
        ("plot schedule --model a --schedules linear", "--schedules are for"),
    ],
)
def test_mistakes(line: str, words: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(line, capsys)
    assert code == 2 and not out and err.startswith("unnoise: ") and words in err and err.count("\n") == 1
    assert not list(home.glob("*.png")) and not list(home.glob("*.json"))
