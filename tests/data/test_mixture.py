"""Several corpora mixed by weights: the shares are exact, and a text's number alone decides where it comes from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import unnoise
from unnoise.cli.main import main, parse
from unnoise.data.corpus import Corpus, corpus, load_source
from unnoise.data.documents import Documents
from unnoise.data.mixture import MixedData, Mixture, Turns, mixture_parts, whole_weights
from unnoise.data.prepare import prepare
from unnoise.data.texts import Sequences, Windows

A, B = "abcd efgh " * 300, "wxyz stuv " * 200


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path / "cache"))


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), st.integers(0, 10**9))
def test_every_corpus_has_its_share_of_any_first_texts(weights: list[int], first: int) -> None:
    turns = Turns(weights)
    which, own = turns.assign(torch.arange(600))
    for i, weight in enumerate(weights):
        counts = (which == i).cumsum(0).double()
        shares = torch.arange(1, 601).double() * weight / sum(weights)
        assert float((counts - shares).abs().max()) < 1
        assert own[which == i].tolist() == list(range(int(counts[-1])))  # its texts one after the other, none left out
        assert turns.shares(600)[i] == counts[-1] and turns.shares(37)[i] == counts[36]
    apart = torch.tensor([599, 3, 77])
    assert all(torch.equal(one, every[apart]) for one, every in zip(turns.assign(apart), (which, own), strict=True))
    later = turns.assign(torch.arange(first, first + 300))
    for i in range(len(weights)):
        mine = later[1][later[0] == i]
        assert torch.equal(mine, turns.shares(first)[i] + torch.arange(len(mine)))


def test_weights() -> None:
    assert mixture_parts("a:0.7,b:0.3") == [("a", 0.7), ("b", 0.3)]
    assert mixture_parts("data/a:7, C:/b c:.5,d:1") == [("data/a", 7.0), ("C:/b c", 0.5), ("d", 1.0)]
    assert mixture_parts("a:0.7") == mixture_parts("a,b") == mixture_parts("a:x,b:1") == mixture_parts("sotu") == []
    assert isinstance(load_source("a:1 b:2"), Documents)  # a text, and no mixture
    assert whole_weights([0.7, 0.3]) == whole_weights([7, 3]) == [7, 3]
    assert whole_weights([1, 1, 1]) == [1, 1, 1]
    with pytest.raises(ValueError, match="the weight of a corpus must be > 0, found 0, 1"):
        whole_weights([0, 1])


def streams(weights: list[float]) -> Any:
    sources = {
        "a": Corpus("a", {"train": [A], "test": [A[:400]]}, "a"),
        "b": Corpus("b", {"train": [B], "test": [B[:90]]}, "b"),
    }
    return Mixture({name: (source, weight) for (name, source), weight in zip(sources.items(), weights, strict=True)})


def test_texts_come_by_their_weights_each_once_an_epoch() -> None:
    source = streams([0.75, 0.25])
    codec = source.codec("text8", segment="sentences")
    texts = source.texts(codec, "train", 10)
    x = texts.batch(torch.arange(400), 0).x
    from_b = (x >= 18) & (x < 26)
    assert int(from_b.any(1).sum()) == 100 and not (from_b.any(1) & ((x < 8).any(1))).any()
    alone = corpus_texts(B, codec)
    assert torch.equal(x[from_b.any(1)], alone.batch(torch.arange(100), 0).x)  # as if it were read alone
    parts = torch.cat([texts.batch(part, 0).x for part in torch.arange(400).split(33)])
    assert torch.equal(parts, x)


def corpus_texts(text: str, codec: Any) -> Windows:
    return Windows(torch.from_numpy(codec.encode(text)), 10)


def test_held_out_texts_are_mixed_alike() -> None:
    source = streams([0.75, 0.25])
    codec = source.codec("text8", segment="sentences")
    texts = source.texts(codec, "test", 10)
    x = texts.windows()
    of_b = ((x >= 18) & (x < 26)).any(1)
    assert len(x) == texts.num_windows == 39 and int(of_b.sum()) == 9  # all nine of b, and as many of a as go with them
    few = texts.windows(8)
    assert int(((few >= 18) & (few < 26)).any(1).sum()) == 2 and len(few) == 8


def test_characters_are_counted_by_share() -> None:
    long = Sequences.from_table(torch.ones(5, 8, dtype=torch.long), characters=4.0)
    short = Sequences.from_table(torch.ones(5, 2, dtype=torch.long), characters=1.0)
    mixed = MixedData([long, short], [1, 3])
    assert mixed.mean_length == (8 + 3 * 2) / 4 and mixed.characters == (8 * 4 + 6 * 1) / 14
    x = mixed.batch(torch.arange(8), 0).x
    assert x.shape == (8, 8) and int((x[:, -1] == -1).sum()) == 6
    assert mixed.windows().shape[1] == 8


def test_mistakes() -> None:
    labelled = Documents.from_texts([{"text": "a", "label": 0}, {"text": "b", "label": 1}] * 9)
    with pytest.raises(ValueError, match="corpora with labels cannot be mixed: two has some"):
        Mixture({"one": (Documents.from_texts(["a", "b"]), 1), "two": (labelled, 1)})
    with pytest.raises(ValueError, match="at least two corpora"):
        Mixture({"one": (labelled, 1)})
    with pytest.raises(
        ValueError, match=r"a and b have different codecs, Characters\(.* and Characters\(.*name it with --codec"
    ):
        streams([1, 1]).codec("chars", segment="sentences")
    with pytest.raises(ValueError, match="has no valid split; it has train, test"):
        streams([1, 1]).texts(unnoise.codec("text8"), "valid", 10)


def test_training_on_a_mixture_of_prepared_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", A), ("b", B)):
        Path(f"{name}.txt").write_text(text.upper())
    prepare("a.txt", "data/a", codec="bpe-260", valid_share=0.1, test_share=0.1)
    prepare("b.txt", "data/b", codec="data/a", valid_share=0.1, test_share=0.1)  # with the first one's codec
    prepare("b.txt", "data/other", codec="bpe-260", valid_share=0.1, test_share=0.1)
    shape = "--size nano --length 16 --batch 4 --eval-windows 8 --json"

    def run(line: str) -> tuple[int, str, str]:
        code = main(line.split())
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    code, out, err = run(f"train mdlm --data data/a:0.7,data/b:0.3 --steps 3 {shape}")
    assert code == 0 and json.loads(out)["out"] == "runs/mdlm-a-b", err
    Path("elsewhere").mkdir()
    Path("data/b").rename("elsewhere/b")
    code, out, err = run("train mdlm --data data/a:0.7,elsewhere/b:0.3 --out runs/mdlm-a-b --steps 5 --resume --json")
    assert code == 0 and json.loads(out)["steps"] == 5, err
    code, _, err = run("train mdlm --data data/a:0.71,elsewhere/b:0.29 --out runs/mdlm-a-b --steps 6 --resume")
    assert code == 2 and "mixes its corpora 0.7:0.3, not 0.71:0.29: resume it with the same weights" in err
    code, out, err = run("eval --model runs/mdlm-a-b --data data/a:0.7,elsewhere/b:0.3 --split test --json")
    assert code == 0 and json.loads(out)["windows"] > 2, err
    code, _, err = run(f"train mdlm --data data/a:0.7,data/other:0.3 --steps 1 {shape}")
    assert code == 2 and "have different codecs" in err and err.count("\n") == 1
    code, _, err = run(f"train mdlm --data data/a:0.7,nowhere:0.3 --steps 1 {shape}")
    assert code == 2 and "no corpus 'nowhere'" in err
    assert isinstance(corpus("data/a:1,elsewhere/b:2"), Mixture)
    assert parse(["train", "mdlm", "--data", "x/y.txt"]).folder == Path("runs/mdlm-y")
