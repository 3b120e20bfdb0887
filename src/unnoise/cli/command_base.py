"""Options that several commands share, and functions that load models and texts and print results.

Functions import torch when they are called, so that `unnoise --help` answers at once.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from unnoise.files import BUNDLED as BUNDLED_MODELS

if TYPE_CHECKING:
    from unnoise.model.model import Model

BUNDLED = "stories"
DEFAULT_MODEL = f"the newest model in runs/, or the bundled model {BUNDLED}"
SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
TextArgument = Annotated[Positional[str], arg(metavar="TEXT", help="Text, file, or - for standard input.")]
Json = Annotated[bool, arg(name="json", help="Print one JSON object.")]
Dark = Annotated[bool, arg(help="Use a dark background for the picture.")]
ModelName = Annotated[
    str | None,
    arg(help=f"Folder of a model, name of a bundled model, or Hugging Face hub id; default: {DEFAULT_MODEL}."),
]
ModelNames = Annotated[
    tuple[str, ...],
    arg(
        help="Folder of a model, name of a bundled model, or Hugging Face hub id. Repeat --model to compare several models. "
        f"Default: {DEFAULT_MODEL}."
    ),
    UseAppendAction,
]
Layout = Literal["mdlm", "sedd", "bd3lm", "udlm", "duo", "gidd", "flexmdm"]  # published layouts that can be written
Device = Annotated[str, arg(help="Device: auto, cpu, cuda, mps, …")]
Seed = Annotated[int, arg(help="Random seed.")]


def show_result(as_json: bool, found: Mapping[str, Any], lines: Iterable[str]) -> int:
    """Print a result as one JSON object or as lines of text, and return the exit code 0."""
    if as_json:
        text = json.dumps(found, ensure_ascii=False)
        lines = [text.encode("utf-8", "backslashreplace").decode()]  # which escapes a lone surrogate as JSON does
    for line in lines:
        print(line)
    return 0


def field_values(command: Any, options: type[Any]) -> dict[str, Any]:
    """Return the fields of the dataclass `options` from a command that has the same fields."""
    return {field.name: vars(command)[field.name] for field in fields(options)}


def model_folders() -> list[Path]:
    """Return the folders of the bundled models, then of those in runs/, oldest first. The last is the default model."""
    bundled = sorted(
        (path.parent for path in BUNDLED_MODELS.glob("*/config.json")), key=lambda path: (path.name == BUNDLED, path.name)
    )
    runs = sorted(Path("runs").glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    return [*bundled, *(path.parent for path in runs)]


def bundled(folder: Path) -> bool:
    """Return whether a model comes with the package."""
    return folder.parent == BUNDLED_MODELS


def open_model(
    name: str | None, device: str, mask_token: int | None = None, method: str | None = None, codec: str | None = None
) -> "Model":
    """Load a model by its name, or the default model. See `unnoise.load` for the other arguments."""
    from unnoise.model.io import load

    return load(find_folder(name), mask_token, method, codec).to(device_named(device))


def named_models(names: Sequence[str]) -> dict[str, Path]:
    """Return the folders of models by short, distinct names. Without names, return the default model."""
    if len(set(names)) < len(names):
        raise ValueError(f"give each --model once, found {' '.join(names)}")
    folders = {name: find_folder(name) for name in names} or {model_folders()[-1].name: model_folders()[-1]}
    short = [Path(name).name for name in folders]
    return {last if short.count(last) == 1 else name: folders[name] for name, last in zip(folders, short, strict=True)}


def open_models(names: Sequence[str], device: str) -> "dict[str, Model]":
    """Load models, and return them by short names."""
    return {title: open_model(str(folder), device) for title, folder in named_models(names).items()}


def only_model(names: Sequence[str], what: str) -> str | None:
    """Return the only name, or None if there is none. Raise ValueError if there are several."""
    if len(names) > 1:
        raise ValueError(f"{what} takes one --model, found {' and '.join(names)}")
    return names[0] if names else None


def find_folder(name: str | None) -> Path:
    """Return the folder of a model, by default of the default model."""
    from unnoise.checkpoint.format import find_folder

    return model_folders()[-1] if name is None else find_folder(name)


def device_named(name: str) -> str:
    """Return the name of a device, or raise ValueError if it is not usable. `auto` is CUDA if available, otherwise the CPU."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        if "device type at start of device string" in str(error):
            raise ValueError(f"unknown device {name!r}: use auto, cpu, cuda, mps or another device of torch") from error
        raise ValueError(f"the device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return name


def text_of(argument: str) -> str:
    """Return the text of a file, standard input for `-`, or the argument itself."""
    from unnoise.data.corpus import read_text

    if argument == "-":
        return sys.stdin.read()
    path = Path(argument)
    try:
        if path.is_file():
            return read_text(path)
        if path.is_dir() and (os.sep in argument or argument in (".", "..")):
            raise ValueError(f"{argument} is a folder: give a text, a file, or - for standard input")
    except OSError:  # the text is too long for the name of a file
        return argument
    if " " not in argument and (path.suffix in (".txt", ".md", ".gz") or argument.startswith(("/", "./", "../", "~/"))):
        raise ValueError(f"there is no file {argument}: give the path of a file, or a text in quotes")
    return argument


def printable(value: object) -> str:
    """Return a value as text, without the control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "�" for c in str(value))


def visible(token: str, plain: bool = False) -> str:
    """Return a token with symbols for line breaks and tabs, and for its spaces if it has nothing else and is not `plain`."""
    if not token:
        return "▯"
    if not token.strip(" "):
        return token if plain else SIGNS[" "] * len(token)
    return "".join(SIGNS.get(c, "�") if c != " " and not c.isprintable() else c for c in token)


def say_read(read: str | None) -> None:
    """Print to stderr how the codec encoded a text, if it changed the text (see `Codec.read_as`)."""
    if read is not None:
        print(f"the model's codec reads this text as {read[:200]!r}{'…' if len(read) > 200 else ''}", file=sys.stderr)


def percent(share: float, digits: int = 0) -> str:
    """Return a share in percent. A positive share that would round to zero is shown as "< 1 %"."""
    least = 10.0**-digits
    return f"< {least:g} %" if 0 < 100 * share <= least / 2 else f"{100 * share:.{digits}f} %"


def at_least(least: int, **counts: int | None) -> None:
    """Raise ValueError with the name of the first option that is below `least`."""
    for name, count in counts.items():
        if count is not None and count < least:
            raise ValueError(f"--{name.replace('_', '-')} must be ≥ {least}, found {count}")
