"""The rooms of the package and who may enter which: imports go one way, and the mathematics stands alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "unnoise"

# Each room may import from those before it, and from no other.
ROOMS = (
    *("files", "keywords", "published_tables", "registry", "rng", "distributed", "schedule"),
    *("prediction", "process", "denoiser", "network", "objective", "sampler", "families", "method_table", "sampler_table"),
    *(
        "data",
        "checkpoint",
        "model",
        "training",
        "spelling",
        "filling",
        "recipes",
        "evaluation",
        "display",
        "studio",
        "cli",
        "__main__",
    ),
)
FILLING = ("fill", "word_search", "word_tokens", "word_left_to_right", "word_in_blocks")  # of model/, an application
MATHEMATICS = ("schedule", "prediction", "process", "denoiser", "objective", "sampler", "families", "rng")


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    if parts[0] == "model" and path.stem in FILLING:
        return "filling"
    return parts[0] if len(parts) > 1 else path.stem


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from runtime_nodes(node)


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unnoise":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names if alias.name != "__version__"}
    return found


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    here = ROOMS.index(room_of(path))
    later = {room for room in imported_rooms(path) if ROOMS.index(room) > here}
    assert not later, f"{room_of(path)} may not import from {later}"


def test_the_mathematics_loads_no_tokenizer_and_opens_no_file() -> None:
    modules = ", ".join(f"unnoise.{room}" for room in MATHEMATICS)
    script = f"import sys, {modules}; print([m for m in ('tokenizers', 'rich', 'tyro', 'safetensors') if m in sys.modules])"
    families = ["autoregressive", "any_order", "gaussian", "ddpm", "bayesian_flow", "insertion"]
    script = f"import {', '.join(f'unnoise.families.{name}' for name in families)}; {script}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_type_checkers_are_silenced_nowhere_in_the_mathematics() -> None:
    silenced = [path for path in SOURCES if "pyright: ignore" in path.read_text() or "type: ignore" in path.read_text()]
    assert not [path for path in silenced if room_of(path) in (*MATHEMATICS, "network", "method_table")]
    assert sum(path.read_text().count("pyright: ignore") for path in silenced) <= 3
    assert (PACKAGE / "py.typed").exists()


def test_a_file_is_one_idea() -> None:
    long = {str(path.relative_to(PACKAGE)): count for path in SOURCES if (count := len(path.read_text().splitlines())) > 300}
    assert set(long) <= {"network/transformer.py", "method_table.py", "schedule.py"}, long
