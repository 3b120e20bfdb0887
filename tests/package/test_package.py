"""The house itself: what is public, how fast it opens, that its texts are true."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import forked
import unnoise

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_the_methods() -> None:
    names = unnoise.methods()
    wanted = [
        "multinomial",
        "d3pm-uniform",
        "d3pm-absorb",
        "udlm",
        "mdlm",
        "md4",
        "genmd4",
        "sedd-absorb",
        "sedd-uniform",
        "csm",
    ]
    assert set(wanted) <= set(names)
    for name in names:
        method = unnoise.method(name)
        assert method.name == name and "arXiv" in method.paper


def test_every_public_name_loads_and_is_documented() -> None:
    for name in unnoise.__all__:
        thing = vars(unnoise).get(name) or unnoise.__getattr__(name)
        assert inspect.getdoc(thing), f"{name} has no docstring"
    with pytest.raises(AttributeError):
        _ = unnoise.nonsense  # pyright: ignore[reportAttributeAccessIssue]


def test_the_names_for_type_checkers_are_those_that_load() -> None:
    listed = ast.parse((ROOT / "src" / "unnoise" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in listed.body if isinstance(node, ast.ImportFrom)]
    names = [(alias.name, node.module) for node in imports for alias in node.names]
    assert names == list(unnoise._MODULE_OF.items()) and len(names) == len(unnoise.__all__)


def test_it_imports_without_the_modules_of_unix() -> None:
    """On Windows there are no fcntl and no resource."""
    code = (
        "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "import unnoise, unnoise.cli.main, unnoise.training.run, unnoise.checkpoint.format\n"
        "[getattr(unnoise, name) for name in unnoise.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_function_has_a_docstring() -> None:
    missing = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            missing.append(str(path))
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            assigned = any(isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__doc__" for one in node.body)
            if not ast.get_docstring(node) and not assigned and not node.name.startswith("_"):
                missing.append(f"{path.name}: {node.name}")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not ast.get_docstring(node):
                missing.append(f"{path.name}: {node.name}")
    assert not missing


def test_a_method_that_overrides_nothing_has_a_docstring() -> None:
    """Require a docstring of every public method, except of overrides, properties and methods of one statement."""
    import importlib

    missing = []
    for path in SOURCES:
        if path.stem.startswith("__"):
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
        for name, thing in vars(module).items():
            if not inspect.isclass(thing) or thing.__module__ != module.__name__ or name.startswith("_"):
                continue
            for attribute, value in vars(thing).items():
                if attribute.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                    continue
                if (
                    attribute not in ("forward", "backward", "run")  # a command describes itself
                    and inspect.isfunction(value)
                    and statements(value) > 1
                    and not inspect.getdoc(vars(thing)[attribute])
                    and not any(
                        inspect.getdoc(vars(base).get(attribute)) for base in thing.__mro__[1:] if attribute in vars(base)
                    )
                ):
                    missing.append(f"{name}.{attribute}")
    assert not missing


def statements(function: Callable[..., object]) -> int:
    """Return the number of statements of a function, 0 for a function that a decorator made."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return sum(len(node.body) for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_dispatch_by_name() -> None:
    """No hasattr or getattr anywhere; no comparison with a method's name outside the table."""
    names = set(unnoise.methods())
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("hasattr", "getattr", "setattr"), f"{path}:{node.lineno}"
            if isinstance(node, ast.Compare) and path.name not in ("method_table.py", "token_methods.py", "family_methods.py"):
                for side in (node.left, *node.comparators):
                    assert not (isinstance(side, ast.Constant) and side.value in names), f"{path}:{node.lineno}"


def test_importing_adds_little_to_torch() -> None:
    """Under a third of the computing that torch's own import takes, also with every public name loaded.

    torch's objects are taken out of the garbage collector's sight, which would otherwise walk over them while we import.
    """
    code = (
        "import gc, time; begun = time.process_time(); import torch; gc.collect(); gc.freeze(); start = time.process_time(); "
        "import unnoise; [vars(unnoise).get(n) or unnoise.__getattr__(n) for n in unnoise.__all__]; "
        "print(time.process_time() - start, start - begun)"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(3)]
    ours, theirs = (min(map(float, column)) for column in zip(*runs, strict=True))
    assert ours < theirs / 3, (ours, theirs)


def test_importing_the_package_alone_does_not_wait_for_torch() -> None:
    commands = ", ".join(f"unnoise.apps.{name}.command" for name in ("filling", "spelling", "studio"))
    code = f"import sys, unnoise, {commands}; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_readmes_python_runs() -> None:
    blocks = readme_blocks("python")
    blocks += re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "apps" / "spelling.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        done = forked.run(["-c", block], cwd=ROOT)
        assert done.returncode == 0, done.stderr


def test_the_project_speaks_of_itself_alone() -> None:
    forbidden = re.compile(r"\bshared/|/root/|/work/|issue #?\d|\bsession\b", re.IGNORECASE)
    texts = [
        *SOURCES,
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.py"),
        *ROOT.glob("*.md"),
        ROOT / "Makefile",
    ]
    for path in texts:
        found = forbidden.search(path.read_text())
        assert not found, f"{path.name}: {found and found.group()}"
