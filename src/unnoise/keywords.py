"""Options by keyword, and settings in a name ("md4:offset=1e-4"): a wrong one is said with the nearest right one."""

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
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


def parse_settings(name: str, text: str, what: str) -> dict[str, Any]:
    """The settings after a name, field=value,field=value; numbers, true, false and none are read as such, the rest as words."""
    found = {}
    for setting in filter(None, text.split(",")):
        field, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ValueError(f"fields of a {what} are set as {name}:field=value, found {setting!r}")
        try:
            found[field] = ast.literal_eval(value.capitalize() if value in ("true", "false", "none") else value)
        except (ValueError, SyntaxError):
            found[field] = value
    return found


def accepted_arguments(part: Callable[..., Any]) -> dict[str, Any] | None:
    """The arguments that a class or function takes, with their defaults, or None if it takes any keyword."""
    parameters = inspect.signature(part).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name: parameter.default for parameter in parameters}


def check_settings(
    name: str, settings: Mapping[str, Any] | Iterable[str], accepted: Mapping[str, Any] | Iterable[str] | None, what: str
) -> None:
    """Raise ValueError naming the first setting that a part does not take, or that is of another kind than its default."""
    known = None if accepted is None else sorted(accepted)
    for field in settings:
        if known is not None and field not in known:
            near = difflib.get_close_matches(field, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"the {what} {name} has no field {field!r}; {hint}it has {', '.join(known) or 'none'}")
    if isinstance(settings, Mapping) and isinstance(accepted, Mapping):
        for field, value in settings.items():
            _check_kind(f"{name}:{field}", value, accepted[field])


def _check_kind(field: str, value: Any, default: Any) -> None:
    """Raise ValueError unless a value is true or false, or a number, where the default is."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError(f"{field} must be true or false, found {value!r}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, int | float) and not isinstance(default, bool) and not number:
        raise ValueError(f"{field} must be a number, found {value!r}")
