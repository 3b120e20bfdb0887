"""Text files as streams of pieces: plain or compressed text, lines, JSON lines, Parquet and Arrow. No file is loaded whole.

A document of more than `PIECE` characters comes in several pieces. If possible it is cut before white space that follows a
letter, where all of our codecs start a new token, so the tokens are those of the whole document.
"""

import bz2
import codecs
import gzip
import importlib
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

Kind = Literal["text", "lines", "jsonl", "parquet", "arrow"]
PACKED = (".gz", ".bz2", ".xz", ".zst")
PIECE = 2**18  # maximum number of characters to encode at once
CHUNK = 2**20  # bytes to read at once
SEARCHED = 4096  # characters to search for a place to cut
MAX_LINE_BYTES = 2**28  # longest JSON line
ROWS = 256  # rows of a Parquet file to read at once
WORD_END, TEXT_END = re.compile(r"[A-Za-z](?=\s)"), re.compile(r"\S(?=\s)")


class Piece(NamedTuple):
    """A document, or a piece of a long one.

    last: whether the document ends with it.
    position: position where reading can resume after it, or None.
    done: share of the input that has been read, 0 to 1.
    """

    text: str
    last: bool
    position: int | None
    done: float


@dataclass(frozen=True)
class Input:
    """A file to read, or its unpacked bytes from start to stop.

    split: split of the whole file, or None.
    field: field or column with the text.
    one_line: whether to drop the newline of a file with a single line, such as text8.
    """

    path: Path
    kind: Kind
    split: str | None = None
    field: str = "text"
    start: int = 0
    stop: int | None = None
    one_line: bool = False

    @property
    def size(self) -> int:
        """Number of bytes to read, for progress."""
        return self.path.stat().st_size if self.stop is None else self.stop - self.start

    def pieces(self, position: int | None = None) -> Iterator[Piece]:
        """Yield all documents in order, or those after a position; raise ValueError if the file cannot be read."""
        readers = {"text": _text, "lines": _lines, "jsonl": _jsonl, "parquet": _parquet, "arrow": _arrow}
        try:
            yield from readers[self.kind](self, self.start if position is None else position)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise ValueError(f"cannot read {self.path}: {error}") from error


def extra(module: str, what: str) -> Any:
    """Import a module of the extra `data`. what: what needs it, for the error message."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{what} needs {module.partition('.')[0]}: pip install 'unnoise[data]'") from error


def cut(text: str, start: int = 0) -> int:
    """Return where to cut a text with more than PIECE characters after `start`."""
    for pattern in (WORD_END, TEXT_END):
        *_, end = 0, *(found.end() for found in pattern.finditer(text, start + max(0, PIECE - SEARCHED), start + PIECE))
        if end:
            return end
    return start + PIECE


def _slices(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a text, and whether each is the last."""
    start = 0
    while len(text) - start > PIECE:
        begun, start = start, cut(text, start)
        yield text[begun:start], False
    yield text[start:] if start else text, True


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file, and yield its decompressed and its raw stream."""
    with open(path, "rb") as raw:
        if path.suffix == ".zst":
            zstandard = extra("zstandard", "a file .zst")
            try:
                yield BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)), raw
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            return
        openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
        if path.suffix in openers:
            with openers[path.suffix](raw) as file:
                yield file, raw
        else:
            yield raw, raw


def _go_to(file: IO[bytes], position: int) -> None:
    """Move a newly opened file to a position."""
    if file.seekable():
        file.seek(position)
    else:
        while position and (chunk := file.read(min(CHUNK, position))):
            position -= len(chunk)


def _decoded(source: Input, position: int) -> Iterator[tuple[str, float]]:
    """Yield the text of a file from a byte on, and the share that has been read. Bytes that are not UTF-8 become surrogates."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    with _unpacked(source.path) as (file, raw):
        _go_to(file, position)
        size = source.path.stat().st_size
        while chunk := file.read(CHUNK if source.stop is None else max(0, min(CHUNK, source.stop - position))):
            position += len(chunk)
            share = raw.tell() / size if source.stop is None else (position - source.start) / (source.stop - source.start)
            yield decoder.decode(chunk), share
    yield decoder.decode(b"", final=True), 1.0


def num_bytes(text: str) -> int:
    """Return the number of UTF-8 bytes of a text. A surrogate that stands for one byte counts as one."""
    try:
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # half a surrogate pair, as JSON may have it
        return len(text.encode("utf-8", "surrogatepass"))


def _text(source: Input, position: int) -> Iterator[Piece]:
    """Yield the file as one document."""
    rest = ""
    for more, done in _decoded(source, position):
        rest += more
        while len(rest) > PIECE:
            text, rest = rest[: (end := cut(rest))], rest[end:]
            position += num_bytes(text)
            yield Piece(text, False, position, done)
    position += num_bytes(rest)
    if source.one_line and rest.endswith("\n") and _first_line_end(source) == position - 1:
        rest = rest[:-1]
    yield Piece(rest, True, position, 1.0)


def _first_line_end(source: Input) -> int:
    """Return the byte position of the first newline."""
    before = 0
    with _unpacked(source.path) as (file, _):
        while chunk := file.read(CHUNK):
            if (place := chunk.find(b"\n")) >= 0:
                return before + place
            before += len(chunk)
    return before


def _lines(source: Input, position: int) -> Iterator[Piece]:
    """Yield each line as a document."""
    rest = ""
    for more, done in _decoded(source, position):
        *lines, rest = (rest + more).split("\n")
        for line in lines:
            for text, last in _slices(line):
                position += num_bytes(text) + last  # plus one byte for the newline
                yield Piece(text.removesuffix("\r") if last else text, last, position, done)
        while len(rest) > PIECE:
            text, rest = rest[: (end := cut(rest))], rest[end:]
            position += num_bytes(text)
            yield Piece(text, False, position, done)
    yield Piece(rest.removesuffix("\r"), True, position + num_bytes(rest), 1.0)


def _record(text: str, position: int, done: float) -> Iterator[Piece]:
    """Yield the pieces of one record's text. Reading can resume after the last."""
    for part, last in _slices(text):
        yield Piece(part, last, position if last else None, done)


def _jsonl(source: Input, position: int) -> Iterator[Piece]:
    """Yield a field of each JSON line."""
    size = source.path.stat().st_size
    with _unpacked(source.path) as (file, raw):
        _go_to(file, position)
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(f"a line of {source.path} is longer than {MAX_LINE_BYTES:,} bytes")
            before, position = position, position + len(line)
            if line.isspace():
                continue
            where = f"the line at byte {before:,} of {source.path}"
            try:
                record = json.loads(line.decode("utf-8", "surrogateescape"))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"{where} is not an object with a field {source.field!r}")
            if source.field not in record:
                raise ValueError(f"{where} {_fields(source.field, list(record))}")
            text = record[source.field]
            if not isinstance(text, str | None):
                raise ValueError(f"{where} has no text in {source.field!r} but {type(text).__name__}")
            yield from _record(text or "", position, raw.tell() / size)


def _parquet(source: Input, position: int) -> Iterator[Piece]:
    """Yield a column of each row."""
    module = extra("pyarrow.parquet", "a Parquet file")
    with _arrow_errors(), module.ParquetFile(source.path, pre_buffer=False, buffer_size=CHUNK) as file:
        _check_column(source, file.schema_arrow)
        row, rows = 0, max(1, file.metadata.num_rows)
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if row + count <= position:
                row += count
                continue
            for batch in file.iter_batches(batch_size=ROWS, row_groups=[group], columns=[source.field]):
                yield from _rows(batch.column(0), row, position, rows)
                row += batch.num_rows


def _arrow(source: Input, position: int) -> Iterator[Piece]:
    """Yield a column of each row of a stream, as 🤗 datasets save them, or of an Arrow file."""
    arrow = extra("pyarrow", "an Arrow file")
    with _arrow_errors(), arrow.OSFile(str(source.path)) as file:
        is_stream = file.read(6) != b"ARROW1"
        file.seek(0)
        reader = arrow.ipc.open_stream(file) if is_stream else arrow.ipc.open_file(file)
        _check_column(source, reader.schema)
        batches = reader if is_stream else (reader.get_batch(i) for i in range(reader.num_record_batches))
        row, size = 0, max(1, source.size)
        for batch in batches:
            for piece in _rows(batch.column(source.field), row, position, 1):
                yield piece._replace(done=min(1.0, file.tell() / size))
            row += batch.num_rows


def _rows(column: Any, row: int, position: int, total: int) -> Iterator[Piece]:
    """Yield the rows of a column from a position on. row: number of the column's first row."""
    for number, text in enumerate(column.slice(max(0, position - row)).to_pylist(), max(row, position) + 1):
        yield from _record(text or "", number, number / total)


def _check_column(source: Input, schema: Any) -> None:
    if source.field not in schema.names:
        raise ValueError(f"{source.path} {_fields(source.field, schema.names)}")
    kind = str(schema.field(source.field).type)
    if kind not in ("string", "large_string", "string_view"):
        raise ValueError(f"the column {source.field!r} of {source.path} holds {kind}, not text: choose another with --field")


def _fields(wanted: str, there: list[str]) -> str:
    return f"has no field {wanted!r}, but {', '.join(map(str, there[:9])) or 'none'}: choose one with --field"


@contextmanager
def _arrow_errors() -> Iterator[None]:
    arrow = extra("pyarrow", "a Parquet file")
    try:
        yield
    except arrow.ArrowException as error:
        raise OSError(str(error).partition("\n")[0]) from error
