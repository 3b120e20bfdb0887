"""Data: codecs between raw text and tokens, and corpora."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unnoise.data.bpe import FILE, Bpe
from unnoise.data.codec import Bytes, Characters, Codec, Text8
from unnoise.data.pixels import Pixels

__all__ = ["Bpe", "Bytes", "Characters", "Codec", "Pixels", "Text8", "codec", "codec_from", "codec_names"]


def codec_names() -> list[str]:
    """What `codec` and `--codec` take."""
    return ["text8", "bytes", "chars", "bpe", "bpe-N (N tokens)", "gpt2:FOLDER", "auto"]


def codec(name: str = "text8", texts: Iterable[str] | None = None, end: bool = False) -> Codec:
    """A codec by name; `chars`, `bpe` and `auto` look at `texts`. end: add a token that ends documents.

    auto: text8 if the texts need no more, else the texts' characters if these are at most 256, else bytes.
    """
    kind, _, detail = name.partition(":" if name.startswith("gpt2") else "-")
    if kind in ("chars", "bpe", "auto") and texts is None:
        raise ValueError(f"the {kind} codec is made from texts: give some")
    match kind:
        case "text8":
            return Text8(end)
        case "bytes":
            return Bytes(end)
        case "gpt2":
            return Bpe.gpt2(Path(detail or "."))
        case "chars":
            return Characters.of(texts or [], end)
        case "bpe" if not detail or detail.isdigit():
            return Bpe.of(texts or [], int(detail or 2048), end)
        case "auto":
            return _auto(texts or [], end)
    raise ValueError(f"unknown codec {name!r}: use one of {', '.join(codec_names())}")


def _auto(texts: Iterable[str], end: bool) -> Codec:
    symbols = Characters.of(texts).symbols
    if set(symbols) <= set(Text8().symbols):
        return Text8(end)
    return Characters(symbols, end) if len(symbols) <= 256 else Bytes(end)


def codec_from(config: dict[str, Any], folder: Path) -> Codec:
    """The codec that a saved model describes."""
    end = bool(config.get("end", False))
    match config.get("kind"):
        case "text8":
            return Text8(end)
        case "bytes":
            return Bytes(end)
        case "chars":
            return Characters(config["symbols"], end)
        case "bpe":
            if not (folder / FILE).exists():
                raise ValueError(f"the model in {folder} lacks its codec file {FILE}")
            return Bpe.gpt2(folder)
        case "pixels":
            return Pixels(config["shape"], config["levels"])
        case other:
            raise ValueError(f"the model in {folder} has an unknown codec {other!r}; was it saved by a newer unnoise?")
