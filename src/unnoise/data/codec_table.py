"""Codecs by name: text8, bytes, chars, bpe-4096, gpt2:FOLDER, auto, those that were registered, and those of models."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unnoise.data.bpe import Bpe, Gpt2, Text8Bpe
from unnoise.data.bytes import Bytes
from unnoise.data.codec import Characters, Codec, Text8, check_texts
from unnoise.data.numbers import Numbers
from unnoise.data.pixels import Pixels
from unnoise.data.text8_specials import Text8Specials
from unnoise.data.tokenizer import PretrainedTokenizer
from unnoise.files import BUNDLED, read_bytes
from unnoise.registry import find, register_builtin, registered

register_builtin("codec", {"text8": Text8, "bytes": Bytes, "chars": Characters, "bpe": Bpe, "gpt2": Gpt2})
register_builtin("codec", {"numbers": Numbers, "text8-35": Text8Specials, "text8bpe": Text8Bpe})
register_builtin("codec", {"pixels": Pixels, "tokenizer": PretrainedTokenizer})  # which come with images, or with a model
AUTO = "auto"
DESCRIBED_IN = ("config.json", "index.json")  # of a model, of token shards
LARGEST = 2**28  # bytes of these


def codec_names() -> list[str]:
    """What `codec` and `--codec` take."""
    words = {
        "bpe": ["bpe", "bpe-N (N tokens)"],
        "text8bpe": ["text8bpe-N"],
        "gpt2": ["gpt2:FOLDER"],
        "numbers": ["numbers-N"],
        "pixels": [],
        "tokenizer": [],
    }
    return [shown for name in registered("codec") for shown in words.get(name, [name])] + [
        AUTO,
        "FOLDER (of a model or shards)",
        "a bundled model",
    ]


def codec(name: str = "text8", texts: Iterable[str] | None = None, end: bool = False) -> Codec:
    """A codec by name; some, such as `chars`, `bpe` and `auto`, look at `texts`. end: add a token that ends documents.

    auto: text8 if the texts need no more, else the texts' characters if these are at most 256, else bytes; bytes, too, for
    what is not UTF-8. A folder with a saved model or with token shards, or the name of a bundled model, stands for their codec.
    """
    if name == AUTO:
        return _auto(check_texts(AUTO, texts), end)
    known = registered("codec")
    kind, detail = name, ""
    if name not in known:
        kind, _, detail = name.partition(":" if ":" in name else "-")
    if kind not in known:
        for folder in (Path(name), BUNDLED / name):
            if any((folder / file).is_file() for file in DESCRIBED_IN):
                return _codec_of_folder(folder)
    if kind not in known or known[kind] is Pixels:
        raise ValueError(f"unknown codec {name!r}: use one of {', '.join(codec_names())}")
    return known[kind].build(texts, end=end, detail=detail)


def _codec_of_folder(folder: Path) -> Codec:
    file = next(file for file in DESCRIBED_IN if (folder / file).is_file())
    try:
        config = json.loads(read_bytes(folder / file, LARGEST))["codec"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder / file} describes no codec ({error})") from error
    return codec_from(config, folder)


def _auto(texts: Iterable[str], end: bool) -> Codec:
    found: set[str] = set()
    for text in texts:
        fresh = set(text) - found
        found |= fresh
        if len(found) > 256 or any("\udc80" <= symbol <= "\udcff" for symbol in fresh):  # how bytes that are no UTF-8 are kept
            return Bytes(end)
    return Text8(end) if found <= set(Text8().symbols) else Characters("".join(sorted(found)), end)


def codec_kind(codec: Codec) -> str:
    """The name under which a codec's class is registered, or ValueError: without one a saved model could not be read."""
    for name, known in registered("codec").items():
        if known is type(codec):
            return name
    raise ValueError(
        f"the codec {type(codec).__name__} is not registered, so a saved model could not be loaded again: "
        'put @unnoise.register("codec", "a-name") before the class'
    )


def codec_from(config: dict[str, Any], folder: Path) -> Codec:
    """The codec that a saved model, or a folder of token shards, describes."""
    fields = dict(config) if isinstance(config, dict) else {}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError(f"{folder} has no codec in its configuration")
    try:
        return find("codec", kind).from_config(fields, folder)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the codec {kind} in {folder} is not described as it should be ({error})") from error
