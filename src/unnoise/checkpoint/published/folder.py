"""What 🤗 folders have in common: tensors in one file of safetensors or in several with an index, and a tokenizer.json."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from unnoise.checkpoint.tensors import read_tensors
from unnoise.data.bpe import FILE as TOKENIZER, read_tokenizer
from unnoise.data.codec import Codec
from unnoise.data.numbers import Numbers
from unnoise.data.tokenizer import PretrainedTokenizer
from unnoise.files import read_bytes

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_INDEX = 64 * 2**20  # bytes
COMPUTED = "rotary_emb.inv_freq"  # which older files hold


def tensor_files(folder: Path) -> list[Path]:
    """The file, or those that the index names, or ValueError."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / WEIGHTS).exists():  # a pipe may never end
        raise ValueError(f"{WEIGHTS} is not an ordinary file")
    if not (folder / INDEX).exists():
        pickled = " (a pickle, which pytorch_model.bin is, is not opened)" if list(folder.glob("*.bin")) else ""
        raise ValueError(f"{WEIGHTS} is missing{pickled}")
    try:
        files = set(json.loads(read_bytes(folder / INDEX, LARGEST_INDEX, "index"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{INDEX} is damaged ({error})") from error
    for name in files:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise ValueError(f"its file {name} is missing")
    return [folder / name for name in sorted(files)]


def tensor_names(folder: Path) -> set[str]:
    """The names of all tensors, without reading them."""
    found: set[str] = set()
    for path in tensor_files(folder):
        try:
            with safe_open(path, "pt") as file:
                found |= set(file.keys())
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path.name}: it is damaged or cut short ({error})") from error
    return {name for name in found if not name.endswith(COMPUTED)}


def all_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of all files, memory-mapped: they are read from the disk as they are needed."""
    found: dict[str, Tensor] = {}
    for path in tensor_files(folder):
        try:
            found |= read_tensors(path)[1]
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    return found


def tensors(folder: Path) -> dict[str, Tensor]:
    """The same without what is computed."""
    return {name: tensor for name, tensor in all_tensors(folder).items() if not name.endswith(COMPUTED)}


def tokenizer_of(folder: Path) -> Tokenizer | None:
    """The tokenizer, if there is one."""
    return read_tokenizer(folder / TOKENIZER) if (folder / TOKENIZER).exists() else None


def codec_of(tokenizer: Tokenizer | None, vocab: int, end: int | None) -> Codec:
    """The codec of a tokenizer; the numbers of the tokens themselves where there is none."""
    return Numbers(vocab, end) if tokenizer is None else PretrainedTokenizer(tokenizer, vocab, end)


def special_token(folder: Path, tokenizer: Tokenizer | None, kind: str) -> int | None:
    """The number of a token such as `mask_token`, if tokenizer_config.json or special_tokens_map.json names it."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        if tokenizer is None or not (folder / file).exists():
            continue
        try:
            named = json.loads(read_bytes(folder / file, LARGEST_INDEX, "configuration"))[kind]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        text = named.get("content") if isinstance(named, Mapping) else named
        if isinstance(text, str) and tokenizer.token_to_id(text) is not None:
            return tokenizer.token_to_id(text)
    return None
