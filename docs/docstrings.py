"""A griffe extension that converts docstrings to Markdown for the API reference.

- Descriptions of fields or arguments, `name: meaning`, become a list.
- Shapes such as [B, L] become code, so that the * of [*P, K] is not emphasis.
"""

import re
from typing import Any

import griffe

SHAPE = re.compile(r"\[[^\[\]\n`]{0,60}\](?![(\[:])")
CODE = re.compile(r"(`[^`]*`)")
FIELD = re.compile(r"(?:^|(?<=[.;)] ))(\w+(?:, \w+)*): ")


def names_of(obj: griffe.Object) -> set[str]:
    """Return the fields and arguments that a docstring can describe, including inherited ones."""
    if obj.is_class:
        mine = set(obj.members) | {name for base in bases(obj) for name in base.members}
        init = obj.members.get("__init__")
        return mine | ({parameter.name for parameter in init.parameters} if init is not None and init.is_function else set())
    return {parameter.name for parameter in obj.parameters} if obj.is_function else set()


def bases(obj: griffe.Object) -> list[griffe.Class]:
    """Return the known base classes."""
    try:
        return obj.mro()
    except Exception:
        return []


def as_markdown(text: str, names: set[str]) -> str:
    """Format fields as a list and shapes as code; leave indented blocks, lists and tables unchanged."""
    return "\n\n".join(paragraph_as_markdown(paragraph, names) for paragraph in re.split(r"\n\s*\n", text))


def paragraph_as_markdown(paragraph: str, names: set[str]) -> str:
    """One paragraph: prose, then fields `name: what it is` if it speaks of any."""
    lines = paragraph.splitlines()
    if lines[0].startswith(("    ", "|", "- ", "    |")):
        return paragraph
    parts = FIELD.split(" ".join(map(str.strip, lines)))
    prose, items = parts[0], []
    for i in range(1, len(parts), 2):
        about = parts[i].split(", ")
        if set(about) <= names:
            items.append(f"- {', '.join(f'**{name}**' for name in about)}: {escaped(parts[i + 1].strip())}")
        elif items:
            items[-1] += f" {escaped(f'{parts[i]}: {parts[i + 1].strip()}')}"
        else:
            prose += f"{parts[i]}: {parts[i + 1]}"
    return "\n\n".join(filter(None, [escaped(prose.strip()), "\n".join(items)]))


def escaped(line: str) -> str:
    """Format shapes as code and escape Markdown characters in one line."""
    parts = CODE.split(line)
    for i in range(0, len(parts), 2):
        pieces = re.split(f"({SHAPE.pattern})", parts[i])
        for k, piece in enumerate(pieces):
            pieces[k] = f"`{piece}`" if k % 2 else piece.replace("<", "&lt;").replace("*", r"\*")
        parts[i] = "".join(pieces)
    return "".join(parts)


class Docstrings(griffe.Extension):
    """Rewrites every docstring once, when the package has been read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Walk through the package."""
        self._visit(pkg, set())

    def _visit(self, obj: griffe.Object, seen: set[int]) -> None:
        if id(obj) in seen:
            return
        seen.add(id(obj))
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value, names_of(obj))
        for member in obj.members.values():
            if not member.is_alias:
                self._visit(member, seen)
