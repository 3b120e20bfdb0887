"""A codec chosen by the user for a published model without a tokenizer."""

from dataclasses import replace
from pathlib import Path

from unnoise.checkpoint.published.beside import codec_for, find_tokenizer
from unnoise.checkpoint.published.reader import Published
from unnoise.data import Codec, codec as codec_named, codec_kind
from unnoise.data.bpe import read_tokenizer
from unnoise.data.numbers import Numbers


def with_codec(model: Published, chosen: str | Path | Codec) -> Published:
    """Return the model with another codec; raise ValueError if it has a tokenizer or a different number of tokens.

    chosen: a codec, its name, a tokenizer.json, or a folder with one or with GPT-2's vocab.json and merges.txt.
    """
    vocab, end = model.codec.vocab, model.codec.end
    if not isinstance(model.codec, Numbers):
        raise ValueError(f"this model has a tokenizer ({codec_kind(model.codec)}): leave the codec out")
    path = None if isinstance(chosen, Codec) else Path(chosen)
    tokenizer = None
    if path is not None and path.is_dir():
        tokenizer = find_tokenizer(path)
    elif path is not None and path.is_file():
        tokenizer = read_tokenizer(path)
    if tokenizer is not None:
        found = codec_for(tokenizer, vocab, end, drop_added=True)
    else:
        found = chosen if isinstance(chosen, Codec) else codec_named(str(chosen))
    if found.vocab != vocab:
        name = codec_kind(chosen) if isinstance(chosen, Codec) else chosen
        raise ValueError(
            f"the codec {name} has {found.vocab:,} tokens, and the model {vocab:,}; if the mask is one of the tokens, "
            "give it as mask_token"
        )
    return replace(model, codec=found)
