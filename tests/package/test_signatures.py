"""Functions and calls that stay readable: few parameters by position, keyword arguments for the rest."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_PARAMETERS, MOST_ARGUMENTS = 7, 5
# how many functions and calls may still exceed the two numbers; a limit only ever falls
PARAMETER_LIMITS = {"src": 0, "benchmarks": 0, "examples": 0, "tests": 0}
CALL_LIMITS = {"src": 20, "benchmarks": 2, "examples": 0, "tests": 11}


@cache
def syntax_trees(folder: str) -> dict[Path, ast.Module]:
    """Return the syntax tree of each Python file of a top folder."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions and methods, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def positional_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the parameters that a caller may pass by position; `self` and `cls` do not count."""
    names = [parameter.arg for parameter in [*function.args.posonlyargs, *function.args.args]]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def long_signatures(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function with too many positional parameters."""
    for function in functions(tree):
        if positional_parameters(function) > MOST_PARAMETERS:
            yield function.lineno, function.name


@cache
def own_names() -> frozenset[str]:
    """Return the names of all functions and classes of the package."""
    trees = syntax_trees("src").values()
    nodes = (node for tree in trees for node in ast.walk(tree))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))


def called_name(call: ast.Call) -> str:
    """Return the last part of the callee's name, or an empty string."""
    match call.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def long_calls(tree: ast.AST, own: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each call of a function in `own` with too many positional arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > MOST_ARGUMENTS and called_name(node) in own:
            yield node.lineno, called_name(node)


def listed(found: list[tuple[Path, int, str]]) -> str:
    return "\n".join(f"{path.relative_to(ROOT)}:{line}: {name}" for path, line, name in found)


@pytest.mark.parametrize("folder", PARAMETER_LIMITS)
def test_no_function_has_more_than_seven_parameters_by_position(folder: str) -> None:
    found = [(path, *one) for path, tree in syntax_trees(folder).items() for one in long_signatures(tree)]
    assert len(found) <= PARAMETER_LIMITS[folder], f"put * before the parameters that are passed by keyword:\n{listed(found)}"


@pytest.mark.parametrize("folder", CALL_LIMITS)
def test_no_call_passes_more_than_five_arguments_by_position(folder: str) -> None:
    found = [(path, *one) for path, tree in syntax_trees(folder).items() for one in long_calls(tree, own_names())]
    assert len(found) <= CALL_LIMITS[folder], f"pass arguments by keyword:\n{listed(found)}"


def test_the_counters_count() -> None:
    tree = ast.parse(
        "def f(a, b, c, d, e, g, h, i): ...\n"
        "class C:\n    def m(self, a, b, c, d, e, g, h): ...\n    def k(self, a, *, b, c, d, e, g, h, i): ...\n"
        "    async def n(self, a, b, c, /, d, e, g, h, i): ...\n"
        "x.f(1, 2, 3, 4, 5, 6)\nf(1, 2, 3, 4, 5, six=6)\ntheirs(1, 2, 3, 4, 5, 6)\n"
    )
    assert list(long_signatures(tree)) == [(1, "f"), (5, "n")]
    assert list(long_calls(tree, frozenset({"f"}))) == [(6, "f")]
