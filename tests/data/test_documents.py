"""Training on texts in memory, with or without labels: strings, records, splits, lines of JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import unnoise
from unnoise import Documents
from unnoise.cli.main import main
from unnoise.data.corpus import corpus
from unnoise.data.texts import LabelledWindows
from unnoise.evaluation.dataset import check_segment, evaluate_split, kind_of_piece

A, B = "aaab " * 6, "cccd " * 6
TEXTS = [A.strip(), B.strip()] * 20
LABELS = ["a", "c"] * 20


def nano(labels: Any = 0, length: int = 16) -> unnoise.Model:
    return unnoise.Model.build("mdlm", codec="text8", length=length, width=32, depth=1, heads=2, labels=labels)


def test_strings_records_and_streams_are_the_same_texts() -> None:
    class Dataset:
        """Stand-in for a 🤗 dataset: its rows are mappings."""

        def __iter__(self) -> Iterator[dict[str, str]]:
            return iter({"text": text, "id": str(i)} for i, text in enumerate(TEXTS))

    plain = Documents.from_texts(TEXTS)
    assert Documents.from_texts(iter(TEXTS)) == plain == Documents.from_texts(Dataset())
    assert [len(plain.documents[split]) for split in plain.splits] == [36, 2, 2]
    splits = {"train": [{"text": "a b"}], "validation": [{"text": "c"}]}
    assert Documents.from_texts(splits).documents == {"train": ["a b"], "valid": ["c"]}
    for data in (TEXTS, iter(TEXTS), "the cat sat on the mat " * 30):
        assert unnoise.train(nano(), data, steps=2, batch=2, eval_windows=2).steps == 2


def test_a_model_of_variable_length_reads_each_text_by_itself() -> None:
    rows = (
        Documents.from_texts(["ab", "abc", "a" * 40] * 10)
        .texts(unnoise.codec("text8"), "train", 16, segment="sentences")
        .windows()
    )
    assert sorted(set((rows >= 0).sum(1).tolist())) == [2, 3]  # what is too long is left out


def test_labels_by_name_are_learned() -> None:
    source = Documents.from_texts(TEXTS, LABELS)
    assert source.label_names == ("a", "c")
    model = nano(labels=source.label_names)
    report = unnoise.train(model, TEXTS, labels=LABELS, steps=250, loss="fast", batch=8, eval_windows=4)
    assert report.bits < 2
    for label, letters in (("a", "ab "), ("c", "cd ")):
        texts = "".join(model.generate(6, steps=16, label=label, guidance_scale=2.0))
        assert sum(letter in letters for letter in texts) > 0.9 * len(texts)
    both = set("".join(model.generate(60, steps=16)))
    assert both & set("ab") and both & set("cd")


def test_a_window_has_one_label() -> None:
    texts = Documents.from_texts(TEXTS, LABELS).texts(unnoise.codec("text8"), "train", 16)
    assert isinstance(texts, LabelledWindows)
    batch = texts.batch(torch.arange(32), 0)
    assert batch.label is not None and set(batch.label.tolist()) == {0, 1}
    for row, label in zip(batch.x.tolist(), batch.label.tolist(), strict=True):
        assert set(unnoise.codec("text8").decode(row)) <= set("ab " if label == 0 else "cd ")


def test_labels_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "reviews.jsonl"
    data.write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in zip(TEXTS, LABELS, strict=True)))
    run = str(tmp_path / "run")
    shape = ["--size", "nano", "--length", "16", "--batch", "4", "--eval-windows", "2"]
    assert main(["train", "mdlm", "--data", str(data), "--out", run, "--steps", "3", "--json", *shape]) == 0
    capsys.readouterr()
    assert main(["generate", "--model", run, "--label", "c", "--guidance-scale", "1.5", "--steps", "4", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["texts"]) == 2
    assert main(["generate", "--model", run, "--label", "x"]) == 2
    assert "there is no label 'x'; there are a, c" in capsys.readouterr().err
    assert main(["info", "--model", run]) == 0
    assert "labels     a, c" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Documents.from_texts([]), "no texts to train on"),
        (lambda: Documents.from_texts(["a", 3]), "number 2 is not a string"),
        (lambda: Documents.from_texts([{"words": "a"}]), "number 1 is not a record with `text`"),
        (lambda: Documents.from_texts(["a", "b"], ["x"]), "2 texts and 1 labels"),
        (lambda: Documents.from_texts(["a"] * 3, [0, 1, -1]), "labels must be ≥ 0, found -1"),
        (
            lambda: Documents.from_texts([{"text": "a", "label": 1}, {"text": "b"}] * 9),
            "some texts have a label and some have none",
        ),
        (lambda: Documents.from_texts({"test": ["a"]}), "need one named train, found test"),
        (lambda: Documents.from_texts({"train": ["a"]}, [1]), "labels within the records"),
        (
            lambda: unnoise.train(nano(), TEXTS, labels=LABELS, steps=1),
            r"2 labels and the model has none: build it with labels=2",
        ),
        (lambda: unnoise.train(nano(labels=["c", "a"]), TEXTS, labels=LABELS, steps=1), "labels are a, c in this order"),
        (lambda: unnoise.train(nano(), 7, steps=1), "cannot train on int"),
        (lambda: unnoise.train(nano(), torch.zeros(300).long(), labels=[1], steps=1), "not with one stream of tokens"),
        (lambda: nano().generate(stpes=3), "sampling has no option 'stpes': did you mean 'steps'"),
    ],
)
def test_mistakes(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_lines_that_are_no_json_are_named(tmp_path: Path) -> None:
    for line, words in (("{", "line 2 of bad.jsonl is not JSON"), ('{"label": 1}', "line 2 .* must be an object with `text`")):
        (tmp_path / "bad.jsonl").write_text(f'{{"text": "a"}}\n{line}\n')
        with pytest.raises(ValueError, match=words):
            corpus(str(tmp_path / "bad.jsonl"))


def test_whole_texts_have_an_end_of_their_own(tmp_path):
    (tmp_path / "train.txt").write_text("abc\n\nde\nabcdefg\n")
    source = corpus(str(tmp_path))
    codec = source.codec("chars", segment="documents")
    assert codec.eos == 7 and codec.vocab == 8  # seven letters, no line's end among them
    texts = source.texts(codec, "train", 5, segment="documents")
    assert texts.windows().tolist() == [[0, 1, 2, 7], [3, 4, 7, -1]]  # the third is too long
    assert texts.characters == 1.0  # an end counts as a character
    model = unnoise.Model.build("ar", codec, length=5, size="nano", whole_texts=True)
    assert model.texts(source, "train").windows().tolist() == texts.windows().tolist()
    model.save(tmp_path / "model")
    assert unnoise.load(tmp_path / "model").whole_texts
    filled = unnoise.Model.build("mdlm", codec, length=6, size="nano", whole_texts=True).texts(source, "train")
    assert filled.windows().tolist() == [[0, 1, 2, 7, 7, 7], [3, 4, 7, 7, 7, 7]]
    assert filled.characters * filled.windows().numel() == pytest.approx(7)
    with pytest.raises(ValueError, match="EOS token"):
        unnoise.Model.build("ar", "text8", length=5, size="nano", whole_texts=True)


def test_measuring_in_another_cut_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("abc\n\nde\nabcd\n")
    source = corpus(str(tmp_path))
    model = unnoise.Model.build("ar", source.codec("chars", segment="documents"), length=5, size="nano")
    found = evaluate_split(model, source, "train", samples=1, segment=check_segment(model, "documents"))
    assert found["windows"] == 3 and kind_of_piece(model, "documents") == "whole texts"
    assert not model.whole_texts and kind_of_piece(model) == "windows"


def test_padding_costs_an_autoregressive_model_nothing():
    model = unnoise.Model.build("ar", "text8", length=8, size="nano")
    torch.nn.init.normal_(model.network.head.weight, generator=torch.Generator().manual_seed(0))
    model.network.double()  # products of other sizes differ by rounding
    x = torch.tensor([[3, 1, 4, 1, 5, -1, -1, -1]])
    padded, plain = model.bound(model.denoiser, x), model.bound(model.denoiser, x[:, :5])
    torch.testing.assert_close(padded, plain, rtol=1e-13, atol=0)
