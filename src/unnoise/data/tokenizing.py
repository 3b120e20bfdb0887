"""Documents → tokens, by several processes that keep the order; what comes out does not depend on how many there are.

The codec for a stream: made from all of its training text where every character counts, else from a bounded sample.
"""

import hashlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unnoise.data.codec import Characters, Codec, token_dtype
from unnoise.data.codec_names import AUTO, codec as make_codec, codec_from
from unnoise.data.formats import PIECE, Input, num_bytes
from unnoise.data.inputs import has_documents
from unnoise.data.shard_files import SPLITS, Encoded, split_of

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


AHEAD = 2  # batches that wait for each process


class Position(NamedTuple):
    """Where reading goes on: the number of the input, and the place in it (None: its beginning)."""

    number: int = 0
    place: int | None = None


BEGINNING = Position()


@dataclass
class TextBatch:
    """Pieces of documents that are encoded together, and where reading goes on after them (None: nowhere yet).

    split: the number of each piece's split, −1 where its content decides. done: bytes of the inputs so far.
    """

    texts: list[str] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    last: list[bool] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    position: Position | None = None
    done: float = 0.0


def text_batches(inputs: Sequence[Input], position: Position = BEGINNING, begun: bool = False) -> Iterator[TextBatch]:
    """All pieces from a position on, about PIECE characters to a batch; empty documents are left out.

    begun: the position is inside of a document.
    """
    batch, size = TextBatch(), 0
    done = float(sum(one.size for one in inputs[: position.number]))
    for number in range(position.number, len(inputs)):
        one, weight = inputs[number], inputs[number].size
        split = -1 if one.split is None else SPLITS.index(one.split)
        for piece in one.pieces(position.place if number == position.number else None):
            if piece.text or not piece.last or begun:
                batch.texts.append(piece.text)
                batch.first.append(not begun)
                batch.last.append(piece.last)
                batch.split.append(split)
                size += len(piece.text)
            begun = not piece.last
            batch.position = None if piece.position is None else Position(number, piece.position)
            batch.done = done + piece.done * weight
            if size >= PIECE:
                yield batch
                batch, size = TextBatch(), 0
        done += weight
        batch.position, batch.done = Position(number + 1), done
    yield batch


class Encoder:
    """A codec that turns batches into tokens. shares: of valid and test, for documents whose content decides."""

    def __init__(self, codec: Codec, shares: tuple[float, float]):
        self.codec, self.shares, self.dtype = codec, shares, token_dtype(codec.vocab)

    def __call__(self, texts: list[str], first: list[bool], last: list[bool], split: list[int]) -> Encoded:
        end = [] if self.codec.end is None else [np.array([self.codec.end], dtype=self.dtype)]
        parts: list[np.ndarray] = []
        lengths: list[int] = []
        for text, ends in zip(texts, last, strict=True):
            encoded = [self.codec.encode(text).astype(self.dtype), *(end if ends else [])]
            parts += encoded
            lengths.append(sum(map(len, encoded)))
        sides = [self._split(*piece) for piece in zip(texts, first, split, strict=True)]
        return Encoded(
            np.concatenate(parts) if parts else np.zeros(0, self.dtype),
            np.array(lengths, dtype=np.int64),
            np.array([len(text) for text in texts], dtype=np.int64),
            np.array([num_bytes(text) for text in texts], dtype=np.int64),
            np.array(first, dtype=bool),
            np.array(last, dtype=bool),
            np.array(sides, dtype=np.int8),
        )

    def _split(self, text: str, first: bool, split: int) -> int:
        return split if split >= 0 or not first else split_of(text.encode("utf-8", "surrogatepass"), *self.shares)


def encoded_batches(
    batches: Iterator[TextBatch], encoder: Encoder, config: dict[str, Any], folder: Path, workers: int
) -> Generator[tuple[TextBatch, Encoded], None, None]:
    """Each batch with its tokens, in order; few of them are in memory at a time.

    config, folder: the codec as it was saved, from which each process makes its own.
    """
    if workers == 1:
        for batch in batches:
            yield batch, encoder(batch.texts, batch.first, batch.last, batch.split)
        return
    waiting: deque[tuple[TextBatch, Future[Encoded]]] = deque()
    # spawned, not forked: the tokenizer's threads would not survive a fork
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (config, folder, encoder.shares))
    try:
        with _interrupts_ignored():  # by the processes that are started now
            pool.submit(int)
        for batch in batches:
            waiting.append((batch, pool.submit(_encode, batch.texts, batch.first, batch.last, batch.split)))
            if len(waiting) > AHEAD * workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    except BrokenProcessPool as error:
        raise ValueError(
            "a worker process ended before its work was done (too little memory, or a script without its "
            '`if __name__ == "__main__":`): do the same again to go on, or take one worker'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where signals cannot be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_encoder: Encoder | None = None  # of a worker process


def _begin(config: dict[str, Any], folder: Path, shares: tuple[float, float]) -> None:
    """Make a worker ready; it ends with the process that started it, however that ends."""
    global _encoder  # noqa: PLW0603
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encoder = Encoder(codec_from(config, folder), shares)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(texts: list[str], first: list[bool], last: list[bool], split: list[int]) -> Encoded:
    assert _encoder is not None
    return _encoder(texts, first, last, split)
