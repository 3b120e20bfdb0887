"""Import directions: each layer imports only layers before it, and the core works without the applications."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "unnoise"

# Each layer may import from those before it, and from no other.
LAYERS = (
    *("files", "published_tables", "registry", "rng", "distributed", "schedule"),
    *("prediction", "process", "denoiser", "network", "objective", "sampler", "families"),
    *(
        "method_table",
        "token_methods",
        "family_methods",
        "sampler_table",
        "data",
        "checkpoint",
        "model",
        "training",
        "recipes",
        "evaluation",
        "cli",
    ),
    *("__main__", "apps"),
)
MATHEMATICS = ("schedule", "prediction", "process", "denoiser", "objective", "sampler", "families", "rng")
LONGEST = 350  # lines of a file


def layer_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from runtime_nodes(node)


def imported_layers(nodes: Iterator[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unnoise":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names if alias.name != "__version__"}
    return found


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
CORE = [path for path in PACKAGE.rglob("*.py") if layer_of(path) != "apps"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_earlier_layers(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    here = LAYERS.index(layer_of(path))
    later = {layer for layer in imported_layers(runtime_nodes(tree)) if LAYERS.index(layer) > here}
    assert not later, f"{layer_of(path)} may not import from {later}"


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_names_no_application(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "apps" not in imported_layers(ast.walk(ast.parse(text))), "not even for type checkers"
    assert "unnoise.apps" not in text


USE_THE_CORE = """
import sys
sys.modules["unnoise.apps"] = None
import unnoise
from unnoise.cli.main import main

model = unnoise.Model.build("mdlm", length=16, size="nano")
unnoise.train(model, ["the cat sat"] * 40, steps=2, eval_windows=2)
model.save("saved")
model = unnoise.load("saved")
assert len(model.generate(1, steps=2)) == 1
assert model.infill("the [MASK]at", steps=2)[0].startswith("the ")
assert model.score("the cat", samples=2).nats > 0
assert unnoise.load("digits").draw(1, steps=2).shape[0] == 1
assert main(["generate", "--model", "saved", "--steps", "2", "--length", "8"]) == 0
assert main(["convert", "saved", "--out", "converted"]) == 0
assert main(["fill", "the [WORD]"]) == 2
assert not [name for name in sys.modules if name.startswith("unnoise.apps.")]
"""


def test_the_core_works_without_the_applications(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", USE_THE_CORE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_mathematics_loads_no_tokenizer_and_opens_no_file() -> None:
    modules = ", ".join(f"unnoise.{layer}" for layer in MATHEMATICS)
    script = f"import sys, {modules}; print([m for m in ('tokenizers', 'rich', 'tyro', 'safetensors') if m in sys.modules])"
    families = sorted(path.stem for path in (PACKAGE / "families").glob("[a-z]*.py"))
    script = f"import {', '.join(f'unnoise.families.{name}' for name in families)}; {script}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_type_checkers_are_silenced_nowhere_in_the_mathematics() -> None:
    silenced = [path for path in SOURCES if "pyright: ignore" in path.read_text() or "type: ignore" in path.read_text()]
    assert not [
        path
        for path in silenced
        if layer_of(path) in (*MATHEMATICS, "network", "method_table", "token_methods", "family_methods")
    ]
    assert sum(path.read_text().count("pyright: ignore") for path in silenced) <= 3
    assert (PACKAGE / "py.typed").exists()


def test_a_file_is_one_idea() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert not {name: count for name, count in lengths.items() if count > LONGEST}


def test_a_module_name_is_unique_in_the_core() -> None:
    names = [path.stem for path in CORE if path.stem != "__init__"]
    assert not {name for name in names if names.count(name) > 1}
