"""Which format a model from elsewhere has, and the model in it."""

from pathlib import Path

from unnoise.checkpoint.ours import CONFIG, read_described
from unnoise.checkpoint.published.decoder import Decoder
from unnoise.checkpoint.published.gguf_file import MAGIC, SMOLLM2, read_gguf, smollm2_file
from unnoise.checkpoint.published.huggingface import read_huggingface
from unnoise.checkpoint.published.llama2c import read_llama2c


def published_model(path: str | Path) -> Decoder | None:
    """The model that another program wrote: a 🤗 folder, a .gguf file, a .bin of llama2.c, or "smollm2"; None if it is none of
    these, but perhaps a folder of ours; ValueError if it cannot be read."""
    found = Path(path)
    if path == SMOLLM2 and not found.exists():
        return read_gguf(smollm2_file())
    if found.is_dir():
        described = read_described(found) if (found / CONFIG).exists() else {}
        theirs = isinstance(described, dict) and "model_type" in described and "format" not in described
        return read_huggingface(found, described) if theirs else None
    if not found.is_file():
        return None
    with open(found, "rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return read_gguf(found)
    if found.suffix != ".bin":
        raise ValueError(f"there is no model in {found}: give the folder of one, a .gguf file, or a .bin of llama2.c")
    return read_llama2c(found)
