"""Data: codecs between raw text and tokens, and corpora."""

from unnoise.data.bpe import Bpe
from unnoise.data.bytes import Bytes
from unnoise.data.codec import Characters, Codec, Text8
from unnoise.data.codec_table import codec, codec_from, codec_kind, codec_names
from unnoise.data.pixels import Pixels

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
