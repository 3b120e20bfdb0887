"""Registry of parts by name, built in and of plug-ins, and checks of their options and settings.

    @unnoise.register("network", "gru")
    class Gru(torch.nn.Module): ...

A registered part works wherever a built-in part does: in `Model.build`, the trainer, saved models, the command line and the
studio. A saved model stores the names of its parts, which must be registered before it is loaded, in one of three ways:

- import the module that registers them;
- install a package with an entry point in the group `unnoise.plugins` that names the module;
- list the module, or the path of a Python file, in the environment variable UNNOISE_PLUGINS (separated by commas).

A name may carry settings, as in "md4:offset=1e-4".
"""

import ast
import difflib
import importlib
import importlib.metadata
import importlib.util
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field as dataclass_field, fields
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType, NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

Kind = Literal["network", "codec", "sampler", "method", "recipe", "callback", "command"]
KINDS: tuple[Kind, ...] = ("network", "codec", "sampler", "method", "recipe", "callback", "command")
GROUP, VARIABLE = "unnoise.plugins", "UNNOISE_PLUGINS"

Part = TypeVar("Part")
_parts: dict[Kind, dict[str, Any]] = {kind: {} for kind in KINDS}
_builtin: dict[Kind, set[str]] = {kind: set() for kind in KINDS}
_plugins_loaded = False


def register(kind: Kind, name: str) -> Callable[[Part], Part]:
    """Return a decorator that registers a part under a name.

    network: a torch.nn.Module class (see `unnoise.Network`).
    codec: a subclass of `unnoise.Codec`.
    sampler: a frozen dataclass derived from `unnoise.Sampler`.
    method: an `unnoise.Method`, or a function that returns one; its arguments are options.
    recipe: an `unnoise.Recipe`.
    callback: a subclass of `unnoise.Callback`; each training run calls it without arguments to create its callback.
    command: a dataclass with a method `run`; a subclass of a command of the core may take its name and extend it.

    A part may also be a string "module:name", which is imported on first use.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of part {kind!r}: use one of {', '.join(KINDS)}")
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise ValueError(f"a name has letters, digits, - _ and . only, found {name!r}")
    if name in _builtin[kind] and kind != "command":
        raise ValueError(f"{name!r} is a built-in {kind}: choose another name")

    def keep(part: Part) -> Part:
        _parts[kind][name] = part
        return part

    return keep


def register_builtin(kind: Kind, parts: Mapping[str, Any]) -> None:
    """Register built-in parts, whose names plug-ins cannot use, except to extend a command."""
    extended = _parts[kind] if kind == "command" else {}
    _parts[kind] = {**parts, **extended} if extended else {**_parts[kind], **parts}
    _builtin[kind].update(parts)


def registered(kind: Kind) -> dict[str, Any]:
    """Return all parts of a kind by name, including those of plug-ins."""
    load_plugins()
    return dict(_parts[kind])


def find(kind: Kind, name: str) -> Any:
    """Return a part by name, or raise ValueError with the nearest name."""
    if name not in _parts[kind]:
        load_plugins()
    if name not in _parts[kind]:
        raise ValueError(
            f"unknown {kind} {name!r}: {did_you_mean(name, _parts[kind])}use one of {', '.join(_parts[kind])}"
            f" (for a plug-in, import the module that registers it or list it in {VARIABLE})"
        )
    part = _parts[kind][name]
    if isinstance(part, str):
        part = _parts[kind][name] = import_named(part)
    return part


def import_named(target: str) -> Any:
    """Import "module:name"."""
    module, _, name = target.partition(":")
    return vars(importlib.import_module(module))[name]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}? " if near else ""


def name_of(kind: Kind, part: Any) -> str | None:
    """Return the name under which a part is registered, or None."""
    return next((name for name, known in registered(kind).items() if known is part), None)


def load_plugins() -> None:
    """Import the plug-ins of the entry points and of UNNOISE_PLUGINS, once; raise ValueError if one cannot be imported."""
    global _plugins_loaded  # noqa: PLW0603
    if _plugins_loaded:
        return
    _plugins_loaded = True  # a plug-in may use the registry while it is imported
    try:
        _import_plugins()
    except ValueError:
        _plugins_loaded = False  # raise the error again on the next call
        raise


def _import_plugins() -> None:
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == entry.module:
                continue  # the module was removed
            raise ValueError(f"the plug-in {entry.name} ({entry.value}) cannot be loaded: {_where(error)}") from error
    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        try:
            import_plugin(name.strip())
        except Exception as error:
            raise ValueError(f"{VARIABLE} names {name!r}, which cannot be imported: {_where(error)}") from error


def _where(error: Exception) -> str:
    """Return the type, message and line of an error in a plug-in."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = "" if last.filename.startswith("<") else f" ({Path(last.filename).name}, line {last.lineno})"
    return f"{type(error).__name__}: {error}{place}"


def load_file(path: Path) -> ModuleType:
    """Import a Python file as a module, or raise ValueError."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        return import_plugin(str(path))
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {_where(error)}") from error


def import_plugin(name: str) -> ModuleType:
    """Import a module by name or by the path of its file."""
    path = Path(name)
    if path.suffix != ".py":
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def option(default: Any, **metadata: Any) -> Any:
    """Return a dataclass field whose metadata hold the bounds of its value, for `check_options`.

    min, max: inclusive bounds. above, below: exclusive bounds. aliases: other names of the option on the command line.
    """
    return dataclass_field(default=default, metadata=metadata)


def check_options(options: Any) -> None:
    """Raise ValueError if a field of a dataclass has a value of the wrong type, or one outside the bounds of its metadata."""
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
            hint = did_you_mean(name, known).rstrip() or f"it takes {', '.join(known)}"
            raise ValueError(f"{who} has no option {name!r}: {hint}")


def parse_settings(name: str, text: str, what: str) -> dict[str, Any]:
    """Parse settings, "field=value,field=value". Values are numbers, true, false, none or strings."""
    found: dict[str, Any] = {}
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
            hint = did_you_mean(field, known)
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
