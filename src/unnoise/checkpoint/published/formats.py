"""Which format a model from elsewhere has, and the model in it."""

from pathlib import Path
from typing import Any

from unnoise.checkpoint.ours import CONFIG, read_described
from unnoise.checkpoint.published.base import Published, Reader
from unnoise.checkpoint.published.decoder import Decoder
from unnoise.checkpoint.published.diffusion import DIFFUSION_READERS
from unnoise.checkpoint.published.gguf_file import MAGIC, SMOLLM2, read_gguf, smollm2_file
from unnoise.checkpoint.published.huggingface import read_huggingface
from unnoise.checkpoint.published.llama2c import read_llama2c

READERS: tuple[Reader, ...] = DIFFUSION_READERS  # the first that recognises a path reads it


def published_model(path: str | Path) -> Decoder | Published | None:
    """The model that another program wrote: a layout of `READERS`, a 🤗 folder, a .gguf file, a .bin of llama2.c, or "smollm2";
    None if it is none of these, but perhaps a folder of ours; ValueError if it cannot be read."""
    found = Path(path)
    if path == SMOLLM2 and not found.exists():
        return read_gguf(smollm2_file())
    folder = found if found.is_dir() else found.parent
    described = read_described(folder) if found.exists() and (folder / CONFIG).exists() else {}
    theirs = described if isinstance(described, dict) and "format" not in described else {}
    if found.is_dir() and (not isinstance(described, dict) or "format" in described):
        return None
    read = _by_reader(found, theirs)
    if read is not None or not found.exists():
        return read
    if found.is_dir():
        return read_huggingface(found, theirs) if "model_type" in theirs else None
    return _decoder_file(found)


def _decoder_file(path: Path) -> Decoder:
    """The language model in a file, or ValueError."""
    with open(path, "rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return read_gguf(path)
    if path.suffix != ".bin":
        raise ValueError(f"there is no model in {path}: give the folder of one, a .gguf file, or a .bin of llama2.c")
    return read_llama2c(path)


def _by_reader(path: Path, described: dict[str, Any]) -> Published | None:
    """The model by the first reader that recognises it, None if none does, or ValueError."""
    for reader in READERS:
        if reader.recognises(path, described):
            try:
                return reader.read(path, described)
            except ValueError as error:
                raise ValueError(f"the model in {path} cannot be read ({reader.name}): {error}") from error
    return None
