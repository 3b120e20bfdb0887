"""Spell checking: rivals, weights, edits; what is right is left alone."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
import torch

from unnoise import Model
from unnoise.cli.main import main
from unnoise.data import Characters, Text8
from unnoise.spelling import Candidate, Channel, Speller, Words, evidence, matched_case
from unnoise.spelling.channel import edits

COUNTS = {"the": 5000, "of": 3000, "a": 2500, "in": 2000, "lot": 300, "city": 900, "some": 900, "times": 700, "sometimes": 400}
COUNTS |= {"club": 300, "america": 800, "largest": 400, "stadium": 90, "their": 800, "there": 900, "cite": 3, "home": 500}


def speller(method: str = "mdlm") -> Speller:
    """An untrained model, which finds every letter equally likely: the words decide."""
    return Speller(Model.build(method, Text8(), length=64, width=8, depth=1, heads=2), Words(COUNTS))


@pytest.mark.parametrize("method", ["mdlm", "udlm"])
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("mexico the largst stadium", "mexico the largest stadium"),  # a letter less
        ("home of the cluub", "home of the club"),  # a letter more
        ("amerika", "america"),  # another letter
        ("the ctiy", "the city"),  # two swapped
        ("home alot", "home a lot"),  # run together
        ("The Citty OF AMERIKA", "The City OF AMERICA"),  # as it was written
        ("a lot of the city", "a lot of the city"),
        ("", ""),
        ("!!! 42", "!!! 42"),
    ],
)
def test_corrections(method: str, wrong: str, right: str) -> None:
    result = speller(method).correct(wrong)
    assert result.text == right
    text = wrong
    for edit in reversed(result.edits):
        assert wrong[edit.start : edit.start + len(edit.before)] == edit.before and 0.35 < edit.confidence <= 1
        text = text[: edit.start] + edit.after + text[edit.start + len(edit.before) :]
    assert text == right


def test_two_words_that_are_one() -> None:
    made = Speller(speller().model, Words(COUNTS | {"some": 2, "times": 2}))
    assert made.correct("the some times").text == "the sometimes"
    assert made.correct("the some times", keep=["times"]).edits == []


def test_strength_and_words_to_keep() -> None:
    made = speller()
    assert made.correct("amerika", strength=0.0).edits == []
    assert made.correct("Amerika", keep=["amerika"]).edits == []
    bold, shy = (made.correct("citie ther stadim", strength=s).edits for s in (1.0, 0.05))
    assert len(bold) > len(shy)
    with pytest.raises(ValueError, match=r"strength must lie in \[0, 1\]"):
        made.correct("x", strength=2)


def test_alternatives_come_with_their_probabilities() -> None:
    (edit,) = speller().correct("citi", strength=0.9).edits
    assert edit.after == "city" and edit.alternatives and edit.alternatives[0][1] <= edit.confidence
    assert sum(p for _, p in edit.alternatives) + edit.confidence <= 1 + 1e-9


def test_the_context_of_a_masked_model_is_its_exact_conditional() -> None:
    """Over all candidates of a span log p(c | the rest) is a distribution: all words of two letters sum to 1."""
    model = Model.build("mdlm", Characters("abc "), length=8, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    made = Speller(model, Words({"ab": 3, "abc": 2}))
    candidates = [Candidate(3, 5, "".join(pair), {}) for pair in itertools.product("abc ", repeat=2)]
    context = torch.tensor(made.context("ab ca bc", candidates), dtype=torch.float64)
    assert float(context.exp().sum()) == pytest.approx(1, abs=1e-5)
    short = Speller(Model.build("mdlm", Characters("abc "), length=4, width=8, depth=1, heads=2), Words({"ab": 3}))
    assert short.context("ab ca bc", [Candidate(3, 5, "ca", {})])[0] == pytest.approx(-2 * torch.log(torch.tensor(4.0)).item())


def test_context_decides_between_rivals_of_equal_count() -> None:
    made = Speller(speller().model, Words(COUNTS), Channel(context=1.0))
    made.context = lambda text, candidates: [5.0 if r.text == "their" else 0.0 for r in candidates]  # type: ignore[method-assign]
    assert made.correct("the thier home").text == "the their home"
    made.context = lambda text, candidates: [-30.0 if r.text == "their" else 0.0 for r in candidates]  # type: ignore[method-assign]
    assert made.correct("the thier home").text != "the their home"


def test_words(tmp_path: Path) -> None:
    made = Words.of(["The cat the CAT, don't. the x"], least=2)
    assert made.counts == {"the": 3, "cat": 2}
    made.save(tmp_path / "w.gz")
    assert Words.load(tmp_path / "w.gz").counts == made.counts
    assert made.near("cap", 1) == {"cat": 1} and made.near("cat", 1) == {}
    assert made.log_p("the") > made.log_p("cat") > made.log_p("dog")
    (tmp_path / "bad.gz").write_bytes(b"x")
    with pytest.raises(ValueError, match="is not a word list"):
        Words.load(tmp_path / "bad.gz")
    with pytest.raises(ValueError, match="at least one word"):
        Words({})


@pytest.mark.parametrize(
    ("standing", "meant", "kinds"),
    [
        ("clob", "club", {"vowel": 1}),
        ("kity", "city", {"consonant": 1}),
        ("hapy", "happy", {"double": 1}),
        ("clubb", "club", {"double": 1}),
        ("aal", "al", {"double": 1}),
        ("ctiy", "city", {"swap": 1}),
        ("ctiyx", "city", {"swap": 1, "consonant": 1}),
        ("frount", "front", {"vowel": 1}),
        ("wach", "watch", {"consonant": 1}),
        ("a", "ab", {"consonant": 1}),
    ],
)
def test_the_kinds_of_edits(standing: str, meant: str, kinds: dict[str, int]) -> None:
    assert {kind: count for kind, count in edits(standing, meant).items() if count} == kinds


def test_evidence() -> None:
    words = Words(COUNTS)

    def of(standing: str, meant: str, **how: bool) -> dict[str, float]:
        return {name: value for name, value in evidence(words, standing, meant, **how).items() if value and name != "count"}

    assert of("city", "city") == {"letter": 4}
    assert of("citi", "citi", name=True) == {"letter": 4, "unknown": 1}  # leaving a name alone costs nothing
    assert of("citi", "city", name=True) == {"letter": 4, "name": 1, "vowel": 1}
    assert of("cite", "city") == {"letter": 4, "known": 1, "vowel": 1}
    assert of("there", "their").keys() == {"letter", "known", "frequent", "consonant"}  # they sound the same
    assert of("some times", "sometimes") == {"letter": 9, "known": 1, "frequent": 1, "boundary": 1}
    assert of("alot", "a lot") == {"letter": 5, "boundary": 1}
    assert of("hom", "home")["short"] == of("hom", "home")["ending"] == 1
    assert evidence(words, "x", "a lot")["count"] == pytest.approx(words.log_p("a") + words.log_p("lot"))
    weights = Channel(vowel=-3.0, letter=1.0)
    assert weights.weigh({"vowel": 2.0, "letter": 4.0}) == -2.0


def test_words_that_sound_alike_are_rivals() -> None:
    made = Speller(speller().model, Words(COUNTS | {"watch": 400, "night": 400, "knight": 5}))
    assert made.words.alike("nite") == ["night", "knight"] and made.words.alike("night") == ["knight"]
    assert "night" in made._rivals("nite") and "night" not in made.words.near("nite", 2)  # three edits, the same sound
    assert made.correct("the wotch").text == "the watch"


def test_a_name_is_left_alone_sooner_than_a_word() -> None:
    made = speller()
    name, word = (made.correct(f"in the {w} home", strength=1.0).edits[0].confidence for w in ("Amerika", "amerika"))
    assert name < word


@pytest.mark.parametrize(
    "text", ["the citi256", "citié", "écit", "snake_citi", "citi@home.com", "http://citi.home", "www.citi.a"]
)
def test_parts_of_something_longer_are_left_alone(text: str) -> None:
    assert speller().correct(text, strength=1.0).edits == []


def test_a_second_word_keeps_its_capital_and_its_own_correction() -> None:
    made = Speller(speller().model, Words(COUNTS | {"citytimes": 2}))
    result = made.correct("the citi Times")
    assert result.text == "the city Times" and [edit.before for edit in result.edits] == ["citi"]
    assert made.correct("citi tims of the").text == "city times of the"


def test_a_word_is_not_torn_into_shreds() -> None:
    words = Words(COUNTS | {"was": 900, "nt": 900, "what": 900, "s": 900})
    assert {"was nt", "what s"}.isdisjoint([*Speller(speller().model, words)._rivals("wasnt")])
    assert "what s" not in list(Speller(speller().model, words)._rivals("whats"))


def test_case() -> None:
    pairs = (("Abc", "xy"), ("ABC", "xy"), ("abc", "xy"), ("A", "xy"))
    assert [matched_case(*pair) for pair in pairs] == ["Xy", "XY", "xy", "Xy"]


def test_a_trained_model_keeps_its_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("the largest city of america is a city in the north of the country " * 600)
    small = "--width 16 --depth 1 --heads 2 --length 32 --batch 4 --eval-windows 4 --steps 2 --json"
    assert main(shlex.split(f"train mdlm --data {tmp_path / 'text.txt'} --out {tmp_path / 'm'} {small}")) == 0
    capsys.readouterr()
    assert main(shlex.split(f"correct 'the largst city' --model {tmp_path / 'm'} --json")) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["text"] == "the largest city" and result["edits"][0]["after"] == "largest"
    assert main(shlex.split(f"correct 'the largst city' --keep largst --edits --model {tmp_path / 'm'}")) == 0
    assert capsys.readouterr().out.strip() == "the largst city"


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="needs a model of masked or uniform noise"):
        speller("ar")
    with pytest.raises(ValueError, match="has no list of words"):
        speller().model.correct("x")
