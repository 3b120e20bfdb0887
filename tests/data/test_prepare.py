"""`unnoise prepare`: every format gives the same shards, however many processes work and however often they are killed."""

import bz2
import filecmp
import gzip
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import unnoise
from unnoise.cli.main import main
from unnoise.cli.prepare_command import PrepareCommand
from unnoise.data import Bpe, Bytes, Characters, Text8, formats, tokenizing
from unnoise.data.corpus import Corpus, corpus
from unnoise.data.documents import Documents
from unnoise.data.inputs import find_inputs
from unnoise.data.prepare import PrepareOptions, prepare
from unnoise.data.shard_files import hash_split, read_index, verify
from unnoise.data.shards import ShardedCorpus
from unnoise.data.texts import Windows
from unnoise.data.tokenizing import sampled_texts

SENTENCE = "the cat sat on a mat while seven old dogs barked at the moon and birds sang in every tree of our town"
WORDS = SENTENCE.split()
LARGE_SHARE = {"valid_share": 0.1, "test_share": 0.1}


def texts(count: int = 300, seed: int = 0) -> list[str]:
    """Documents of one line each, some of them with letters that take two bytes."""
    rng = random.Random(seed)
    return [" ".join(rng.choices([*WORDS, "café", "naïve"], k=rng.randint(1, 40))) for _ in range(count)]


TEXTS = texts()


def hashes(folder: Path) -> list[str]:
    return [shard.hash for shards in read_index(folder).splits.values() for shard in shards.shards]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 200 characters, so that a document of a few hundred is a long one."""
    for module in (formats, tokenizing):
        monkeypatch.setattr(module, "PIECE", 200)
    monkeypatch.setattr(formats, "SEARCHED", 50)
    monkeypatch.setattr(formats, "CHUNK", 333)
    monkeypatch.setattr(formats, "ROWS", 16)


# ---- formats ----------------------------------------------------------------------------------------------------------


def write_formats(folder: Path, some: list[str]) -> dict[str, list[str]]:
    """Write the same documents in every format: name → arguments for `find_inputs` and options."""
    arrow, parquet, zstandard = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet", "zstandard"))
    lines, records = "\n".join(some), "\n".join(json.dumps({"text": text, "n": i}) for i, text in enumerate(some))
    (folder / "a.txt").write_text(lines)
    (folder / "a.windows.txt").write_bytes(lines.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    (folder / "a.txt.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "a.txt.xz").write_bytes(lzma.compress(lines.encode()))
    (folder / "a.jsonl").write_text(records + "\n\n")
    (folder / "a.jsonl.bz2").write_bytes(bz2.compress(records.encode()))
    half = len(records.encode()) // 2
    packed = zstandard.ZstdCompressor()  # two frames, as files that were joined have
    (folder / "a.jsonl.zst").write_bytes(packed.compress(records.encode()[:half]) + packed.compress(records.encode()[half:]))
    table = arrow.table({"n": list(range(len(some))), "text": some})
    parquet.write_table(table, folder / "a.parquet", row_group_size=70)
    with arrow.ipc.new_file(folder / "a.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=40)
    saved = folder / "saved"
    saved.mkdir()
    with arrow.ipc.new_stream(saved / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=64)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    many = folder / "many"
    many.mkdir()
    for i, text in enumerate(some):
        (many / f"{i:04d}.txt").write_text(text)
    return {path.name: [str(path)] for path in sorted(folder.iterdir())}


def test_every_format_gives_the_same_shards(tmp_path: Path, small_pieces: None) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    found = {}
    for name, paths in write_formats(sources, TEXTS).items():
        out = tmp_path / "out" / name
        assert prepare(paths, out, codec="bytes", lines=True, shard_size=8000, **LARGE_SHARE)
        found[name] = hashes(out)
    assert len(found) == 11 and len(found["a.txt"]) > 4
    assert all(one == found["a.txt"] for one in found.values()), found
    split_sizes = {name: shards.total("documents") for name, shards in read_index(tmp_path / "out" / "a.txt").splits.items()}
    assert sum(split_sizes.values()) == len(TEXTS) and split_sizes["train"] > split_sizes["valid"] > 10


def test_reading_goes_on_after_any_piece(tmp_path: Path, small_pieces: None) -> None:
    """In every format: from a position on comes what came after it the first time."""
    some = [*texts(30, seed=1), "", "x" * 900, " ".join(WORDS * 30), "ü" * 450]
    for name, paths in write_formats(tmp_path, some).items():
        for lines in (True, False) if name.endswith("txt") else (True,):
            for one in find_inputs(paths, lines=lines)[:40]:
                pieces = list(one.pieces())
                assert max(len(piece.text) for piece in pieces) <= 200 + 3 and pieces[-1].last
                documents = "".join(piece.text + "\n" * piece.last for piece in pieces)
                if not lines:
                    assert documents == one.path.read_bytes().decode() + "\n"
                elif name != "many":
                    assert documents.strip("\n") == "\n".join(some), name
                for i, piece in enumerate(pieces):
                    if piece.position is not None:
                        again = [p[:3] for p in one.pieces(piece.position)]
                        if i == len(pieces) - 1:
                            assert all(p[:2] == ("", True) for p in again)
                        else:
                            assert again == [p[:3] for p in pieces[i + 1 :]]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([*WORDS, " ", "  "]), max_size=400)
    | st.lists(st.sampled_from([*WORDS, "  ", "\n", "\t", ", ", "été", "42", "…", "'s", "don't"]), max_size=400)
)
def test_a_cut_does_not_change_the_tokens(small_pieces: None, pieces: list[str]) -> None:
    text = " ".join(pieces) + "".join(pieces[:20])
    place, parts = 0, []
    while len(text) - place > 200:
        begun, place = place, formats.cut(text, place)
        assert begun < place <= begun + 200
        parts.append(text[begun:place])
    parts.append(text[place:])
    assert "".join(parts) == text
    pure = not set(text) - set("abcdefghijklmnopqrstuvwxyz ")
    for codec in (Bytes(), Characters("".join(sorted({*text, "a"}))), BPE, *([Text8()] if pure else [])):
        assert np.array_equal(np.concatenate([codec.encode(part) for part in parts]), codec.encode(text)), codec.kind


BPE = Bpe.train([" ".join(TEXTS)], 400)


def test_without_white_space_a_text_is_cut_where_a_piece_ends(small_pieces: None) -> None:
    assert formats.cut("x" * 500) == 200 and formats.cut("x" * 500, 200) == 400
    assert formats.cut("語" * 180 + ". " + "語" * 300) == 181


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', r"the line at byte 14 of .* has no field 'text', but txt: choose one"),
        ("a.jsonl", b'{"text": "a"}\n{\n', r"the line at byte 14 of .* is not JSON"),
        ("a.jsonl", b"[1]\n", r"is not an object with a field 'text'"),
        ("a.jsonl", b'{"text": 3}\n', r"has no text in 'text' but int"),
        ("a.txt.gz", b"not gzip", r"cannot read .*a\.txt\.gz: Not a gzipped file"),
        ("a.txt.gz", gzip.compress(b"a text" * 99, mtime=0)[:-9], r"cannot read .*a\.txt\.gz: Compressed file ended"),
        ("a.txt.xz", b"not xz", r"cannot read .*a\.txt\.xz"),
        ("a.txt.zst", b"not zstd", r"cannot read .*a\.txt\.zst"),
        ("a.parquet", b"not parquet", r"cannot read .*a\.parquet"),
        ("a.arrow", b"not arrow", r"cannot read .*a\.arrow"),
        ("a.txt", b"", r"there is no text in .*a\.txt"),
        ("a.jsonl", b'{"text": ""}\n', r"there is no text in .*a\.jsonl"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    for needed in ("pyarrow", "zstandard"):
        pytest.importorskip(needed)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        prepare(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_column_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(arrow.table({"body": ["a b", None, "c"], "n": [1, 2, 3]}), tmp_path / "a.parquet")
    for field, words in (
        ("text", r"has no field 'text', but body, n: choose one with --field"),
        ("n", "holds int64, not text"),
    ):
        with pytest.raises(ValueError, match=words):
            prepare(tmp_path / "a.parquet", tmp_path / "out", field=field)
    prepare(tmp_path / "a.parquet", tmp_path / "out", field="body", valid_share=0, test_share=0)
    assert read_index(tmp_path / "out").splits["train"].total("documents") == 2  # nothing is no document


@pytest.mark.parametrize(("module", "name"), [("pyarrow", "a.parquet"), ("zstandard", "a.txt.zst"), ("datasets", "hf:a")])
def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"x")
    for part in (module, "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, part, None)
    with pytest.raises(ValueError, match=rf"needs {module}: pip install 'unnoise\[data\]'"):
        prepare(name, tmp_path / "out")


def test_data_sets_of_the_datasets_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved to a disk, and found by name (here that of a folder, as there is no network)."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    splits = {"train": TEXTS[:250], "validation": TEXTS[250:270], "test": TEXTS[270:]}
    made = datasets.DatasetDict({name: datasets.Dataset.from_dict({"text": some}) for name, some in splits.items()})
    made.save_to_disk(tmp_path / "both")
    made["train"].save_to_disk(tmp_path / "one")
    named = tmp_path / "named"
    named.mkdir()
    for name, some in splits.items():
        (named / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in some))
    found = {}
    for name, source in {"saved": "both", "files": "named", "by name": f"hf:{named}", "one": "one"}.items():
        out = tmp_path / "out" / name
        prepare(source if source.startswith("hf:") else tmp_path / source, out, codec="text8", **LARGE_SHARE)
        found[name] = out
    assert hashes(found["saved"]) == hashes(found["files"]) == hashes(found["by name"]) != hashes(found["one"])
    counts = {split: shards.total("documents") for split, shards in read_index(found["saved"]).splits.items()}
    assert counts == {"train": 250, "valid": 20, "test": 30}
    assert read_index(found["one"]).splits["valid"].total("documents") > 10  # without splits, documents are shared out


# ---- splits -----------------------------------------------------------------------------------------------------------


def test_documents_are_shared_out_by_their_content(tmp_path: Path) -> None:
    many = [f"document number {i}" for i in range(20_000)]
    sides = [hash_split(text.encode(), 0.02, 0.05) for text in many]
    for split, share in ((1, 0.02), (2, 0.05)):
        assert abs(sides.count(split) - share * 20_000) < 4.5 * (20_000 * share * (1 - share)) ** 0.5
    (tmp_path / "a.txt").write_text("\n".join(TEXTS * 2))  # each twice: both go the same way
    prepare(tmp_path / "a.txt", tmp_path / "out", lines=True, codec="chars", **LARGE_SHARE)
    source = corpus(str(tmp_path / "out"))
    codec = source.codec("auto")
    read = {}
    for split in source.splits:
        rows = source.texts(codec, split, 400, segment="sentences").windows().tolist()
        read[split] = sorted(codec.decode([token for token in row if token >= 0]) for row in rows)
    assert sorted(read["train"] + read["valid"] + read["test"]) == sorted(TEXTS * 2)
    assert not set(read["train"]) & set(read["valid"]) and not set(read["valid"]) & set(read["test"])


def test_one_text_is_cut_as_a_corpus_is(tmp_path: Path, small_pieces: None) -> None:
    """And its tokens, windows and order are those of the raw file."""
    text = " ".join(TEXTS[:60]) + " é\n"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    raw = corpus(str(tmp_path / "a.txt"))
    assert isinstance(raw, Corpus)
    for name in ("a.txt", "a.txt.gz"):
        out = tmp_path / f"{name}.out"
        prepare(tmp_path / name, out, valid_share=0.05, test_share=0.05, shard_size=700)
        source = corpus(str(out))
        assert isinstance(source, ShardedCorpus) and source.splits == ["train", "valid", "test"]
        codec = source.codec("auto")
        assert codec.identity() == raw.codec("auto").identity()
        for split in source.splits:
            mine, theirs = (one.texts(codec, split, 16) for one in (source, raw))
            assert torch.equal(mine.windows(), theirs.windows()) and mine.characters == theirs.characters
            numbers = torch.arange(3 * mine.num_windows)
            assert torch.equal(mine.batch(numbers, 4).x, theirs.batch(numbers, 4).x)
    assert len(read_index(tmp_path / "a.txt.out").splits["train"].shards) > 5


def test_a_folder_with_splits_is_read_as_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, some in (("train.txt", TEXTS[:80]), ("dev.txt", TEXTS[80:90]), ("test.txt", TEXTS[90:100])):
        (folder / name).write_text(" ".join(some) + "\n")
    (folder / "notes.md").write_text("not read")
    raw = corpus(str(folder))
    prepare(folder, tmp_path / "out")
    source = corpus(str(tmp_path / "out"))
    codec = source.codec("auto")
    assert isinstance(raw, Corpus)
    for split in source.splits:
        stream = source.texts(codec, split, 8)
        assert isinstance(stream, Windows) and codec.eos is None
        assert (
            codec.decode(stream.at(torch.arange(0, len(stream.tokens) - 7, 8)).reshape(-1))
            == (raw.documents[split][0][: len(stream.tokens) // 8 * 8])
        )
    single = folder / "train.txt"
    prepare([single, f"valid={folder / 'dev.txt'}"], tmp_path / "typed", lines=True, codec="bytes", test_share=0, valid_share=0)
    assert list(read_index(tmp_path / "typed").splits) == ["train", "valid"]
    subfolders = tmp_path / "sub"
    for split in ("train", "validation"):
        (subfolders / split).mkdir(parents=True)
        (subfolders / split / "a.txt").write_text(TEXTS[0])
    assert [one.split for one in find_inputs([str(subfolders)])] == ["train", "valid"]
    (subfolders / "validation" / "a.txt").unlink()
    assert [one.split for one in find_inputs([str(subfolders)])] == [None]  # only train: documents are shared out


# ---- reading ----------------------------------------------------------------------------------------------------------


def test_whole_documents_are_those_of_a_list(tmp_path: Path) -> None:
    some = [text for text in TEXTS if text.count(" ") > 3]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in some))
    prepare(tmp_path / "a.jsonl", tmp_path / "out", codec="bpe-300", valid_share=0, test_share=0, shard_size=1000)
    source = corpus(str(tmp_path / "out"))
    codec = source.codec("auto", segment="sentences")
    assert codec.eos is not None and len(read_index(tmp_path / "out").splits["train"].shards) > 5
    mine = source.texts(codec, "train", 30, segment="sentences")
    theirs = Documents("list", {"train": some}).texts(codec, "train", 30, segment="sentences")
    assert sorted(mine.windows().tolist()) == sorted(theirs.windows().tolist())
    assert mine.characters == pytest.approx(theirs.characters) and mine.mean_length == pytest.approx(theirs.mean_length)
    assert 10 < mine.num_windows < len(some)
    epoch = mine.batch(torch.arange(mine.num_windows), 0).x
    assert sorted(epoch.tolist()) == sorted(mine.windows().tolist())
    with pytest.raises(ValueError, match=r"no document of the train split of .* has 1 to 1 tokens"):
        source.texts(codec, "train", 1, segment="sentences")


def test_memory_does_not_grow_with_what_is_read(tmp_path: Path) -> None:
    """120 MB of tokens, every page of which is read, at under 40 MB more than before."""
    size = 120_000_000
    (tmp_path / "a.txt").write_bytes(b"seven letters\n" * 1000)
    prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes", valid_share=0, test_share=0)
    index = read_index(tmp_path / "out")
    np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8).tofile(tmp_path / "out" / "train-00000.tokens")
    index.splits["train"].shards[0].tokens = size
    index.write(tmp_path / "out")
    source = ShardedCorpus.open(tmp_path / "out")
    stream = source.texts(source.codec("auto"), "train", 64)
    page = torch.arange(0, size - 64, 4096)
    before = resident()
    for starts in page.split(256):
        assert isinstance(stream, Windows)
        stream.at(starts)
    assert resident() - before < 40e6


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_another_codec_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(TEXTS[:20]).replace("é", "e").replace("ï", "i"))
    prepare(tmp_path / "a.txt", tmp_path / "out", valid_share=0.1, test_share=0.1)
    source = corpus(str(tmp_path / "out"))
    assert source.codec("text8").kind == "text8"
    with pytest.raises(ValueError, match=r"out was prepared with the codec auto: leave --codec out, or prepare .* with bytes"):
        source.codec("bytes")
    model = unnoise.Model.build("mdlm", codec="bytes", length=8, width=16, depth=1, heads=2)
    with pytest.raises(ValueError, match=r"tokens of a different codec \(text8\) than the model's \(bytes, 256 tokens\)"):
        unnoise.train(model, str(tmp_path / "out"), steps=1)
    model.save(tmp_path / "model")
    prepare(tmp_path / "a.txt", tmp_path / "again", codec=str(tmp_path / "model"))  # the codec of a model
    assert unnoise.train(model, str(tmp_path / "again"), steps=1, batch=2, eval_windows=2).steps == 1


# ---- the same bytes ---------------------------------------------------------------------------------------------------


def same_files(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and all(
        filecmp.cmp(one / name, other / name, shallow=False) for name in names
    )


def test_any_number_of_processes_writes_the_same_bytes(tmp_path: Path, small_pieces: None) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in [*TEXTS, " ".join(WORDS * 60)]))
    for workers in (1, 2):
        prepare(tmp_path / "a.jsonl", tmp_path / str(workers), workers=workers, codec="bpe-300", shard_size=900, **LARGE_SHARE)
    assert same_files(tmp_path / "1", tmp_path / "2")
    assert verify(read_index(tmp_path / "1"), tmp_path / "1") > 12


KILLED = """
import sys
from unnoise.data import formats, prepare, tokenizing
formats.PIECE = tokenizing.PIECE = 1500
prepare.SAVE_EVERY = 0.0
shares = {"valid_share": 0.1, "test_share": 0.1}
sys.exit(not prepare.prepare(sys.argv[1], sys.argv[2], workers=2, codec="bpe-300", shard_size=4000, **shares))
"""


def test_killed_at_any_moment_it_goes_on_to_the_same_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its processes end with it."""
    for module in (formats, tokenizing):
        monkeypatch.setattr(module, "PIECE", 1500)
    source, out = tmp_path / "a.jsonl", tmp_path / "out"
    long = " ".join(random.Random(5).choices(WORDS, k=3000))
    source.write_text("\n".join(json.dumps({"text": text}) for text in [*texts(700, seed=2), long, *texts(200, seed=3)]))
    prepare(source, tmp_path / "whole", codec="bpe-300", shard_size=4000, **LARGE_SHARE)
    rng = random.Random(7)
    positions: list[Any] = []
    for kill in (True, True, False):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(source), str(out)], start_new_session=True)
        if kill:
            wait_for_checkpoints(process, out / "progress.json", rng.randint(1, 4))
            time.sleep(rng.random() * 0.05)
            os.kill(process.pid, signal.SIGKILL)
            positions.append(json.loads((out / "progress.json").read_text())["position"])
        process.wait(60)
        assert process.returncode == (-signal.SIGKILL if kill else 0)
        assert ended(process.pid)
    assert positions == sorted(positions, key=lambda position: position[1] or 0) and positions[0] != positions[-1]
    assert same_files(tmp_path / "whole", out)


def wait_for_checkpoints(process: subprocess.Popen[bytes], path: Path, count: int) -> None:
    """Until the file has been replaced so often."""
    seen: set[Any] = set()
    while len(seen) <= count and process.poll() is None:
        try:
            seen.add((path.stat().st_ino, path.stat().st_mtime_ns))
        except FileNotFoundError:
            time.sleep(0.01)


def ended(group: int) -> bool:
    """Wait some seconds for all processes of a group to end; return whether they did."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("kind", ["one text", "long texts", "records"])
def test_stopped_after_every_batch_it_comes_to_the_same_shards(tmp_path: Path, small_pieces: None, kind: str) -> None:
    source = tmp_path / "source"
    long = [" ".join(random.Random(i).choices(WORDS, k=150)) for i in range(8)]
    if kind == "long texts":
        source.mkdir()
        for i, text in enumerate(long):
            (source / f"{i}.txt").write_text(text)
    else:
        source = tmp_path / ("a.txt" if kind == "one text" else "a.jsonl")
        records = "\n".join(json.dumps({"text": text}) for text in [*TEXTS[:20], *long[:2], *TEXTS[20:30]])
        source.write_text(" ".join(long) if kind == "one text" else records)
    options: Any = {"codec": "bytes", "shard_size": 1500, "valid_share": 0.3, "test_share": 0.3}
    prepare(source, tmp_path / "whole", **options)
    assert len(read_index(tmp_path / "whole").splits) == 3
    stops = 0
    while not prepare(source, tmp_path / "out", stop=lambda: True, **options):
        with pytest.raises(ValueError, match=r"out is not complete: run the same `unnoise prepare` again"):
            corpus(str(tmp_path / "out"))
        stops += 1
    assert stops > 8 and same_files(tmp_path / "whole", tmp_path / "out")


def test_a_finished_folder_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(TEXTS))
    assert not prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes", stop=lambda: True)
    progress = (tmp_path / "out" / "progress.json").read_text()
    assert prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "out" / "progress.json").write_text(progress)  # as if killed at the very end
    said: list[str] = []
    assert prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes", say=said.append)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert said == ["all shards exist already"]


def test_a_folder_of_texts_may_have_an_index_of_its_own(tmp_path: Path) -> None:
    for name in ("index.json", "progress.json"):
        (tmp_path / name).write_text("{}")
    for i, text in enumerate(TEXTS[:30]):
        (tmp_path / f"{i}.txt").write_text(text)
    assert isinstance(corpus(str(tmp_path)), Corpus) and len(find_inputs([str(tmp_path)])) == 30


def test_other_options_and_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(TEXTS))
    prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes")
    for options, words in (
        ({"codec": "text8"}, "out was prepared with codec bytes, not text8: choose another --out"),
        ({"codec": "bytes", "test_share": 0.1}, "with test_share 0.005, not 0.1"),
    ):
        with pytest.raises(ValueError, match=words):
            prepare(tmp_path / "a.txt", tmp_path / "out", **options)
    (tmp_path / "a.txt").write_text("another text")
    with pytest.raises(ValueError, match="out was prepared from other files"):
        prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes")
    with pytest.raises(ValueError, match="is prepared already: give it to --data"):
        prepare(tmp_path / "out", tmp_path / "twice")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "tokenizer.json").write_text("mine")
    with pytest.raises(ValueError, match="full is not empty"):
        prepare(tmp_path / "a.txt", tmp_path / "full")
    assert os.listdir(tmp_path / "full") == ["tokenizer.json"]


# ---- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    prepare(tmp_path / "a.txt", tmp_path / "out", codec="bpe-300", lines=True, shard_size=2000, **LARGE_SHARE)
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("name", "act", "words"),
    [
        ("index.json", lambda content: content[:-40], r"index.json is damaged .*prepare it again"),
        (
            "index.json",
            lambda content: content.replace(b"uint16", b"uint8"),
            r"index.json is damaged \(its hash does not match",
        ),
        ("index.json", lambda content: b"[]", r"index.json is damaged"),
        ("index.json", lambda content: content.replace(b"tokens-1", b"tokens-9"), r"found 'unnoise-tokens-9'"),
        ("index.json", None, r"out holds no prepared data: index.json is missing"),
        ("train-00001.tokens", lambda content: content[:-2], r"train-00001.tokens has [\d,]+ bytes, not [\d,]+"),
        ("train-00000.tokens", None, r"train-00000.tokens is missing"),
        ("valid-00000.documents", lambda content: content + b"12345678", r"valid-00000.documents has .* bytes"),
        ("tokenizer.json", None, r"lacks its codec file tokenizer.json"),
        ("tokenizer.json", lambda content: BPE.tokenizer.to_str().encode(), r"differs from the one that encoded the shards"),
        ("tokenizer.json", lambda content: content[:300], r"tokenizer.json is not a tokenizer, or damaged"),
    ],
)
def test_damage_is_one_sentence(prepared: Path, name: str, act: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    if act is None:
        (prepared / name).unlink()
    else:
        (prepared / name).write_bytes(act((prepared / name).read_bytes()))
    with pytest.raises(ValueError, match=words):
        corpus(str(prepared)).codec("auto")
    assert main(["train", "mdlm", "--data", str(prepared), "--steps", "1", "--out", str(prepared.parent / "run")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_changed_shard_is_found_when_all_is_read(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(prepared), "--verify"]) == 0
    assert "files are unchanged" in capsys.readouterr().out
    for name in ("train-00001.tokens", "test-00000.documents"):
        content = bytearray((prepared / name).read_bytes())
        content[9] ^= 1
        (prepared / name).write_bytes(content)
        assert main(["info", str(prepared)]) == 0
        capsys.readouterr()
        assert main(["info", str(prepared), "--verify"]) == 2
        error = capsys.readouterr().err
        assert f"{name} is damaged: its hash does not match" in error and error.count("\n") == 1
        content[9] ^= 1
        (prepared / name).write_bytes(content)


def test_a_damaged_note_of_how_far_it_came(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(TEXTS))
    prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes", stop=lambda: True)
    progress = tmp_path / "out" / "progress.json"
    good = progress.read_text()
    progress.write_text(good[:40])
    with pytest.raises(ValueError, match=r"progress.json is damaged .*: delete .*out and prepare it again"):
        prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes")
    progress.write_text(good)
    (tmp_path / "out" / "train-00000.tokens").write_bytes(b"")
    with pytest.raises(ValueError, match=r"train-00000.tokens is shorter than recorded"):
        prepare(tmp_path / "a.txt", tmp_path / "out", codec="bytes")


# ---- codecs of a stream -----------------------------------------------------------------------------------------------


def test_a_vocabulary_is_trained_on_a_bounded_sample(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i}.txt").write_text(TEXTS[i] * 50)
    inputs = find_inputs([str(tmp_path)])
    found = list(sampled_texts(inputs, (0.0, 0.0), most=5000))
    assert sum(map(len, found)) <= 5000 and sum(map(len, sampled_texts(inputs, (0.0, 0.0)))) == sum(map(len, TEXTS[:40])) * 50
    said: list[str] = []
    prepare(tmp_path, tmp_path / "out", codec="bpe-300", say=said.append)
    assert len(said) == 1 and said[0].startswith("the codec bpe-300 was made from ")


def test_what_is_not_utf8(tmp_path: Path) -> None:
    raw = b"caf\xe9 " * 200
    (tmp_path / "a").write_bytes(raw)
    for codec, read in (("auto", raw), ("bytes", raw), ("bpe-300", raw.replace(b"\xe9", "�".encode()))):
        out = tmp_path / codec
        prepare(tmp_path / "a", out, codec=codec, valid_share=0, test_share=0)
        source = corpus(str(out))
        made = source.codec("auto")
        tokens = source.texts(made, "train", 1).windows().reshape(-1)
        assert made.decode(tokens).encode("utf-8", "surrogateescape") == read
        assert source.lossless(made, "train") == (codec != "bpe-300")
    (tmp_path / "half.jsonl").write_text('{"text": "half \\ud83d a pair"}\n')
    for codec in ("bytes", "chars", "bpe-300", "text8"):
        prepare(tmp_path / "half.jsonl", tmp_path / f"half {codec}", codec=codec, valid_share=0, test_share=0)


# ---- the command line -------------------------------------------------------------------------------------------------


def test_the_options_are_those_of_the_library() -> None:
    mine, theirs = PrepareCommand(), PrepareOptions()
    assert {name: vars(mine)[name] for name in vars(theirs)} == vars(theirs)


def test_train_eval_and_resume_on_prepared_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Report the same numbers as for the raw files."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, some in (("train.txt", TEXTS[:200]), ("valid.txt", TEXTS[200:250]), ("test.txt", TEXTS[250:])):
        (folder / name).write_text(" ".join(some))
    data, run = str(tmp_path / "data"), str(tmp_path / "run")

    def command(line: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main([*line.format(raw=folder, data=data, run=run).split(), "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    made = command("prepare {raw} --out {data} --workers 1 --shard-size 500")
    assert made["splits"]["train"]["characters"] == len(" ".join(TEXTS[:200])) and made["codec"] == "chars"
    assert command("info {data}")["splits"] == made["splits"]
    shape = "--size nano --length 16 --batch 4 --eval-windows 8"
    trained = command("train ar --data {data} --out {run} --steps 4 " + shape)
    on_raw = command("train ar --data {raw} --out {run}-raw --steps 4 " + shape)
    assert trained["bits"] == on_raw["bits"] and trained["steps"] == 4
    assert command("train ar --data {data} --out {run} --steps 6 --resume")["steps"] == 6
    figures = [command(f"eval --model {{run}} --data {where} --split test") for where in ("{data}", "{raw}")]
    assert figures[0] == figures[1]
    assert command("train flexmdm --data {data} --out {run}-flex --steps 2 " + shape)["steps"] == 2
    assert main(["info", data]) == 0
    shown = capsys.readouterr().out
    assert "codec      chars" in shown and "train " in shown and "documents" in shown
