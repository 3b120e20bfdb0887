"""Checks of options and keywords, and settings in a name ("md4:offset=1e-4")."""

import ast
import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field as dataclass_field, fields
from numbers import Integral, Real
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin


def option(default: Any, **metadata: Any) -> Any:
    """Return a dataclass field whose metadata hold the bounds of its value, for `check_options`.

    min, max: inclusive bounds. above, below: exclusive bounds. aliases: other names of the option on the command line.
    """
    return dataclass_field(default=default, metadata=metadata)


def check_options(options: Any) -> None:
    """Raise ValueError if a field of a dataclass has a value of another type, or one outside the bounds of its metadata."""
    for one in fields(options):
        value, bounds = vars(options)[one.name], one.metadata
        kind, optional = _declared(one.type)
        if value is None and optional:
            continue
        if get_origin(kind) is Literal and value not in get_args(kind):
            *others, last = get_args(kind)
            raise ValueError(f"{one.name} must be {', '.join(others)} or {last}, found {value!r}")
        if kind not in (int, float):
            continue
        if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
            raise ValueError(f"{one.name} must be {'a whole number' if kind is int else 'a number'}, found {value!r}")
        inside = bounds.get("min", -math.inf) <= value <= bounds.get("max", math.inf)
        if bounds and not (inside and bounds.get("above", -math.inf) < value < bounds.get("below", math.inf)):
            raise ValueError(f"{one.name} must {_bounds(kind, bounds)}, found {value}")


def _declared(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a field without None and without the metadata of `Annotated`, and whether it allows None."""
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    kinds = [kind for kind in get_args(plain) if kind is not NoneType]
    optional = NoneType in get_args(plain)
    return (kinds[0] if optional and len(kinds) == 1 else plain), optional


def _bounds(kind: type[Any], metadata: Mapping[str, Any]) -> str:
    """Return the bounds in words: "be ≥ 1", "lie in [0, 1)", "be a whole number from 1 to 9"."""
    low, high = metadata.get("min", metadata.get("above")), metadata.get("max", metadata.get("below"))
    if high is None:
        return f"be {'≥' if 'min' in metadata else '>'} {low}"
    if kind is int:
        return f"be a whole number from {low:,} to {'2^63 − 1' if high == 2**63 - 1 else f'{high:,}'}"
    return f"lie in {'[' if 'min' in metadata else '('}{low}, {high}{']' if 'max' in metadata else ')'}"


def check_keywords(options: type[Any], found: Iterable[str], who: str) -> None:
    """Raise ValueError with the first keyword that is not a field of the dataclass `options`."""
    known = [field.name for field in fields(options)]
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
            raise ValueError(f"{who} has no option {name!r}: {hint}")


def parse_settings(name: str, text: str, what: str) -> dict[str, Any]:
    """Parse settings, "field=value,field=value". Values are numbers, true, false, none or strings."""
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
    """Return the arguments of a class or function with their defaults, or None if it accepts any keyword."""
    parameters = inspect.signature(part).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name: parameter.default for parameter in parameters}


def check_settings(
    name: str, settings: Mapping[str, Any] | Iterable[str], accepted: Mapping[str, Any] | Iterable[str] | None, what: str
) -> None:
    """Raise ValueError for the first setting that a part does not accept or whose type differs from its default's."""
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
    """Raise ValueError unless a value is a boolean or a number where the default is one."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError(f"{field} must be true or false, found {value!r}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, int | float) and not isinstance(default, bool) and not number:
        raise ValueError(f"{field} must be a number, found {value!r}")
