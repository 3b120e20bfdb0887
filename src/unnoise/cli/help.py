"""Help texts and placeholders of options for `--help`."""

import ast
import inspect
import itertools
import types
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tyro.conf import arg

KINDS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
HIDDEN = ("None", "True", "False", "", "''")  # defaults that the help text explains
_prepared: set[type[Any]] = set()


def prepare_help(command: type[Any]) -> None:
    """Annotate the fields of a command, and of its base dataclasses, with their help.

    The docstring below a field is its help text, also where a subclass declares the field again.
    `--help` shows an optional value as `--steps INT`, and a default only if a user could type it.
    """
    described: dict[str, str] = {}
    for cls in reversed([cls for cls in command.__mro__ if is_dataclass(cls)]):
        described |= field_docstrings(cls)
        if "__annotations__" in vars(cls) and cls not in _prepared:
            aliases = {one.name: one.metadata.get("aliases") for one in fields(cls)}
            for name, annotation in cls.__annotations__.items():
                cls.__annotations__[name] = _annotated(annotation, described.get(name), aliases[name])
            _prepared.add(cls)


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
    plain, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    shown = arg(help=described, metavar=_metavar(plain), help_behavior_hint=default_hint, aliases=aliases)
    return Annotated[plain, shown, *metadata]  # the last annotation wins, so a field may override its help


def _metavar(annotation: Any) -> str | None:
    """Return the placeholder for the value of an optional field, or None for any other field."""
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
    """Return the note on the default of an option in `--help`."""
    return "" if default in HIDDEN else f"(default: {default})"
