"""The errors that `unnoise score` and `eval` report: the interval, too few draws, a precision that was not reached."""

import json
from pathlib import Path

import pytest
import torch

import unnoise
from unnoise.cli.main import main
from unnoise.training.trainer import Report

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an untrained model with large random weights."""
    path = tmp_path_factory.mktemp("models") / "mdlm"
    model = unnoise.Model.build("mdlm", "text8", length=24, width=8, depth=1, heads=1)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    model.save(path)
    return path


def said(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[str, str]:
    assert main(list(command)) == 0
    return capsys.readouterr()


def test_a_score_has_its_interval(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "score", TEXT, "--model", str(folder), "--error", "10")
    score = unnoise.load(folder).score(TEXT, error=10)
    assert score.stderr is not None and score.interval is not None and not err
    low, high = score.interval
    assert f"± {score.stderr:.4f} from {score.draws} draws each, 95 % interval {low:.4f} to {high:.4f})" in out
    told = json.loads(said(capsys, "score", TEXT, "--model", str(folder), "--error", "10", "--json")[0])
    assert told["interval"] == [low, high] and told["stderr"] == score.stderr and told["reached"] is True


def test_an_error_that_was_not_met_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("score", TEXT, "--model", str(folder), "--samples", "16", "--error", "1e-4")
    _, err = said(capsys, *command)
    score = unnoise.load(folder).score(TEXT, 16, error=1e-4)
    assert score.stderr is not None
    needed = int(err.split("--samples ")[1].rstrip(")\n"))
    assert err.startswith(f"the standard error {score.stderr:.4f} is above --error 0.0001") and err.count("\n") == 1
    assert needed == pytest.approx(16 * (score.stderr / 1e-4) ** 2, rel=0.05)
    out, err = said(capsys, *command, "--json")
    assert json.loads(out)["reached"] is False and not err


def test_too_few_draws_have_no_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "score", TEXT, "--model", str(folder), "--samples", "2")
    assert "±" not in out and "from 2 draws each" in out and "pass --samples 16 or more" in err and err.count("\n") == 1
    told = json.loads(said(capsys, "score", TEXT, "--model", str(folder), "--samples", "2", "--json")[0])
    assert told["stderr"] is None and told["interval"] is None and told["reached"] is False


def test_a_short_text_is_not_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "score", "cat", "--model", str(folder))
    assert "(upper bound, all choices of masks)" in out and "±" not in out and not err


def test_eval_has_its_interval_too(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "text.txt"
    data.write_text((TEXT + " ") * 400)
    command = ("eval", "--model", str(folder), "--data", str(data), "--windows", "8", "--samples", "4", "--error", "1e-4")
    out, err = said(capsys, *command)
    told = json.loads(said(capsys, *command, "--json")[0])
    low, high = told["interval"]
    assert low < told["bits_per_char"] < high and told["reached"] is False and told["draws"] == 4
    assert f"± {told['stderr']:.4f} from 4 draws each, 95 % interval {low:.4f} to {high:.4f};" in out
    assert "is above --error 0.0001" in err


@pytest.mark.parametrize(("method", "drawn"), [("mdlm", True), ("ar", False)])
def test_training_tells_both_errors(method: str, drawn: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Print no ± 0.000 for an exact model: its error comes from the small number of texts."""
    data = tmp_path / "text.txt"
    data.write_text((TEXT + " ") * 400)
    out, err = said(
        capsys,
        *("train", method, "--data", str(data), "--out", str(tmp_path / "run"), "--steps", "2", "--batch", "2"),
        *("--length", "24", "--width", "8", "--depth", "1", "--heads", "1", "--eval-windows", "5"),
    )
    assert ("by drawing" in out) == drawn and ("±" in err) == drawn
    assert "as an estimate for all such texts, from the spread over those measured" in out


def test_a_report_has_the_error_over_texts() -> None:
    model = unnoise.Model.build("mdlm", "text8", length=8, width=8, depth=1, heads=1)
    report = unnoise.train(model, TEXT * 20, steps=2, batch=2, eval_windows=5)
    assert isinstance(report, Report) and report.text_stderr is not None and report.text_stderr > 0 and report.stderr > 0
