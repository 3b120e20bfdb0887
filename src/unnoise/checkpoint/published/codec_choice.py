"""A codec for a published model that came without a tokenizer, chosen by a person."""

from dataclasses import replace
from pathlib import Path

from unnoise.checkpoint.published.beside import GPT2_FILES, codec_beside, codec_of_tokenizer
from unnoise.checkpoint.published.reader import Published
from unnoise.data import Codec, codec as codec_named, codec_kind
from unnoise.data.bpe import FILE, read_tokenizer
from unnoise.data.numbers import Numbers


def with_codec(model: Published, chosen: str | Path | Codec) -> Published:
    """The model with this codec, or ValueError if it has a tokenizer, or other tokens.

    chosen: a codec, its name, a tokenizer.json, or a folder with one or with GPT-2's vocab.json and merges.txt.
    """
    vocab = model.codec.vocab
    if not isinstance(model.codec, Numbers):
        raise ValueError(
            f"a codec is for published models without a tokenizer, and this one has one ({codec_kind(model.codec)})"
        )
    found = _codec(chosen, vocab, model.codec.end)
    if found.vocab != vocab:
        name = codec_kind(chosen) if isinstance(chosen, Codec) else chosen
        raise ValueError(
            f"the codec {name} has {found.vocab:,} tokens, and the model {vocab:,}; where its mask is one of the tokens, "
            "give it as mask_token"
        )
    return replace(model, codec=found)


def _codec(chosen: str | Path | Codec, vocab: int, end: int | None) -> Codec:
    if isinstance(chosen, Codec):
        return chosen
    path = Path(chosen)
    if path.is_dir() and ((path / FILE).exists() or all((path / name).exists() for name in GPT2_FILES)):
        return codec_beside(path, vocab, masked=False, end=end)
    if path.is_file():
        return codec_of_tokenizer(read_tokenizer(path), vocab, end)
    return codec_named(str(chosen))
