"""Options by keyword: a wrong one is said with the nearest right one."""

import difflib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any


def check_keywords(options: type[Any], found: Iterable[str], who: str) -> None:
    """Raise ValueError naming the first keyword that is no field of the dataclass `options`."""
    known = [field.name for field in fields(options)]
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
            raise ValueError(f"{who} has no option {name!r}: {hint}")
