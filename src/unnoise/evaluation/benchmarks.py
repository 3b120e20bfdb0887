"""The texts that evaluations are published on, from the user's files: which split, which field, which detokenizer.

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

    split: which part is measured. field: of its records. detokenizer: applied to each document. line_ends: a line of a text
    file keeps its end, and an empty one is an empty document (as 🤗's WikiText has them). columns: of a .csv that lacks the
    field, joined by a blank; where it does not name them, they are its last ones. stream: one long text, such as text8;
    in_pieces: which MDLM's code first cuts into documents of a window's length. length: of the published windows, in tokens.
    unit: what published bits are counted per.
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
    """The data set of this name or, without one, that with whose name the file or its folder begins; else plain text."""
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
    """The documents of a split, detokenized: from a file, or from a folder in which a file has the split's name."""
    wanted = split_name(split or one.split)
    if one.stream and not _records(Path(data)):
        source = corpus(data)
        if not isinstance(source, Corpus):
            raise ValueError(f"{data} holds no plain text, and {one.name} is read as one")
        source.check_split(wanted)
        return list(source.documents[wanted])
    path = _file(Path(data), one.name, wanted)
    texts = _read(path, one)
    found = [one.detokenizer(text) for text in texts] if one.detokenizer else list(texts)
    if not any(found):
        raise ValueError(f"{path} has no text")
    return found


def find_benchmark(folder: Path, name: str) -> Path | None:
    """The file or folder within a folder that is named after a benchmark (wikitext-2 is wikitext2), or None."""
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
        f"the folder {path} has no file of the {split} part, which {name} is measured on: give the file itself, or --split"
    )


def _records(path: Path) -> Kind | None:
    """How records are kept in a file of this name, if it has records."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in PACKED]
    return RECORDS.get(suffixes[-1]) if suffixes else None


def _read(path: Path, one: Benchmark) -> Iterator[str]:
    kind = _records(path)
    if ".csv" in path.suffixes:
        table = read_bytes(path, LARGEST_TEXT, "text").decode("utf-8", "surrogateescape")
        yield from column_texts(table, path.name, one.field, one.columns)
        return
    if kind is None:
        lines = io.StringIO(read_text(path), newline="\n")  # a line ends at \n alone, as in the files' own readers
        yield from ((line if line.strip() else "") if one.line_ends else line.rstrip("\r\n") for line in lines)
        return
    text = ""
    for piece in Input(path, kind, field=one.field).pieces():
        text += piece.text
        if piece.last:
            yield text
            text = ""
