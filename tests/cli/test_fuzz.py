"""A hundred and more of the cases of benchmarks/fuzz.py: refused in one sentence, or with the same numbers as before."""

import runpy
from pathlib import Path

import pytest

FUZZ = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "fuzz.py"))


@pytest.mark.parametrize(
    ("kind", "count"), [("models", 120), ("states", 20), ("images", 40), ("commands", 12), ("requests", 80)]
)
def test_what_is_damaged_or_malformed_is_refused(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "requests":
        pytest.importorskip("uvicorn")
    monkeypatch.setenv("UNNOISE_CACHE", "")  # put back afterwards
    found, failures = FUZZ["fuzz"](kind, count, seed=11)
    assert not failures and found.total() == count and found["refused"] > count / 4
