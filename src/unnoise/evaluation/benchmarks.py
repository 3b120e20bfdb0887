"""Benchmark data sets from the user's files, with their published split, field and detokenizer.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unnoise.data.corpus import Corpus, corpus, read_text
from unnoise.data.formats import PACKED, Input, Kind
from unnoise.data.splits import split_name
from unnoise.data.table import column_texts
from unnoise.evaluation import detokenize
from unnoise.evaluation.detokenize import Detokenizer
from unnoise.files import LARGEST_TEXT, read_bytes
from unnoise.published_tables import plain_name

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
