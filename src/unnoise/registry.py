"""Parts by name: networks, codecs, samplers, methods and recipes, ours and other people's.

    @unnoise.register("network", "gru")
    class Gru(torch.nn.Module): ...

What is registered works wherever ours does: in `Model.build`, the trainer, saved models, the command line and the studio. A
saved model keeps the names of its parts, so whoever loads it must have registered them. There are three ways:

- import the module that registers them;
- install a package with an entry point in the group `unnoise.plugins` that names that module;
- name the module, or the path of a Python file, in the environment variable UNNOISE_PLUGINS (several with commas).
"""

import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping
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
    """A decorator that makes a part known by a name: register("sampler", "mine")(Mine), or before a class.

    network: a torch.nn.Module class (see `unnoise.Network`). codec: a class derived from `unnoise.Codec`. sampler: a frozen
    dataclass derived from `unnoise.Sampler`. method: a `unnoise.Method`, or a function without arguments that returns one.
    recipe: a `unnoise.Recipe`. callback: a class derived from `unnoise.Callback`, made without arguments for each training run.

    A part may also be given as a string "module:name", which is imported on first use.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of part {kind!r}: use one of {', '.join(KINDS)}")
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise ValueError(f"a name has letters, digits, - _ and . only, found {name!r}")

    if name in _builtin[kind]:
        raise ValueError(f"unnoise has a {kind} {name!r} of its own: choose another name")

    def keep(part: Part) -> Part:
        _parts[kind][name] = part
        return part

    return keep


def register_builtin(kind: Kind, parts: Mapping[str, Any]) -> None:
    """The package's own parts, which nobody replaces."""
    _parts[kind].update(parts)
    _builtin[kind].update(parts)


def registered(kind: Kind) -> dict[str, Any]:
    """All parts of a kind by name, those of plug-ins included."""
    load_plugins()
    return dict(_parts[kind])


def find(kind: Kind, name: str) -> Any:
    """The part of this name, or ValueError with the nearest name."""
    if name not in _parts[kind]:
        load_plugins()
    if name not in _parts[kind]:
        near = difflib.get_close_matches(name, _parts[kind], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"unknown {kind} {name!r}: {hint}use one of {', '.join(_parts[kind])}"
            f" (a part of your own is known once the module that registers it is imported, or named in {VARIABLE})"
        )
    part = _parts[kind][name]
    if isinstance(part, str):
        module, _, attribute = part.partition(":")
        part = _parts[kind][name] = vars(importlib.import_module(module))[attribute]
    return part


def name_of(kind: Kind, part: Any) -> str | None:
    """The name under which a part is registered, or None."""
    return next((name for name, known in registered(kind).items() if known is part), None)


def load_plugins() -> None:
    """Import, once, every module of the entry points `unnoise.plugins` and of the variable UNNOISE_PLUGINS."""
    global _plugins_loaded  # noqa: PLW0603
    if _plugins_loaded:
        return
    _plugins_loaded = True
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
    """An error in somebody's module: its kind, its words, and the last line that was run."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = "" if last.filename.startswith("<") else f" ({Path(last.filename).name}, line {last.lineno})"
    return f"{type(error).__name__}: {error}{place}"


def load_file(path: Path) -> ModuleType:
    """Somebody's Python file as a module, or ValueError."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        return import_plugin(str(path))
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {_where(error)}") from error


def import_plugin(name: str) -> ModuleType:
    """Import a module by its name, or by the path of its file."""
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
