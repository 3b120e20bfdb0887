"""Choice of a codec for a stream of documents, and their tokenization by several processes, in order.

The codec depends on all training text or on a bounded sample of it. The tokens do not depend on the number of processes.
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
from unnoise.data.shard_files import SPLITS, Encoded, hash_split

AHEAD = 2  # queued batches per process
SAMPLED = 32_000_000  # maximum number of characters to train a vocabulary on


def choose_codec(name: str, inputs: list[Input], shares: tuple[float, float], say: Callable[[str], None]) -> Codec:
    """Return the codec of this name for the training part of the inputs. shares: held-out shares for valid and test."""
    everything = name in (AUTO, Characters.kind)  # every character counts
    if everything:
        say(f"reading all inputs once to choose the codec ({name})")
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
    """Yield the training documents, long ones in pieces."""
    for one in inputs:
        begun = mine = False
        for piece in one.pieces() if one.split in (None, "train") else ():
            if not begun:
                mine = one.split is not None or hash_split(piece.text.encode("utf-8", "surrogatepass"), *shares) == 0
            begun = not piece.last
            if mine:
                yield piece.text


def sampled_texts(inputs: list[Input], shares: tuple[float, float], most: int = SAMPLED) -> Iterator[str]:
    """Yield at most `most` characters of the training documents: the beginnings of all inputs in pseudo-random order."""

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


class Position(NamedTuple):
    """Point where reading resumes: the index of the input and the position in it (None: its start)."""

    number: int = 0
    place: int | None = None


BEGINNING = Position()


@dataclass
class TextBatch:
    """Pieces of documents that are encoded together.

    split: number of each piece's split; −1 if a hash of its content decides.
    position: point where reading resumes after the batch; None inside a record.
    done: number of input bytes so far.
    """

    texts: list[str] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    last: list[bool] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    position: Position | None = None
    done: float = 0.0


def text_batches(inputs: Sequence[Input], position: Position = BEGINNING, begun: bool = False) -> Iterator[TextBatch]:
    """Yield all pieces from a position on, about PIECE characters per batch. Empty documents are skipped.

    begun: whether the position lies inside a document.
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
    """Function from batches to tokens. shares: held-out shares for valid and test."""

    def __init__(self, codec: Codec, shares: tuple[float, float]):
        self.codec, self.shares, self.dtype = codec, shares, token_dtype(codec.vocab)

    def __call__(self, texts: list[str], first: list[bool], last: list[bool], split: list[int]) -> Encoded:
        end = [] if self.codec.eos is None else [np.array([self.codec.eos], dtype=self.dtype)]
        parts: list[np.ndarray] = []
        lengths: list[int] = []
        for text, ends in zip(texts, last, strict=True):
            encoded = [self.codec.encode(text).astype(self.dtype), *(end if ends else [])]
            parts += encoded
            lengths.append(sum(map(len, encoded)))
        sides = [self._split(*piece) for piece in zip(texts, first, split, strict=True)]
        return Encoded(
            tokens=np.concatenate(parts) if parts else np.zeros(0, self.dtype),
            lengths=np.array(lengths, dtype=np.int64),
            characters=np.array([len(text) for text in texts], dtype=np.int64),
            bytes=np.array([num_bytes(text) for text in texts], dtype=np.int64),
            first=np.array(first, dtype=bool),
            last=np.array(last, dtype=bool),
            split=np.array(sides, dtype=np.int8),
        )

    def _split(self, text: str, first: bool, split: int) -> int:
        return split if split >= 0 or not first else hash_split(text.encode("utf-8", "surrogatepass"), *self.shares)


def encoded_batches(
    batches: Iterator[TextBatch], encoder: Encoder, config: dict[str, Any], folder: Path, workers: int
) -> Generator[tuple[TextBatch, Encoded], None, None]:
    """Yield each batch with its tokens, in order, with a bounded number of batches in memory.

    config, folder: the saved codec, which each process loads.
    """
    if workers == 1:
        for batch in batches:
            yield batch, encoder(batch.texts, batch.first, batch.last, batch.split)
        return
    waiting: deque[tuple[TextBatch, Future[Encoded]]] = deque()
    # spawned, since the tokenizer's threads do not survive a fork
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (config, folder, encoder.shares))
    try:
        with _interrupts_ignored():  # inherited by the processes that start here
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
            '`if __name__ == "__main__":`): run the same command again to resume, or use one worker'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals can be set in the main thread only
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_encoder: Encoder | None = None  # set in each worker process


def _begin(config: dict[str, Any], folder: Path, shares: tuple[float, float]) -> None:
    """Initialize a worker, which exits when its parent process ends for any reason."""
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
