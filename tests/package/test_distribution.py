"""The wheel is complete, and the files around it agree with the package."""

import re
import tomllib
from pathlib import Path

import pytest

import unnoise

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "unnoise"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_wheel_has_every_file_of_the_package() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    packed = {file.distribution_path for file in wheel.recurse_included_files()}
    files = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    assert packed == {path for path in files if "__pycache__" not in path}
    for model in ("stories", "wiki", "wiki-ar", "molecules", "digits"):
        assert {f"unnoise/models/{model}/{name}" for name in ("config.json", "model.safetensors", "card.md")} <= packed
    assert {Path(path).name for path in packed} >= {"page.html", "page.css", "page.js", "py.typed"}


def test_versions_agree() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [PROJECT["version"]] == [unnoise.__version__]
    assert re.findall(r"^license: (.+)$", citation, re.MULTILINE) == [PROJECT["license"]]


def test_workflows_use_targets_of_the_makefile_and_its_version_of_torch() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pinned = re.findall(r"^torch==(.+)$", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    workflows = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    for workflow in [*workflows, (ROOT / ".ci" / "run").read_text(encoding="utf-8")]:
        assert set(re.findall(r"^\s*(?:- run: )?make ([\w-]+)", workflow, re.MULTILINE)) <= targets
        assert set(re.findall(r"torch==([\d.]+)", workflow)) <= set(pinned)
    assert len(workflows) >= 2
