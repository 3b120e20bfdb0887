"""Benchmark data sets, and their documents cut into windows of one length, as in published evaluations.

A thousand documents at a time are concatenated and cut into windows, and the remainder is dropped. This is the effect of
`datasets.map(batched=True)` in the code of SEDD, MDLM, BD3-LM and Duo. There the windows also depend on the number of
processes, which is one here. MDLM's runs on LM1B instead use one padded window for each sentence.

Benchmarks are read from the user's files, with their published split, field and detokenizer:

| name | file | split | field of a record |
|---|---|---|---|
| lambada | OpenAI's lambada_test.jsonl | test | text |
| wikitext2, wikitext103 | raw WikiText: lines, records or Parquet | valid | text |
| ptb | Penn Treebank, a sentence a line | valid | sentence |
| lm1b | a text a line, or records | test | text |
| ag_news | the .csv of class, title and description, a text a line, or records | test | text, or title and description |
| arxiv, pubmed | scientific_papers, records | valid | article |
| openwebtext | a text a line, or records | valid | text |
| text8, enwik8 | Mahoney's files, or a folder with train, valid and test | test | |
| plain | any text (one document), or records | test | text |
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unnoise.apps.protocols import detokenize
from unnoise.apps.protocols.detokenize import Detokenizer
from unnoise.data.codec import Codec
from unnoise.data.corpus import Corpus, corpus, read_text
from unnoise.data.documents import column_texts
from unnoise.data.formats import PACKED, Input, Kind
from unnoise.data.shard_files import split_name
from unnoise.data.tokenizer import byte_count
from unnoise.files import LARGEST_TEXT, read_bytes
from unnoise.published_tables import plain_name

ROWS = 1000  # default batch of datasets.map


@dataclass(frozen=True)
class Wrapping:
    """Rule for cutting documents into windows.

    ends: whether an EOS token follows each document.
    around: whether each window is BOS, length − 2 tokens, EOS.
    rows: number of documents that are concatenated, or None for all.
    whole_batches: divisor to whose multiple the number of windows is rounded down.
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
    begin = end if codec.bos is None else codec.bos
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
    return _chunks(texts, x, torch.ones_like(x, dtype=torch.bool), tokens=tokens, inside=len(rows) * inside)


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
    return _chunks(texts, x, counted, tokens=sum(map(len, encoded)), inside=int(kept.sum()))


def _chunks(texts: Sequence[str], x: Tensor, counted: Tensor, *, tokens: int, inside: int) -> Chunks:
    """Return windows with their sizes. `inside` of the texts' tokens are in the windows."""
    return Chunks(
        x=x,
        counted=counted,
        documents=len(texts),
        tokens=tokens,
        dropped=tokens - inside,
        specials=int(counted.sum()) - inside,
        characters=sum(map(len, texts)) * inside / max(tokens, 1),
        bytes=sum(map(byte_count, texts)) * inside / max(tokens, 1),
    )


def characters_of(chunks: Chunks, codec: Codec, which: Tensor) -> float:
    """Return the number of characters in some windows [n], without BOS and EOS tokens.

    It is estimated by the share of these windows in the decoded text, because windows differ in their number of characters.
    """
    return chunks.characters * _share(chunks, codec, which, len)


def bytes_of(chunks: Chunks, codec: Codec, which: Tensor) -> float:
    """Return the number of bytes in some windows [n]. See `characters_of`."""
    return chunks.bytes * _share(chunks, codec, which, byte_count)


def _share(chunks: Chunks, codec: Codec, which: Tensor, count: Callable[[str], int]) -> float:
    if len(which) == len(chunks.x):
        return 1.0
    around = [codec.bos, codec.divider]

    def decoded(row: Tensor, counted: Tensor) -> int:
        return count(codec.decode([token for token in row[counted].tolist() if token not in around]))

    sizes = torch.tensor([decoded(*pair) for pair in zip(chunks.x, chunks.counted, strict=True)], dtype=torch.float64)
    return float(sizes[which].sum() / sizes.sum().clamp_min(1))


def pieces(texts: Iterable[str], length: int) -> list[str]:
    """Cut a stream into documents of `length` characters and drop a shorter last one, as MDLM does with text8."""
    return [text[i : i + length] for text in texts for i in range(0, len(text) - length + 1, length)]


RECORDS: dict[str, Kind] = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".arrow": "arrow"}


@dataclass(frozen=True)
class Benchmark:
    """A data set with its published split.

    split: split that is measured.
    field: field of its records.
    detokenizer: function applied to each document.
    line_ends: whether lines of a text file keep their newline, and empty lines are empty documents (as in 🤗's WikiText).
    columns: columns of a .csv file without the field, joined by a space. Without a header, the last columns are used.
    stream: whether the data set is one long text, such as text8.
    in_pieces: whether MDLM's code first cuts the stream into documents of the window's length.
    length: length of the published windows in tokens.
    unit: unit of published bits.
    """

    name: str
    split: str
    field: str = "text"
    detokenizer: Detokenizer | None = None
    line_ends: bool = False
    columns: tuple[str, ...] = ()
    stream: bool = False
    in_pieces: bool = False
    length: int = 1024
    unit: str = "character"


BENCHMARKS = {
    one.name: one
    for one in (
        Benchmark("lambada", "test", detokenizer=detokenize.lambada),
        Benchmark("wikitext2", "valid", detokenizer=detokenize.wikitext, line_ends=True),
        Benchmark("wikitext103", "valid", detokenizer=detokenize.wikitext, line_ends=True),
        Benchmark("ptb", "valid", "sentence", detokenize.ptb),
        Benchmark("lm1b", "test", detokenizer=detokenize.lm1b),
        Benchmark("ag_news", "test", columns=("title", "description")),
        Benchmark("arxiv", "valid", "article", detokenize.scientific_papers),
        Benchmark("pubmed", "valid", "article", detokenize.scientific_papers),
        Benchmark("openwebtext", "valid"),
        Benchmark("text8", "test", stream=True, in_pieces=True, length=256),
        Benchmark("enwik8", "test", stream=True, length=320, unit="byte"),
        Benchmark("plain", "test", stream=True),
    )
}
ZERO_SHOT = ("lambada", "wikitext2", "wikitext103", "ptb", "lm1b", "ag_news", "arxiv", "pubmed")


def benchmark(name: str | None, data: str) -> Benchmark:
    """Return a benchmark by its name, or by the name of the file or its folder. The default is plain text."""
    if name is not None:
        if name not in BENCHMARKS:
            raise ValueError(f"unknown benchmark {name!r}: use one of {', '.join(BENCHMARKS)}")
        return BENCHMARKS[name]
    for part in reversed(Path(data).parts[-2:]):
        named = plain_name(part)
        found = [one for one in BENCHMARKS.values() if one.name != "plain" and named.startswith(plain_name(one.name))]
        if found:
            return max(found, key=lambda one: len(one.name))
    return BENCHMARKS["plain"]


def documents(one: Benchmark, data: str, split: str | None = None) -> list[str]:
    """Return the detokenized documents of a split, from a file, or from a folder with a file named after the split."""
    wanted = split_name(split or one.split)
    if one.stream and not _records(Path(data)):
        source = corpus(data)
        if not isinstance(source, Corpus):
            raise ValueError(f"{data} contains no plain text, which {one.name} needs")
        source.check_split(wanted)
        return list(source.documents[wanted])
    path = _file(Path(data), one.name, wanted)
    texts = _read(path, one)
    found = [one.detokenizer(text) for text in texts] if one.detokenizer else list(texts)
    if not any(found):
        raise ValueError(f"{path} has no text")
    return found


def find_benchmark(folder: Path, name: str) -> Path | None:
    """Return the file or folder named after a benchmark (wikitext-2 is wikitext2) in a folder, or None."""
    mine = [path for path in sorted(folder.iterdir()) if benchmark(None, path.name).name == name]
    return mine[0] if mine else None


def _file(path: Path, name: str, split: str) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"there is no file or folder {str(path)!r}: give the file with {name}'s texts")
    files = sorted(file for file in path.iterdir() if file.is_file())
    for file in files:
        if split_name(file.name.split(".")[0].split("-")[0]) == split:
            return file
    raise ValueError(
        f"the folder {path} has no file of the {split} split, which {name} is measured on: give the file itself, or --split"
    )


def _records(path: Path) -> Kind | None:
    """Return the format of the records in a file of this name, or None."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in PACKED]
    return RECORDS.get(suffixes[-1]) if suffixes else None


def _read(path: Path, one: Benchmark) -> Iterator[str]:
    kind = _records(path)
    if ".csv" in path.suffixes:
        table = read_bytes(path, LARGEST_TEXT, "text").decode("utf-8", "surrogateescape")
        yield from column_texts(table, path.name, one.field, one.columns)
        return
    if kind is None:
        lines = io.StringIO(read_text(path), newline="\n")  # only \n ends a line, as in the original readers
        yield from ((line if line.strip() else "") if one.line_ends else line.rstrip("\r\n") for line in lines)
        return
    text = ""
    for piece in Input(path, kind, field=one.field).pieces():
        text += piece.text
        if piece.last:
            yield text
            text = ""
