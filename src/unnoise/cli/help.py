"""The options of a command as `--help` shows them."""

import ast
import inspect
import itertools
import re
import types
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tyro.conf import arg

KINDS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
SAID_BY_THE_HELP = ("None", "True", "False", "", "''")  # defaults that the words of an option explain


def prepare_help(command: type[Any]) -> None:
    """Annotate the fields of a command, and of the dataclasses it derives from, for `--help`.

    An optional value is shown as `--steps INT`, and a default only where it is a value that one could type. The docstring
    below a field is its help, as one paragraph; a field that a subclass declares again keeps it.
    """
    described: dict[str, str] = {}
    for cls in reversed([cls for cls in command.__mro__ if is_dataclass(cls)]):
        described |= field_docstrings(cls)
        if "__annotations__" in vars(cls) and "_prepared_help" not in vars(cls):
            aliases = {one.name: one.metadata.get("aliases") for one in fields(cls)}
            for name, annotation in cls.__annotations__.items():
                cls.__annotations__[name] = _annotated(annotation, described.get(name), aliases[name])
            cls._prepared_help = True  # pyright: ignore[reportAttributeAccessIssue]


def option_table(options: type[Any]) -> str:
    """Return the options of a dataclass as a table in Markdown: name, default and help."""
    described = field_docstrings(options)
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for one in fields(options):
        default = "–" if one.default in (None, "") else f"`{one.default}`"
        meaning = re.sub(r"(?<![\w`-])(--?[a-z][\w-]*)", r"`\1`", described[one.name]).replace("|", r"\|")
        lines.append(f"| `{one.name}` | {default} | {meaning} |")
    return "\n".join(lines)


@cache
def field_docstrings(cls: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, as one paragraph."""
    (defined,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _annotated(annotation: Any, described: str | None, aliases: tuple[str, ...] | None) -> Any:
    """Return the annotation of a field with its help, if it has none yet."""
    plain, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    shown = arg(help=described, metavar=_metavar(plain), help_behavior_hint=default_hint, aliases=aliases)
    return Annotated[plain, shown, *metadata]  # what a field says itself comes last and wins


def _metavar(annotation: Any) -> str | None:
    """Return how the value of an optional field is shown, None for other fields."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return None
    kinds = [kind for kind in get_args(annotation) if kind is not types.NoneType]
    if len(kinds) == len(get_args(annotation)):
        return None
    return "|".join(
        "{" + ",".join(map(str, get_args(kind))) + "}" if get_origin(kind) is Literal else KINDS.get(kind, "STR")
        for kind in kinds
    )


def default_hint(default: str) -> str:
    """Return what `--help` adds about the default of an option."""
    return "" if default in SAID_BY_THE_HELP else f"(default: {default})"
