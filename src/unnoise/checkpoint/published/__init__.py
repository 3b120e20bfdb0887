"""Models that other programs saved: detection of the format, and one error message for everything that fails."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from unnoise.checkpoint.format import CONFIG, read_described
from unnoise.checkpoint.published.ddit_layouts import DDIT_READERS
from unnoise.checkpoint.published.decoder import GPT2_READER, HUGGINGFACE_READER
from unnoise.checkpoint.published.engine_files import MAGIC, SMOLLM2, read_gguf, read_llama2c, smollm2_file
from unnoise.checkpoint.published.lightning import CKPT, LIGHTNING_READER
from unnoise.checkpoint.published.llama_diffusion import FAMILY_READERS
from unnoise.checkpoint.published.md4_weights import MD4_READER
from unnoise.checkpoint.published.reader import Choices, Published, Reader

READERS: tuple[Reader, ...] = (
    HUGGINGFACE_READER,
    GPT2_READER,
    *FAMILY_READERS,
    MD4_READER,
    *DDIT_READERS,
    LIGHTNING_READER,
)
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RuntimeError, RecursionError, OSError)
Result = TypeVar("Result")


def published_model(path: str | Path, choices: Choices | None = None) -> Published | None:
    """Return a model that another program saved, or None if the path is not one, but may be a folder of ours.

    path: a folder that one of the readers recognizes, a .ckpt or .gguf file, a .bin of llama2.c, or "smollm2".
    """
    file = Path(path)
    if str(path) == SMOLLM2 and not file.exists():
        file = smollm2_file()
    read = _find_reader(file, choices or Choices(file.resolve().name))
    if read is None:
        return None
    model = _checked(file, read)
    return replace(model, weights=lambda: _checked(file, lambda: dict(model.weights())))


def _find_reader(path: Path, choices: Choices) -> Callable[[], Published] | None:
    if path.is_dir() or (path.is_file() and path.suffix == CKPT):
        return _find_folder_reader(path, choices)
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return partial(read_gguf, path)
    if path.suffix != ".bin":
        raise ValueError(f"there is no model in {path}: give the folder of one, a .gguf file, or a .bin of llama2.c")
    return partial(read_llama2c, path)


def _find_folder_reader(path: Path, choices: Choices) -> Callable[[], Published] | None:
    """Return the reader of a folder, or of a .ckpt file with a config.json next to it."""
    folder = path if path.is_dir() else path.parent
    described = read_described(folder) if (folder / CONFIG).exists() else {}
    if not isinstance(described, dict) or "format" in described:  # a model in our own format
        if path.is_dir():
            return None
        described = {}
    for reader in READERS:
        if reader.recognizes(path, described):
            return partial(reader.read, path, described, choices)
    if "model_type" not in described:
        return None
    known = ", ".join(kind for reader in READERS for kind in reader.types)
    found = str(described["model_type"])[:60]
    raise ValueError(f"the model in {path} cannot be read: its model_type is {found!r}, and {known} can be read")


def _checked(path: Path, read: Callable[[], Result]) -> Result:
    """Call a reader and turn every error of a damaged file into a ValueError of one sentence."""
    try:
        return read()
    except DAMAGE as error:
        if isinstance(error, KeyError):
            words = f"{error} is missing"
        else:
            words = str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__} {error}"
        raise ValueError(f"the model in {path} cannot be read: {words.splitlines()[0][:400]}") from error
