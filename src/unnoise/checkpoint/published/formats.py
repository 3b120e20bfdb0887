"""Which format a model from elsewhere has, and the model in it."""

from dataclasses import replace
from pathlib import Path

from unnoise.checkpoint.ours import CONFIG, read_described
from unnoise.checkpoint.published import (
    a2d,
    bd3lm,
    dream,
    duo,
    fast_dllm,
    gidd,
    gpt2,
    huggingface,
    lightning,
    llada,
    md4,
    mdlm,
    sdar,
    sedd,
    udlm,
)
from unnoise.checkpoint.published.decoder import Decoder
from unnoise.checkpoint.published.gguf_file import MAGIC, SMOLLM2, read_gguf, smollm2_file
from unnoise.checkpoint.published.llama2c import read_llama2c
from unnoise.checkpoint.published.reader import Choices, Published, Reader

READERS: tuple[Reader, ...] = (
    huggingface.READER,
    gpt2.READER,
    llada.READER,
    dream.READER,
    a2d.READER,
    sdar.READER,
    fast_dllm.READER,
    md4.READER,
    mdlm.READER,
    bd3lm.READER,
    duo.READER,
    udlm.READER,
    gidd.READER,
    sedd.READER,
    lightning.READER,
)
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RuntimeError, RecursionError, OSError)


def published_model(path: str | Path, choices: Choices | None = None) -> Published | None:
    """The model that another program wrote: a folder that one of the readers knows, a .gguf file, a .bin of llama2.c, or
    "smollm2"; None if it is none of these, but perhaps a folder of ours; ValueError if it cannot be read."""
    found = Path(path)
    if str(path) == SMOLLM2 and not found.exists():
        return _of_decoder("GGUF", read_gguf(smollm2_file()))
    if found.is_dir() or (found.is_file() and found.suffix == lightning.SUFFIX):
        return _of_folder(found, choices or Choices(found.resolve().name))
    if not found.is_file():
        return None
    with open(found, "rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return _of_decoder("GGUF", read_gguf(found))
    if found.suffix != ".bin":
        raise ValueError(f"there is no model in {found}: give the folder of one, a .gguf file, or a .bin of llama2.c")
    return _of_decoder("llama2.c", read_llama2c(found))


def _of_decoder(family: str, decoder: Decoder) -> Published:
    config = decoder.config
    return Published(family, "ar", "llama", config, decoder.codec, config["length"], decoder.started)


def _of_folder(folder: Path, choices: Choices) -> Published | None:
    """The model in a folder, or in a file beside which its configuration may lie."""
    beside = folder if folder.is_dir() else folder.parent
    described = read_described(beside) if (beside / CONFIG).exists() else {}
    if not isinstance(described, dict) or "format" in described:
        if folder.is_dir():
            return None
        described = {}
    for reader in READERS:
        if reader.recognises(folder, described):
            break
    else:
        if "model_type" not in described:
            return None
        known = ", ".join(kind for reader in READERS for kind in reader.types)
        found = str(described["model_type"])[:60]
        raise ValueError(f"the model in {folder} cannot be read: its model_type is {found!r}, and {known} can be read")
    try:
        model = reader.read(folder, described, choices)
    except DAMAGE as error:
        raise ValueError(_sentence(folder, error)) from error

    def weights() -> dict:
        try:
            return dict(model.weights())
        except DAMAGE as error:
            raise ValueError(_sentence(folder, error)) from error

    return replace(model, weights=weights)


def _sentence(folder: Path, error: BaseException) -> str:
    words = str(error).splitlines()[0] if isinstance(error, ValueError) and str(error) else f"{type(error).__name__} {error}"
    return f"the model in {folder} cannot be read: {words.splitlines()[0][:400]}"
