"""The codec for a stream: made from all of its training text where every character counts, else from a bounded sample."""

import hashlib
from collections.abc import Callable, Iterator

from unnoise.data.codec import Characters, Codec
from unnoise.data.codec_table import AUTO, codec as make_codec
from unnoise.data.formats import PIECE, Input
from unnoise.data.inputs import has_documents
from unnoise.data.splits import split_of

SAMPLED = 32_000_000  # characters that a vocabulary is trained on, at most


def choose_codec(name: str, inputs: list[Input], shares: tuple[float, float], say: Callable[[str], None]) -> Codec:
    """The codec of this name for the training part of these inputs. shares: of valid and test."""
    everything = name in (AUTO, Characters.kind)  # a character that was not seen would be lost
    if everything:
        say(f"reading everything once, to choose the codec ({name})")
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for text in train_texts(inputs, shares) if everything else sampled_texts(inputs, shares):
            read += len(text)
            yield text

    codec = make_codec(name, texts(), end=has_documents(inputs))
    if read and not everything:
        say(f"the codec {name} was made from {read:,} characters of the training text")
    return codec


def train_texts(inputs: list[Input], shares: tuple[float, float]) -> Iterator[str]:
    """The documents to train on, long ones in pieces."""
    for one in inputs:
        begun = mine = False
        for piece in one.pieces() if one.split in (None, "train") else ():
            if not begun:
                mine = one.split is not None or split_of(piece.text.encode("utf-8", "surrogatepass"), *shares) == 0
            begun = not piece.last
            if mine:
                yield piece.text


def sampled_texts(inputs: list[Input], shares: tuple[float, float], most: int = SAMPLED) -> Iterator[str]:
    """About `most` characters of them, at most: the beginnings of the inputs, in an order that favours none."""

    def rank(number: int) -> bytes:
        return hashlib.blake2b(str(number).encode(), digest_size=8).digest()

    inputs = [one for one in inputs if one.split in (None, "train")]
    left = most
    for number in sorted(range(len(inputs)), key=rank):
        allowed = min(left, max(PIECE, most // len(inputs)))
        for text in train_texts([inputs[number]], shares):
            if allowed <= 0:
                break
            part = text[:allowed]
            yield part
            allowed -= len(part)
            left -= len(part)
        if left <= 0:
            return
