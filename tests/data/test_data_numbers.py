"""Codecs, shards, samples and splits by hand: which token, which document, how many characters to a token."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unnoise.data import Bpe, Bytes, Characters, Pixels, Text8, codec
from unnoise.data.codec import token_dtype
from unnoise.data.corpus import Corpus, corpus
from unnoise.data.formats import PIECE
from unnoise.data.inputs import find_inputs
from unnoise.data.mixture import MixedData
from unnoise.data.prepare import prepare
from unnoise.data.shard_files import hash_split, split_documents
from unnoise.data.shards import ShardedCorpus, ShardTokens
from unnoise.data.texts import LabelledWindows, PaddedSequences, Sequences, Windows, thinned
from unnoise.data.tokenizing import choose_codec, sampled_texts, train_texts

SENTENCES = ["the cat sat on the mat", "a dog", "ran", "round and round the old oak tree", "and then it slept", "oh"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path / "cache"))


# ---- codecs ------------------------------------------------------------------------------------------------------------


def test_what_an_alphabet_lacks_becomes_the_nearest_of_it() -> None:
    """Without its accent before in another case; then in the other case; then both; then a blank, or nothing."""
    made = Characters("Eéo n")
    assert made.normalize("É") == "E" and made.normalize("Ö") == "o" and made.normalize("N") == "n"
    assert made.normalize("È?ñ") == "E n" and Characters("ab").normalize("a?b") == "ab"
    assert Text8().normalize("In 1984, 7up") == "in one nine eight four seven up"


def test_tokens_fit_into_their_numbers() -> None:
    for vocab, kind in ((2, np.uint8), (256, np.uint8), (257, np.uint16), (65_536, np.uint16), (65_537, np.int32)):
        assert token_dtype(vocab) == kind and np.array(vocab - 1).astype(token_dtype(vocab)) == vocab - 1


def test_a_blank_before_what_is_to_be_written() -> None:
    """Byte pairs leave a final blank to the next token, of which it is a part; for letters it is a separate token."""
    pairs = Bpe.train(SENTENCES * 20, 300)
    assert pairs.encode_prefix("the cat ").tolist() == pairs.encode("the cat").tolist()
    assert pairs.encode_prefix("the cat").tolist() == pairs.encode("the cat").tolist()
    assert Text8().encode_prefix("the cat ").tolist() == Text8().encode("the cat ").tolist()


def test_the_end_token_of_gpt2s_files_is_one_token(tmp_path: Path) -> None:
    made = Bpe.train(SENTENCES * 20, 300, end=True)
    made.tokenizer.model.save(str(tmp_path))
    read = codec(f"gpt2:{tmp_path}")
    assert read.eos == made.eos and read.encode("cat<|endoftext|>dog").tolist().count(made.eos) == 1
    assert read.decode([*read.encode("a cat"), read.eos, *read.encode("dog")]) == "a cat"


def test_byte_pairs_of_letters_refuse_other_symbols_where_that_is_asked_for() -> None:
    made = codec("text8bpe-300", SENTENCES)
    assert made.decode(made.encode("Two Cats")) == "two cats"
    with pytest.raises(ValueError, match="'T' at character 1"):
        made.encode("Two Cats", strict=True)


def test_levels_of_a_pixel() -> None:
    """Nearest levels, evenly from 0 to 255."""
    made = Pixels((1, 5), 5)
    assert made.decode_image([0, 1, 2, 3, 4]).tolist() == [[0, 64, 128, 191, 255]]
    image = np.array([[31, 32, 95, 96, 224]], dtype=np.uint8)
    assert made.encode_image(image).tolist() == [0, 1, 1, 2, 4]


# ---- splits and orders -------------------------------------------------------------------------------------------------


def test_of_twenty_documents_the_tenth_and_the_last() -> None:
    found = split_documents(list(range(1, 41)))
    assert found["valid"] == [10, 30] and found["test"] == [20, 40] and len(found["train"]) == 36
    assert split_documents([1, 2, 3, 4]) == {"train": [1, 2], "valid": [3], "test": [4]}


def test_shares_of_a_stream_of_documents() -> None:
    sides = [hash_split(str(i).encode(), 0.2, 0.3) for i in range(4000)]
    for split, share in enumerate((0.5, 0.2, 0.3)):
        assert abs(sides.count(split) / 4000 - share) < 4.5 * (share * (1 - share) / 4000) ** 0.5


def test_evenly_thinned_from_the_first_to_the_last() -> None:
    assert thinned(10, 4).tolist() == [0, 3, 6, 9] and thinned(5, None).tolist() == thinned(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert thinned(10, 1).tolist() == [0]


# ---- characters to a token ---------------------------------------------------------------------------------------------


def test_an_end_token_is_a_character() -> None:
    source = Corpus("four", {"train": ["the cat", "sat", "on the mat", "and sang"]}, "characters")
    pairs = Bpe.train(SENTENCES * 20, 300, end=True)
    texts = source.texts(pairs, "train", 4)
    tokens = sum(len(pairs.encode(text)) + 1 for text in source.documents["train"])
    assert texts.characters == pytest.approx((7 + 3 + 10 + 8 + 4) / tokens)
    plain = Bpe.train(SENTENCES * 20, 300)
    assert source.texts(plain, "train", 4).characters == pytest.approx(28 / (tokens - 4))


def test_characters_of_texts_that_are_filled_up_labelled_or_mixed() -> None:
    rows = Sequences.from_table(torch.tensor([[1, 2, -1], [3, 4, 5]]), characters=2.0)  # five tokens, ten characters
    filled = PaddedSequences(rows, 0, 8)
    assert filled.characters == pytest.approx(10 / 16) and filled.mean_length == 8
    assert filled.windows().tolist() == [[1, 2, *[0] * 6], [3, 4, 5, *[0] * 5]]
    streams = LabelledWindows({0: Windows(torch.zeros(90), 3, 1.0), 1: Windows(torch.zeros(10), 3, 3.0)})
    assert streams.characters == pytest.approx((90 + 30) / 100)
    mixed = MixedData([Windows(torch.zeros(90), 6, 1.0), Windows(torch.zeros(90), 3, 4.0)], [1, 3])
    assert mixed.mean_length == pytest.approx((6 + 3 * 3) / 4) and mixed.characters == pytest.approx((6 + 9 * 4) / 15)


# ---- shards ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[ShardedCorpus, list[str]]:
    """Sixty documents in shards of some forty bytes, with an end token."""
    documents = [SENTENCES[i % 6] + str(i) for i in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
    prepare(tmp_path / "a.jsonl", tmp_path / "out", codec="bytes", valid_share=0, test_share=0, shard_size=40)
    found = corpus(str(tmp_path / "out"))
    assert isinstance(found, ShardedCorpus)
    return found, documents


def test_a_place_in_many_shards(prepared: tuple[ShardedCorpus, list[str]]) -> None:
    source, documents = prepared
    stream = [token for text in documents for token in [*text.encode(), 256]]
    tokens = ShardTokens(source.folder, "train", source.index.splits["train"], np.dtype(source.index.dtype))
    assert len(tokens.ends) == 20 and len(tokens) == len(stream)
    assert tokens[torch.arange(len(stream))].tolist() == stream
    place = torch.tensor(tokens.ends[:-1])  # the first of each shard after the first, and the last before it
    assert tokens[place].tolist() == [stream[i] for i in place] and tokens[place - 1].tolist() == [stream[i - 1] for i in place]


@pytest.mark.parametrize("segment", ["sentences", "documents"])
def test_documents_that_fit(prepared: tuple[ShardedCorpus, list[str]], segment: str) -> None:
    """Sentences without their end token, of at most 18 letters; whole texts with it, which is one of their characters."""
    source, documents = prepared
    texts = source.texts(Bytes(end=True), "train", 18, segment=segment)  # pyright: ignore[reportArgumentType]
    whole = segment == "documents"
    fit = [[*text.encode(), *([256] if whole else [])] for text in documents if len(text) + whole <= 18]
    assert sorted([token for token in row if token >= 0] for row in texts.windows().tolist()) == sorted(fit)
    assert 0 < len(fit) < 60 and texts.mean_length == pytest.approx(sum(map(len, fit)) / len(fit)) and texts.characters == 1


def test_characters_of_whole_texts_in_shards(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(SENTENCES * 9))
    prepare(tmp_path / "a.txt", tmp_path / "out", codec="bpe-290", lines=True, valid_share=0, test_share=0, shard_size=90)
    source = corpus(str(tmp_path / "out"))
    pairs = source.codec("auto")
    tokens, letters = sum(len(pairs.encode(text)) for text in SENTENCES), sum(map(len, SENTENCES))
    for segment, ends in (("windows", 6), ("documents", 6), ("sentences", 0)):
        texts = source.texts(pairs, "train", 40, segment=segment)  # pyright: ignore[reportArgumentType]
        assert texts.characters == pytest.approx((letters + ends) / (tokens + ends)), segment


# ---- what a vocabulary is made from ------------------------------------------------------------------------------------


def test_a_vocabulary_sees_no_held_out_document(tmp_path: Path) -> None:
    documents = [f"{chr(0x4E00 + i)} number {i}" for i in range(300)]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    inputs = find_inputs([str(tmp_path / "a.txt")], lines=True)
    mine = [text for text in documents if hash_split(text.encode(), 0.2, 0.3) == 0]
    assert 100 < len(mine) < 200 and list(train_texts(inputs, (0.2, 0.3))) == mine
    made = choose_codec("chars", inputs, (0.2, 0.3), lambda words: None)
    assert isinstance(made, Characters) and set(made.symbols) == set("".join(mine))


def test_a_sample_has_a_share_of_every_input(tmp_path: Path) -> None:
    """Each input contributes at most its remaining documents; the order of the inputs does not matter."""
    letters = "abcdefghijklmnop"
    for letter in letters:
        (tmp_path / f"{letter}.txt").write_text((letter * 9 + " ") * (PIECE // 4))
    inputs = find_inputs([str(tmp_path)])
    most = 4 * PIECE + 1000
    found = "".join(sampled_texts(inputs, (0.0, 0.0), most))
    counts = {letter: found.count(letter) / 0.9 for letter in letters}
    taken = [letter for letter in letters if counts[letter]]
    assert len(found) == most and len(taken) == 5
    assert sorted(counts.values())[-4:] == pytest.approx([PIECE] * 4, rel=1e-3) and min(counts[one] for one in taken) < 1200
    assert taken != sorted(letters)[:5] and taken != sorted(letters)[-5:]
    wide = "".join(sampled_texts(inputs, (0.0, 0.0), 16 * PIECE))
    assert [wide.count(letter) / 0.9 for letter in letters] == pytest.approx([PIECE] * 16, rel=1e-3)
