"""Evaluation protocols: windows counted by hand, published numbers of an enumerable toy, and tables that resume."""

import csv
import gzip
import json
import math
import os
import shlex
from pathlib import Path

import pytest
import torch

import unnoise
from exact_models import toy_model
from toy import Exact, Toy, expected, quadrature
from unnoise import Masked, Uniform
from unnoise.apps.protocols import detokenize
from unnoise.apps.protocols.protocols import PROTOCOLS, ProtocolOptions, evaluate, windows_of
from unnoise.apps.protocols.published_nats import PublishedLoss, differences, published_nats
from unnoise.apps.protocols.windows import BENCHMARKS, Wrapping, benchmark, chunk, documents, pieces
from unnoise.cli.main import main
from unnoise.data import Bytes, Characters, Text8
from unnoise.schedule import Linear, LogLinear

REAL = Path(os.environ.get("UNNOISE_REAL_DATA", "no-such-folder"))  # with lambada/ and wikitext2/
TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat "
EPS = 1e-3


# ---- texts ------------------------------------------------------------------------------------------------------------


def test_detokenizers() -> None:
    wiki = ' = Title = \n It is 4 @.@ 5 m ( 15 ft ) long , " red " , and a well @-@ known sort ; dogs \' tails . \n'
    assert detokenize.wikitext(wiki) == ' = Title =\nIt is 4.5 m (15 ft) long, "red", and a well-known sort; dogs\' tails.\n'
    assert detokenize.ptb("it does n't cost $ N or N N or <unk> the firm 's") == "it doesn't cost $1 or 1 1 or ? the firm's"
    assert detokenize.lm1b("he said , ' no ' ( twice ) to http : / / a / b for $ 5 .") == (
        "he said, 'no' (twice) to http://a/b for $5."
    )
    assert detokenize.lambada(" “ yes ” \n") == '\n" yes "'
    assert detokenize.scientific_papers("a @-@ b ( c ) / d") == "a-b (c)/d"


def test_windows_of_every_wrapping_by_hand() -> None:
    """Three documents of 5, 3 and 4 characters, two of them concatenated at a time, windows of 4."""
    codec, texts = Characters("abcdefghijkl", end=True), ["abcde", "fgh", "ijkl"]
    e = codec.eos
    mdlm = chunk(texts, codec, 4, Wrapping(ends=True, around=True, rows=2))
    # abcde¶fgh¶ is 10 tokens: 5 windows of 2; ijkl¶ is 5: 2 windows, one token lost
    assert mdlm.x.tolist() == [
        [e, 0, 1, e],
        [e, 2, 3, e],
        [e, 4, e, e],
        [e, 5, 6, e],
        [e, 7, e, e],
        [e, 8, 9, e],
        [e, 10, 11, e],
    ]
    assert (mdlm.tokens, mdlm.dropped, mdlm.specials, mdlm.documents) == (15, 1, 14, 3)
    sedd = chunk(texts, codec, 4, Wrapping(ends=True, rows=2))
    assert sedd.x.tolist() == [[0, 1, 2, 3], [4, e, 5, 6], [8, 9, 10, 11]] and sedd.dropped == 3 and sedd.specials == 0
    duo = chunk(texts, codec, 4, Wrapping(ends=False, around=True, rows=2))
    assert len(duo.x) == 4 + 2 and duo.x[:, 0].tolist() == duo.x[:, 3].tolist() == [e] * 6 and duo.tokens == 12
    md4 = chunk(texts, codec, 4, Wrapping(ends=False, rows=None, whole_batches=2))
    assert len(md4.x) == 2 and md4.dropped == 4
    assert md4.characters == pytest.approx(8)


def test_a_thousand_documents_are_cut_together_and_lose_their_remainder() -> None:
    texts = ["abc"] * 2500  # with the end token 4 tokens each: 4,000, 4,000 and 2,000
    found = chunk(texts, Text8(end=True), 16, PROTOCOLS["mdlm"].wrapping)
    assert len(found.x) == 4000 // 14 + 4000 // 14 + 2000 // 14 and found.dropped == 4000 % 14 * 2 + 2000 % 14
    assert len(chunk(texts, Text8(end=True), 16, PROTOCOLS["sedd"].wrapping).x) == 250 + 250 + 125
    assert len(chunk(texts, Text8(end=True), 16, PROTOCOLS["bd3lm"].wrapping).x) == 3000 // 14 * 2 + 1500 // 14


def test_text8_both_ways() -> None:
    """MD4: side by side, whole batches of 512. MDLM: pieces of L with an end token each, then windows of L − 2 of those."""
    text = TEXT * 120  # 9,840 characters
    clean = chunk([text], Text8(), 16, PROTOCOLS["md4"].wrapping_of(stream=True))
    assert len(clean.x) == 512 and clean.specials == 0
    cut = pieces([text], 16)
    assert len(cut) == 615 and {len(one) for one in cut} == {16}
    specials = unnoise.codec("text8-35")
    mdlm = chunk(cut, specials, 16, PROTOCOLS["mdlm"].wrapping_of(stream=True))
    assert len(mdlm.x) == 615 * 17 // 14 and mdlm.x[0].tolist()[:2] == [2, 8 + 19] and set(mdlm.x[:, -1].tolist()) == {3}
    assert specials.vocab == 35 and specials.decode(specials.encode("the cat").tolist()) == "the cat"
    with pytest.raises(ValueError, match="the codec text8 has none here"):
        chunk([text], Text8(), 16, PROTOCOLS["mdlm"].wrapping)


def test_documents_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2" / "valid.txt").write_text(" = A = \n \n a , b \n")
    one = benchmark(None, str(tmp_path / "wikitext-2"))
    assert one.name == "wikitext2" and documents(one, str(tmp_path / "wikitext-2")) == [" = A =\n", "", " a, b\n"]
    (tmp_path / "ptb.jsonl").write_text(json.dumps({"sentence": "it is n't"}) + "\n")
    assert documents(benchmark(None, "x/ptb.jsonl"), str(tmp_path / "ptb.jsonl")) == ["it isn't"]
    assert benchmark(None, "my/WikiText-103/valid.txt").name == "wikitext103" and benchmark(None, "a/b.txt").name == "plain"
    with pytest.raises(ValueError, match="no file of the test split, which lm1b is measured on"):
        documents(BENCHMARKS["lm1b"], str(tmp_path / "wikitext-2"))


def counted_by_hand(sizes: list[int], inside: int) -> tuple[int, int]:
    """Windows, and tokens in none of them: an end token after each document, a thousand documents at a time, the rest lost."""
    totals = [sum(size + 1 for size in sizes[i : i + 1000]) for i in range(0, len(sizes), 1000)]
    return sum(total // inside for total in totals), sum(total % inside for total in totals)


def check_windows(one: str, data: Path, texts: list[str], length: int) -> None:
    """Compare the windows of `mdlm` and `bound` with windows cut here from texts that were detokenized elsewhere."""
    model = unnoise.Model.build("mdlm", Bytes(end=True), length=length, width=16, depth=1, heads=2)
    read = documents(BENCHMARKS[one], str(data))
    sizes = [len(text.encode()) for text in texts]
    found = windows_of(model, PROTOCOLS["mdlm"], BENCHMARKS[one], read)
    assert (len(found.x), found.dropped) == counted_by_hand(sizes, length - 2)
    assert found.documents == len(texts) and found.specials == 2 * len(found.x) and found.counted.all()
    whole = windows_of(model, PROTOCOLS["bound"], BENCHMARKS[one], read)
    stream = [token for text in texts for token in [*text.encode(), 256]]
    assert len(whole.x) == len(stream) // length and whole.dropped == len(stream) % length and whole.specials == 0
    assert whole.x.flatten().tolist() == stream[: len(whole.x) * length]
    first = [token for text in texts[:1000] for token in [*text.encode(), 256]]
    rows = [[256, *first[i : i + length - 2], 256] for i in range(0, len(first) - length + 3, length - 2)]
    assert found.x[: len(rows)].tolist() == rows
    assert (found.x[:, 0] == 256).all() and (found.x[:, -1] == 256).all()


def test_windows_of_made_up_files_in_plain_lines(tmp_path: Path) -> None:
    """2,300 lines, every third empty, and 2,300 passages: more than two thousands, so that remainders are lost three times."""
    numbers = range(2300)
    lines = ["" if i % 3 == 2 else f" It is {i} @.@ 5 m ( {i % 7} ft ) , é\u2028 . \n" for i in numbers]
    plain = ["" if i % 3 == 2 else f" It is {i}.5 m ({i % 7} ft), é\u2028.\n" for i in numbers]
    (tmp_path / "valid.txt").write_text("".join(line or " \n" for line in lines))
    check_windows("wikitext2", tmp_path / "valid.txt", plain, 32)
    records = [{"text": f" “ yes {i} ” he said \n"} for i in numbers]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    check_windows("lambada", tmp_path / "test.jsonl", [f'\n" yes {i} " he said' for i in numbers], 32)


@pytest.mark.skipif(not (REAL / "lambada").is_dir(), reason="UNNOISE_REAL_DATA names no folder with lambada and wikitext2")
def test_real_files_have_the_published_number_of_documents_and_these_windows() -> None:
    raw = gzip.decompress((REAL / "wikitext2" / "valid.txt.gz").read_bytes()).decode()
    lines = [line + "\n" if line.strip() else "" for line in raw.split("\n")[:-1]]
    assert len(lines) == 3760
    texts = [detokenize.wikitext(line) for line in lines]
    assert " @" not in "".join(texts)
    check_windows("wikitext2", REAL / "wikitext2", texts, 256)
    raw = gzip.decompress((REAL / "lambada" / "test.jsonl.gz").read_bytes()).decode()
    passages = [json.loads(line)["text"] for line in raw.split("\n") if line]
    assert len(passages) == 5153
    straight = ["\n" + text.replace("“", '"').replace("”", '"').strip() for text in passages]
    check_windows("lambada", REAL / "lambada", straight, 256)


def test_a_sentence_a_window_padded(home: Path, tmp_path: Path) -> None:
    """MDLM's runs on LM1B: begin token, at most L − 2 tokens, end token, padding that is noised but not counted."""
    codec = Characters("abcdefghijkl", end=True)
    e = codec.eos
    found = chunk(["abcdef", "g", ""], codec, 6, PROTOCOLS["mdlm-lm1b"].wrapping)
    assert found.x.tolist() == [[e, 0, 1, 2, 3, e], [e, 6, e, e, e, e], [e, e, e, e, e, e]]
    assert found.counted.sum(1).tolist() == [6, 3, 2] and (found.tokens, found.dropped, found.specials) == (7, 2, 6)
    (tmp_path / "lm1b.txt").write_text("a cat\na dog ran\n" * 6)
    for name in ("mdlm", "ar", "bd3lm:block=1"):
        facts = evaluate(
            unnoise.load(home / name), str(tmp_path / "lm1b.txt"), ProtocolOptions(protocol="mdlm-lm1b", draws=64, passes=64)
        ).as_dict()
        begin = name == "ar"  # which is given there
        assert facts["counted_tokens"] == 6 * (7 - begin + 11 - begin) and facts["windows"] == 12
        parts, mean, bound = facts["difference"]["parts"], facts["published"]["mean"], facts["bound"]
        assert parts["padding"]["nats_per_token"] > 0
        away = mean["nats_per_token"] + facts["difference"]["bound_minus_published"] - bound["nats_per_token"]
        error = math.hypot(mean["stderr"], bound["stderr"], facts["difference"]["stderr"])
        assert abs(away) < 4 * error + 1e-5 and (name == "mdlm") == (error > 1e-9), (name, away, error)


def test_ag_news_as_its_table(tmp_path: Path) -> None:
    one, path = BENCHMARKS["ag_news"], tmp_path / "test.csv"
    texts = ['Oil "up" again, now', "No\nnews"]
    for table in (
        '"3","Oil ""up""","again, now"\n"1","No\nnews",""\n',
        'Class Index,Title,Description\n3,"Oil ""up""","again, now"\n1,"No\nnews",\n',
        'text,label\n"Oil ""up"" again, now",2\n"No\nnews",0\n',
    ):
        path.write_text(table)
        assert [text.strip() for text in documents(one, str(tmp_path))] == texts, table
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "test.csv.gz").write_bytes(gzip.compress(b"text\nhello\n"))
    assert documents(one, str(tmp_path / "packed")) == ["hello"]
    for table, words in (
        ("a,b\n1,2\n", "has no column 'text' or 'title' and 'description', but a, b"),
        ("1,x,y\n2,z\n", "row 2 of test.csv has 2 columns, too few for its texts"),
    ):
        path.write_text(table)
        with pytest.raises(ValueError, match=words):
            documents(one, str(path))


# ---- which published numbers are bounds -------------------------------------------------------------------------------


def parts_by_enumeration(toy: Toy, process: Masked | Uniform, kind: str) -> tuple[float, float, float]:
    """P = E_{t ~ U[ε, 1]} of the integrand, ∫_0^ε of it, and the boundary term at noise, in nats."""
    exact, bound = Exact(toy, process, kind), unnoise.Elbo(process)
    u, w = quadrature(24)

    def mean(low: float, high: float) -> float:
        t = low + (high - low) * u
        return sum(
            float(weight * expected(toy, process, float(one), lambda x, x_t, s: bound.at(exact, x, x_t, s)))
            for one, weight in zip(t, w, strict=True)
        )

    noise = float((toy.p * bound.prior_loss(exact, toy.x, None)).sum()) if process.schedule.alpha(torch.ones(1)) > 0 else 0.0
    return mean(EPS, 1 - 1e-6), EPS * mean(1e-9, EPS), noise


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "process", "kind", "is_bound"),
    [
        ("mdlm and duo, masks", Masked(3, LogLinear(EPS)), "mean", False),
        ("sedd, masks", Masked(3, LogLinear(EPS)), "score", False),
        ("duo, uniform noise", Uniform(3, LogLinear(EPS), reverse="plug-in"), "leave-one-out", False),
        ("bd3lm", Masked(3, Linear()), "mean", True),
    ],
)
def test_which_published_figures_are_bounds(name: str, process: Masked | Uniform, kind: str, is_bound: bool) -> None:
    """Compare published numbers of an exact denoiser with the entropy, which its bound equals.

    E_{U[ε,1]} is too large by 1/(1 − ε), and misses the part below ε and the tokens that remain at t = 1. With log-linear noise
    the missing part weighs more, and the number lies below the entropy; with linear masks, as in BD3-LM, it does not.
    """
    toy = Toy(3, 3)
    published, first, noise = parts_by_enumeration(toy, process, kind)
    assert (1 - EPS) * published + first + noise == pytest.approx(toy.entropy, abs=2e-5)
    assert toy.entropy - published == pytest.approx(-EPS * published + first + noise, abs=2e-5)
    assert (published >= toy.entropy) == is_bound, (name, published, toy.entropy)
    assert abs(published - toy.entropy) < 6 * EPS * toy.entropy


@torch.no_grad()  # with gradients the boundary at pure noise is drawn now and then
@pytest.mark.parametrize(("loss", "is_bound"), [(PublishedLoss(), False), (PublishedLoss(schedule=Linear), True)])
def test_the_parts_are_measured_as_they_are(loss: PublishedLoss, is_bound: bool) -> None:
    toy = Toy(3, 3)
    published, first, noise = parts_by_enumeration(toy, Masked(3, loss.schedule()), "mean")
    model = toy_model(toy)
    counts = (toy.p * 4000).round().long()
    x = toy.x.repeat_interleave(counts, 0)
    free = torch.ones_like(x, dtype=torch.bool)
    once = published_nats(model, loss, x, free).all
    assert float(once.mean()) == pytest.approx(published, abs=4 * float(once.std()) / len(x) ** 0.5 + 0.01)
    found = {part.name: part for part in differences(model, loss, published * len(x), x, free, draws=4)}
    assert found["the factor"].nats / len(x) == pytest.approx(-EPS * published)
    near = found["near the text"]
    assert near.nats / len(x) == pytest.approx(first, abs=4 * near.stderr / len(x) + 0.01 * first)
    assert (noise > 0) == ("at pure noise" in found) == (loss.schedule is LogLinear)
    if noise:
        assert found["at pure noise"].nats / len(x) == pytest.approx(noise, rel=0.01)
    assert (sum(part.nats for part in found.values()) < 0) == is_bound


# ---- a model on a file --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models with an end token, and a folder of two benchmarks."""
    folder = tmp_path_factory.mktemp("protocols")
    for name in ("mdlm", "ar", "bd3lm:block=1"):
        model = unnoise.Model.build(name, Bytes(end=True), length=16, width=16, depth=1, heads=2)
        with torch.no_grad():
            for weight in model.network.parameters():
                weight.add_(0.2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
        model.save(folder / name)
    (folder / "sets" / "wikitext2").mkdir(parents=True)
    (folder / "sets" / "wikitext2" / "valid.txt").write_text(f" = A = \n \n {TEXT}\n" * 3)
    (folder / "sets" / "lambada_test.jsonl").write_text("".join(json.dumps({"text": TEXT}) + "\n" for _ in range(3)))
    return folder


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_every_protocol_on_a_masked_model(home: Path, name: str) -> None:
    model = unnoise.load(home / "mdlm")
    found = evaluate(model, str(home / "sets" / "wikitext2"), ProtocolOptions(protocol=name, windows=6, draws=16))
    facts = json.loads(json.dumps(found.as_dict()))
    given = name == "bd3lm"
    tokens = int(found.chunks.counted[[0, 2, 3, 5, 6, 8]].sum()) if name == "mdlm-lm1b" else 6 * (16 - given)
    assert facts["counted_tokens"] == tokens and facts["benchmark"] == "wikitext2" and facts["split"] == "valid"
    bound = facts["bound"]
    assert bound["perplexity"] == pytest.approx(math.exp(bound["nats_per_token"])) and bound["stderr"] > 0
    if name == "bound":
        assert "published" not in facts
        return
    mean = facts["published"]["mean"]
    away = abs(mean["nats_per_token"] + facts["difference"]["bound_minus_published"] - bound["nats_per_token"])
    assert away < 5 * math.hypot(mean["stderr"], bound["stderr"]) + 0.5
    assert facts["published"]["unit"] == ("bits_per_token" if name == "md4" else "perplexity")


def test_text8_is_cut_into_pieces_by_mdlm_alone_and_plain_text_never(tmp_path: Path) -> None:
    (tmp_path / "text8").mkdir()
    (tmp_path / "text8" / "test.txt").write_text(TEXT * 8)  # 656 characters: 41 pieces of 16
    (tmp_path / "mine.txt").write_text(TEXT * 160)  # of which a twentieth, 656 characters, is the test part
    model = unnoise.Model.build("mdlm", Text8(end=True), length=16, width=16, depth=1, heads=2)
    counts = (("mdlm", "text8", 41 * 17), ("duo", "text8", 656), ("mdlm", "mine.txt", 657), ("sedd", "mine.txt", 656))
    for name, data, tokens in counts:
        assert (
            evaluate(model, str(tmp_path / data), ProtocolOptions(protocol=name, windows=2, draws=4)).chunks.tokens == tokens
        ), (name, data)


def test_an_exact_model_has_one_figure(home: Path) -> None:
    model = unnoise.load(home / "ar")
    found = evaluate(model, str(home / "sets" / "wikitext2"), ProtocolOptions(protocol="mdlm", windows=4, draws=4))
    facts = found.as_dict()
    assert facts["bound"]["exact"] and facts["bound"]["stderr"] == 0 and facts["counted_tokens"] == 4 * 15
    assert facts["published"]["value"] == pytest.approx(facts["bound"]["perplexity"]) and not found.differences


def test_the_command_and_its_mistakes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"eval --model {home / 'mdlm'} --data {home / 'sets' / 'wikitext2'} --windows 4 --samples 4"
    assert main(shlex.split(f"{line} --protocol mdlm")) == 0
    shown = capsys.readouterr().out
    assert "as published" in shown and "true bound" in shown and "at pure noise" in shown and "windows of 16" in shown
    for wrong, words in (
        ("--protocol nonsense", "unknown protocol 'nonsense': use one of bound, mdlm"),
        ("--protocol mdlm --benchmark nonsense", "unknown benchmark 'nonsense'"),
        ("--benchmark ptb", "give --protocol too"),
        ("--table nonsense", "unknown table 'nonsense': use one of text8, compression, zero-shot"),
        (f"--model {home / 'ar'}", "several models need --table"),
    ):
        assert main(shlex.split(f"{line} {wrong}")) == 2
        assert words in capsys.readouterr().err


def test_a_table_goes_on_where_it_was(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"eval --table zero-shot --data {home / 'sets'} --out {tmp_path / 'table'} --windows 3 --samples 4"
    line = f"{line} --model {home / 'mdlm'}"
    assert main(shlex.split(f"{line} --json")) == 0
    first = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["benchmark"] for cell in first] == ["lambada", "wikitext2"] and not any(cell["kept"] for cell in first)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "table" / "cells").iterdir()}
    assert main(shlex.split(f"{line} --model {home / 'ar'} --json")) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["kept"] for cell in cells] == [True, True, False, False] and cells[0]["found"] == first[0]["found"]
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    table = (tmp_path / "table" / "zero-shot.md").read_text()
    assert "LAMBADA" in table and table.count("as published") == 2 and "| exact " in table
    rows = list(csv.DictReader((tmp_path / "table" / "zero-shot.csv").open()))
    assert len(rows) == 4 and float(rows[0]["bound"]) == pytest.approx(cells[0]["found"]["bound"]["perplexity"])
