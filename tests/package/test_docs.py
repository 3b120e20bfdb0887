"""The documentation is true: its Python runs, its names exist, its notebooks work, and the site builds without a warning."""

import ast
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import forked
import unnoise
from unnoise.sampler_table import sampler_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "notebooks" not in path.parts)
EXTENDING = sorted(path for path in (DOCS / "extending").glob("*.md") if path.stem != "README")
EXTENDING_TABLE = (DOCS / "extending" / "README.md").read_text(encoding="utf-8").splitlines()
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SINGLE_THREAD = os.environ | {"OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


# ---- pages ------------------------------------------------------------------------------------------------------------


def run_python(code: str, folder: Path) -> None:
    script = folder / "page.py"
    script.write_text(code, encoding="utf-8")
    done = forked.run([str(script)], cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    [
        *("index", "tutorial", "training", "data", "recipes", "samplers", "determinism", "models", "denoise"),
        *("apps/harness", "apps/images"),
    ],
)
def test_the_python_of_a_page_runs_in_order(name: str, tmp_path: Path) -> None:
    blocks = python_blocks(DOCS / f"{name}.md")
    assert blocks
    run_python("\n".join(blocks), tmp_path)


def test_the_pages_on_extending_run(tmp_path: Path) -> None:
    assert len(EXTENDING) == 6
    run_python("\n".join(block for page in EXTENDING for block in python_blocks(page)), tmp_path)


@pytest.mark.parametrize("page", EXTENDING, ids=lambda page: page.stem)
def test_a_plugin_has_as_many_lines_as_its_page_says(page: Path) -> None:
    plugin, *_ = python_blocks(page)
    lines = [line for line in plugin.splitlines() if line.strip()]
    assert f"of {len(lines)} lines" in page.read_text(encoding="utf-8")
    row = next(row for row in EXTENDING_TABLE if f"]({page.name})" in row)
    assert row.endswith(f"| {len(lines)} | 0 |")


def test_an_application_of_a_page_adds_its_command(tmp_path: Path) -> None:
    plugin, *_ = python_blocks(DOCS / "extending" / "application.md")
    (tmp_path / "distinct.py").write_text(plugin, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "unnoise", "distinct", "--num-samples", "1"],
        env=SINGLE_THREAD | {"UNNOISE_PLUGINS": str(tmp_path / "distinct.py")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and 0 < float(done.stdout) <= 1, done.stderr


def test_the_pages_on_extending_show_the_example_as_it_is() -> None:
    source = (ROOT / "examples" / "own_parts.py").read_text(encoding="utf-8")
    shown = "\n".join(block for page in EXTENDING for block in python_blocks(page))
    lines = source.splitlines()
    parts = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert len(parts) == 3
    for part in parts:
        first = min([part.lineno, *(decorator.lineno for decorator in part.decorator_list)])
        assert "\n".join(lines[first - 1 : part.end_lineno]) in shown


def test_every_file_that_is_named_exists() -> None:
    known = {path.name for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")}
    paths = {
        str(path.relative_to(ROOT))
        for folder in ("src", "tests", "benchmarks", "examples")
        for path in ROOT.glob(f"{folder}/**/*")
    }
    known |= {f"{name}.py" for name in ("gru", "words", "left_first", "quadratic", "focal", "distinct")}  # of docs/extending
    for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"`([\w/.-]+\.py)`", page.read_text(encoding="utf-8")):
            found = name in known if "/" not in name else any(path.endswith(name) for path in paths)
            assert found, f"{page.name} names {name}, which does not exist"
        for name in re.findall(r"`((?:src|tests|benchmarks|examples|[a-z_]+)/)`", page.read_text(encoding="utf-8")):
            assert name in ("site/", "runs/") or any(f"/{name}" in f"/{path}" for path in paths), f"{page.name} names {name}"


def test_every_part_of_the_package_is_in_the_architecture() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    parts = {
        path.name for path in (ROOT / "src" / "unnoise").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    for name in parts - {"__init__.py", "__main__.py"}:
        assert f"`{name}`" in text if name.endswith(".py") else f"`{name}/" in text, f"architecture.md lacks {name}"


def test_every_method_has_a_page_and_every_sampler_a_row() -> None:
    listed = (DOCS / "methods" / "README.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in unnoise.methods():
        assert (DOCS / "methods" / f"{name}.md").exists(), f"docs/methods/{name}.md is missing"
        assert f"({name}.md)" in listed and f"methods/{name}.md" in navigation, name
    table = (DOCS / "samplers.md").read_text(encoding="utf-8")
    for name in sampler_names():
        assert f"`{name}`" in table, f"samplers.md lacks {name}"


@pytest.mark.parametrize(
    ("page", "options"), [("training.md", unnoise.TrainingOptions), ("samplers.md", unnoise.SamplingOptions)]
)
def test_the_options_are_as_documented(page: str, options: type) -> None:
    table = runpy.run_path(str(DOCS / "option_tables.py"))["option_table"](options)
    assert all(f"| `{field.name}` |" in table for field in fields(options))
    assert table in (DOCS / page).read_text(encoding="utf-8"), "run python docs/option_tables.py"


def test_every_extra_is_explained() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(extras) <= set(rows), set(extras) - set(rows)


# ---- the API reference ------------------------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference() -> None:
    shown = {
        line.split()[1] for page in (DOCS / "api").glob("*.md") for line in page.read_text().splitlines() if line[:4] == "::: "
    }
    missing = [name for name in unnoise.__all__ if f"unnoise.{name}" not in shown]
    assert not missing, f"docs/api lacks {', '.join(missing)}"


def test_docstrings_become_markdown() -> None:
    pytest.importorskip("griffe", reason="the docs extra is not installed")
    spec = importlib.util.spec_from_file_location("docstrings", DOCS / "docstrings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rest = "    x = [1]\n\n| a | b |\n|---|---|"
    text = f"What it is: [*P, K] → [*P].\n\nsteps: how many,\n    one call each. rate: its size.\n\n{rest}"
    wanted = "What it is: `[*P, K]` → `[*P]`.\n\n- **steps**: how many, one call each.\n- **rate**: its size."
    found = module.as_markdown(text, {"steps", "rate"})
    assert found == f"{wanted}\n\n{rest}"
    assert module.as_markdown("steps: not a field here; x^{<i}", set()) == "steps: not a field here; x^{&lt;i}"


# ---- notebooks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """From its first cell to its last, with a short training where there is one."""
    nbclient = pytest.importorskip("nbclient", reason="the docs extra is not installed")
    nbformat = pytest.importorskip("nbformat", reason="the docs extra is not installed")
    pytest.importorskip("ipykernel", reason="the docs extra is not installed")
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = "steps = 16"
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=SINGLE_THREAD)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_with_its_outputs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/root/|/work/|/home/|/tmp/", text)
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) - 4
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])


# ---- the site ---------------------------------------------------------------------------------------------------------


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    for needed in ("mkdocs", "material", "mkdocstrings", "mkdocs_jupyter"):
        pytest.importorskip(needed, reason="the docs extra is not installed")
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env=SINGLE_THREAD,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = sorted(site.rglob("*.html"))
    assert {"index.html", "tutorial.html", "api/samplers.html", "notebooks/first_model.html", "notebooks/exact_bound.html"} <= {
        str(page.relative_to(site)) for page in pages
    }
    assert not list(site.rglob("*.py"))
    fetched = re.compile(
        r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"'](?:https?:)?//|<link\b[^>]*rel=.stylesheet.[^>]*href=.(?:https?:)?//|import[^;]*https?://"
    )
    for page in pages:
        found = fetched.search(page.read_text(encoding="utf-8"))
        assert not found, f"{page.name} fetches {found and found.group()}"
