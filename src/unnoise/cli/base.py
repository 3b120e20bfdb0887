"""What several commands share: the names of options, and the objects that they mean.

torch is imported inside the functions, so that `unnoise --help` answers at once.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import UseAppendAction, arg

from unnoise.files import BUNDLED as BUNDLED_MODELS

if TYPE_CHECKING:
    from unnoise.model.model import Model

BUNDLED = "stories"
DEFAULT_MODEL = f"the newest in runs/, else the bundled {BUNDLED}"
Json = Annotated[bool, arg(name="json", help="Print one JSON object.")]
Dark = Annotated[bool, arg(help="Draw the picture on a dark background.")]
ModelName = Annotated[
    str | None,
    arg(
        help="Folder of a trained model, a bundled name, or a model from elsewhere (a path, or a hub id); "
        f"default: {DEFAULT_MODEL}."
    ),
]
ModelNames = Annotated[
    tuple[str, ...],
    arg(
        help="Folder of a trained model, a bundled name, or a model from elsewhere (a path, or a hub id); given several times, "
        f"models are put side by side; default: {DEFAULT_MODEL}."
    ),
    UseAppendAction,
]
Layout = Literal["mdlm", "sedd", "bd3lm", "udlm", "duo", "gidd", "flexmdm"]  # published ones that are written
Device = Annotated[str, arg(help="Device to compute on: auto, cpu, cuda, …")]
Seed = Annotated[int, arg(help="Seed of the random numbers.")]


def model_folders() -> list[Path]:
    """Bundled models, then those in runs/, oldest first; the last is the default."""
    bundled = sorted(
        (path.parent for path in BUNDLED_MODELS.glob("*/config.json")), key=lambda path: (path.name == BUNDLED, path.name)
    )
    runs = sorted(Path("runs").glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    return [*bundled, *(path.parent for path in runs)]


def bundled(folder: Path) -> bool:
    """Whether a model came with the package."""
    return folder.parent == BUNDLED_MODELS


def open_model(
    name: str | None, device: str, mask_token: int | None = None, method: str | None = None, codec: str | None = None
) -> "Model":
    """The model that a person means: a folder, a bundled name, a hub id, or the newest. The rest is as for `load`."""
    from unnoise.model.io import load

    return load(folder_of(name), mask_token, method, codec).to(device_named(device))


def named_models(names: Sequence[str]) -> dict[str, Path]:
    """Return the folders of models by short names that differ; the default model where none is named."""
    if len(set(names)) < len(names):
        raise ValueError(f"each --model is given once, found {' '.join(names)}")
    folders = {name: folder_of(name) for name in names} or {model_folders()[-1].name: model_folders()[-1]}
    short = [Path(name).name for name in folders]
    return {last if short.count(last) == 1 else name: folders[name] for name, last in zip(folders, short, strict=True)}


def open_models(names: Sequence[str], device: str) -> "dict[str, Model]":
    """Open the models of these names, by short names."""
    return {title: open_model(str(folder), device) for title, folder in named_models(names).items()}


def only_model(names: Sequence[str], what: str) -> str | None:
    """Return the name of the one model that is given, if any; raise ValueError if there are several."""
    if len(names) > 1:
        raise ValueError(f"{what} takes one --model, found {' and '.join(names)}")
    return names[0] if names else None


def folder_of(name: str | None) -> Path:
    """Where that model is."""
    from unnoise.checkpoint.ours import folder_of

    return model_folders()[-1] if name is None else folder_of(name)


def device_named(name: str) -> str:
    """`auto` is CUDA where there is one, else the CPU."""
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
    """The text that a person means: a file's, standard input's for -, or the argument itself."""
    from unnoise.data.corpus import read_text

    if argument == "-":
        return sys.stdin.read()
    path = Path(argument)
    try:
        if path.is_file():
            return read_text(path)
        if path.is_dir() and (os.sep in argument or argument in (".", "..")):
            raise ValueError(f"{argument} is a folder: give a text, a file, or - for standard input")
    except OSError:  # longer than a file's name can be
        return argument
    if " " not in argument and (path.suffix in (".txt", ".md", ".gz") or argument.startswith(("/", "./", "../", "~/"))):
        raise ValueError(f"there is no file {argument}; a text can be given in quotes, a file by its path")
    return argument


def printable(value: object) -> str:
    """A text from a file as a terminal may show it: no control characters, so that none can steer it."""
    return "".join(c if c.isprintable() else "�" for c in str(value))


def say_read(read: str | None) -> None:
    """Print to stderr what a text became in the model's alphabet, if it is another text there (see `Codec.read_as`)."""
    if read is not None:
        print(f"read in the model's alphabet as {read[:200]!r}{'…' if len(read) > 200 else ''}", file=sys.stderr)


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; one that would be shown as none is said to be less than the least that is shown."""
    least = 10.0**-digits
    return f"< {least:g} %" if 0 < 100 * share <= least / 2 else f"{100 * share:.{digits}f} %"


def at_least(least: int, **counts: int | None) -> None:
    """ValueError naming the first count that is given and too small."""
    for name, count in counts.items():
        if count is not None and count < least:
            raise ValueError(f"--{name.replace('_', '-')} must be ≥ {least}, found {count}")
