"""Codecs between raw text and tokens, and corpora."""

from unnoise.data.codec import Characters, Codec, Text8
from unnoise.data.codec_names import Pixels, codec, codec_from, codec_kind, codec_names
from unnoise.data.tokenizer import Bpe, Bytes

__all__ = [
    "Bpe",
    "Bytes",
    "Characters",
    "Codec",
    "Pixels",
    "Text8",
    "codec",
    "codec_from",
    "codec_kind",
    "codec_names",
]
