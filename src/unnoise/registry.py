"""Registry of networks, codecs, samplers, methods and recipes by name, for built-in parts and plug-ins.

    @unnoise.register("network", "gru")
    class Gru(torch.nn.Module): ...

A registered part works wherever a built-in part does: in `Model.build`, the trainer, saved models, the command line and the
studio. A saved model stores the names of its parts, which must be registered before it is loaded, in one of three ways:

- import the module that registers them;
- install a package with an entry point in the group `unnoise.plugins` that names the module;
- list the module, or the path of a Python file, in the environment variable UNNOISE_PLUGINS (separated by commas).
"""

import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

Kind = Literal["network", "codec", "sampler", "method", "recipe", "callback"]
KINDS: tuple[Kind, ...] = ("network", "codec", "sampler", "method", "recipe", "callback")
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

    A part may also be a string "module:name", which is imported on first use.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of part {kind!r}: use one of {', '.join(KINDS)}")
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise ValueError(f"a name has letters, digits, - _ and . only, found {name!r}")

    if name in _builtin[kind]:
        raise ValueError(f"{name!r} is a built-in {kind}: choose another name")

    def keep(part: Part) -> Part:
        _parts[kind][name] = part
        return part

    return keep


def register_builtin(kind: Kind, parts: Mapping[str, Any]) -> None:
    """Register built-in parts, whose names plug-ins cannot use."""
    _parts[kind].update(parts)
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
        module, _, attribute = part.partition(":")
        part = _parts[kind][name] = vars(importlib.import_module(module))[attribute]
    return part


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
