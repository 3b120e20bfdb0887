"""Documents cut into windows of one length, as published evaluations cut them.

Documents are concatenated, a thousand at a time, cut side by side, and the remainder of each thousand is dropped: that is how
`datasets.map(batched=True)` came to do it in the code of SEDD, MDLM, BD3-LM and Duo. There the borders also depend on the
number of processors; here it is one. MDLM's runs on LM1B do otherwise: a window for each sentence, padded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unnoise.data.bytes import byte_count
from unnoise.data.codec import Codec

ROWS = 1000  # documents that are concatenated, the default of datasets.map


@dataclass(frozen=True)
class Wrapping:
    """How documents become windows.

    ends: an end token follows each document. around: each window is begin token, length − 2 tokens, end token. rows: documents
    that are concatenated, the remainder dropped; None: all. whole_batches: the number of windows is cut to a multiple of it.
    padded: each document is one window, cut at its end or filled up with end tokens, which do not count.
    """

    ends: bool = True
    around: bool = False
    rows: int | None = ROWS
    whole_batches: int = 1
    padded: bool = False

    @property
    def words(self) -> str:
        """The same in words."""
        if self.padded:
            return "a window for each document: begin token, at most L − 2 tokens, end token and padding"
        ends = "an end token after each document" if self.ends else "no end token between documents"
        windows = "begin token, L − 2 tokens and end token" if self.around else "L tokens"
        rows = "all documents" if self.rows is None else f"{self.rows:,} documents at a time"
        return f"{ends}, {rows} cut into windows of {windows}"


@dataclass(frozen=True)
class Chunks:
    """Windows x [N, L] long, which of their tokens count [N, L] bool, and what was done to get them.

    documents: how many went in. tokens: theirs, with the end tokens between them. dropped: of these, in no window. specials:
    begin and end tokens put around windows. characters, bytes: of the text in the windows, by the share of tokens in them.
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
    """Windows of `length` tokens; ValueError if the codec lacks an end token that is needed, or there is too little text."""
    needed = wrapping.around or wrapping.ends
    if needed and codec.divider is None:
        raise ValueError(
            f"this protocol puts an end token between documents or around windows, and the codec {codec.kind} has none here"
        )
    inside = length - 2 if wrapping.around else length
    if inside < 1:
        raise ValueError(f"windows of {length} tokens have no room beside their begin and end tokens")
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
    """A window for each document: begin token, at most length − 2 tokens, end token, and end tokens that do not count."""
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
    """Return the characters of some windows [n]: those of all windows, shared out by what each one's tokens decode to.

    Begin and end tokens are left out. Windows differ in how many characters a token has, so that a share by their number would
    give bits per character of the whole split, and not of the windows that are measured.
    """
    return chunks.characters * _share(chunks, codec, which, len)


def bytes_of(chunks: Chunks, codec: Codec, which: Tensor) -> float:
    """Return the bytes of some windows [n] in the same way."""
    return chunks.bytes * _share(chunks, codec, which, byte_count)


def _share(chunks: Chunks, codec: Codec, which: Tensor, count: Callable[[str], int]) -> float:
    """Return the share of some windows in all, by what their tokens decode to."""
    if len(which) == len(chunks.x):
        return 1.0
    around = [codec.begin, codec.divider]

    def decoded(row: Tensor, counted: Tensor) -> int:
        return count(codec.decode([token for token in row[counted].tolist() if token not in around]))

    sizes = torch.tensor([decoded(*pair) for pair in zip(chunks.x, chunks.counted, strict=True)], dtype=torch.float64)
    return float(sizes[which].sum() / sizes.sum().clamp_min(1))


def pieces(texts: Iterable[str], length: int) -> list[str]:
    """A stream cut into documents of `length` characters, a shorter last one dropped (text8 as MDLM reads it)."""
    return [text[i : i + length] for text in texts for i in range(0, len(text) - length + 1, length)]
