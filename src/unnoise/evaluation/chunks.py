"""Documents cut into windows of one length, as in published evaluations.

A thousand documents at a time are concatenated and cut into windows, and the remainder is dropped. This is the effect of
`datasets.map(batched=True)` in the code of SEDD, MDLM, BD3-LM and Duo. There the windows also depend on the number of
processes, which is one here. MDLM's runs on LM1B instead use one padded window for each sentence.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unnoise.data.bytes import byte_count
from unnoise.data.codec import Codec

ROWS = 1000  # default batch of datasets.map


@dataclass(frozen=True)
class Wrapping:
    """Rule for cutting documents into windows.

    ends: whether an EOS token follows each document.
    around: whether each window is BOS, length − 2 tokens, EOS.
    rows: number of documents that are concatenated, or None for all.
    whole_batches: the number of windows is rounded down to a multiple of this number.
    padded: whether each document is one window, truncated or padded with EOS tokens that do not count.
    """

    ends: bool = True
    around: bool = False
    rows: int | None = ROWS
    whole_batches: int = 1
    padded: bool = False

    @property
    def description(self) -> str:
        """Description for the user."""
        if self.padded:
            return "a window for each document: BOS, at most L − 2 tokens, EOS and padding"
        ends = "EOS after each document" if self.ends else "no EOS between documents"
        windows = "BOS, L − 2 tokens and EOS" if self.around else "L tokens"
        rows = "all documents" if self.rows is None else f"{self.rows:,} documents at a time"
        return f"{ends}, {rows} cut into windows of {windows}"


@dataclass(frozen=True)
class Chunks:
    """Windows of texts.

    x: tokens [N, L] long.
    counted: tokens that count [N, L] bool.
    documents: number of documents.
    tokens: number of their tokens, including EOS between documents.
    dropped: number of tokens in no window.
    specials: number of BOS and EOS tokens around windows.
    characters, bytes: size of the text in the windows, estimated by the share of tokens in them.
    """

    x: Tensor
    counted: Tensor
    documents: int
    tokens: int
    dropped: int
    specials: int
    characters: float
    bytes: float


def chunk(texts: Sequence[str], codec: Codec, length: int, wrapping: Wrapping) -> Chunks:
    """Cut texts into windows. Raise ValueError if the codec lacks EOS, or if the texts are too short."""
    needed = wrapping.around or wrapping.ends
    if needed and codec.divider is None:
        raise ValueError(
            f"this protocol puts an EOS token between documents or around windows, and the codec {codec.kind} has none here"
        )
    inside = length - 2 if wrapping.around else length
    if inside < 1:
        raise ValueError(f"windows of {length} tokens have no room next to their BOS and EOS tokens")
    end = -1 if codec.divider is None else codec.divider
    begin = end if codec.begin is None else codec.begin
    if wrapping.padded:
        return _padded(texts, codec, length, begin, end)
    ends = np.array([end] if wrapping.ends else [], dtype=np.int64)
    rows: list[np.ndarray] = []
    tokens = 0
    for start in range(0, len(texts), wrapping.rows or len(texts)):
        batch = texts[start : start + (wrapping.rows or len(texts))]
        joined = np.concatenate([np.concatenate([codec.encode(text), ends]) for text in batch])
        tokens += len(joined)
        rows += list(joined[: len(joined) // inside * inside].reshape(-1, inside))
    if len(rows) >= wrapping.whole_batches:
        rows = rows[: len(rows) // wrapping.whole_batches * wrapping.whole_batches]
    if not rows:
        raise ValueError(f"the texts have {tokens} tokens, too few for one window of {length}")
    x = torch.from_numpy(np.stack(rows))
    if wrapping.around:
        x = torch.nn.functional.pad(x, (1, 0), value=begin)
        x = torch.nn.functional.pad(x, (0, 1), value=end)
    kept = len(rows) * inside
    characters = sum(map(len, texts)) * kept / tokens
    size = sum(map(byte_count, texts)) * kept / tokens
    counted = torch.ones_like(x, dtype=torch.bool)
    return Chunks(x, counted, len(texts), tokens, tokens - kept, x.numel() - kept, characters, size)


def _padded(texts: Sequence[str], codec: Codec, length: int, begin: int, end: int) -> Chunks:
    """Return a window for each document: BOS, at most length − 2 tokens, EOS, and EOS tokens that do not count."""
    encoded = [codec.encode(text) for text in texts]
    kept = torch.tensor([min(len(row), length - 2) for row in encoded])
    x = torch.full((len(texts), length), end)
    x[:, 0] = begin
    for row, tokens in zip(x, encoded, strict=True):
        some = tokens[: length - 2]
        row[1 : 1 + len(some)] = torch.from_numpy(some)
    counted = torch.arange(length) < kept[:, None] + 2
    tokens, inside = sum(map(len, encoded)), int(kept.sum())
    characters = sum(map(len, texts)) * inside / max(tokens, 1)
    size = sum(map(byte_count, texts)) * inside / max(tokens, 1)
    return Chunks(x, counted, len(texts), tokens, tokens - inside, int(counted.sum()) - inside, characters, size)


def characters_of(chunks: Chunks, codec: Codec, which: Tensor) -> float:
    """Return the number of characters of some windows [n], by their share of the decoded characters of all windows.

    BOS and EOS tokens are left out. A share by the number of windows would be wrong, because tokens differ in length.
    """
    return chunks.characters * _share(chunks, codec, which, len)


def bytes_of(chunks: Chunks, codec: Codec, which: Tensor) -> float:
    """Return the number of bytes of some windows [n]. See `characters_of`."""
    return chunks.bytes * _share(chunks, codec, which, byte_count)


def _share(chunks: Chunks, codec: Codec, which: Tensor, count: Callable[[str], int]) -> float:
    """Return the share of some windows [n] in the decoded text of all windows."""
    if len(which) == len(chunks.x):
        return 1.0
    around = [codec.begin, codec.divider]

    def decoded(row: Tensor, counted: Tensor) -> int:
        return count(codec.decode([token for token in row[counted].tolist() if token not in around]))

    sizes = torch.tensor([decoded(*pair) for pair in zip(chunks.x, chunks.counted, strict=True)], dtype=torch.float64)
    return float(sizes[which].sum() / sizes.sum().clamp_min(1))


def pieces(texts: Iterable[str], length: int) -> list[str]:
    """Cut a stream into documents of `length` characters and drop a shorter last one, as MDLM does with text8."""
    return [text[i : i + length] for text in texts for i in range(0, len(text) - length + 1, length)]
