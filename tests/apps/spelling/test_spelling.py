"""Spell checking: alternatives, weights, edits; what is right is left alone; the time is linear in the length of the text."""

import itertools
import json
import math
import random
import shlex
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

import unnoise
from unnoise import Model
from unnoise.apps.spelling import context, correct, words as counting
from unnoise.apps.spelling.channel import Candidate, Channel, edits, evidence, find_spans, matched_case
from unnoise.apps.spelling.english import are_variants, edit_distance
from unnoise.apps.spelling.speller import Speller
from unnoise.apps.spelling.words import WORD, Words, can_correct, lexicon, misspellings, model_words
from unnoise.cli.main import main
from unnoise.data import Characters, Text8

COUNTS = {"the": 5000, "of": 3000, "a": 2500, "in": 2000, "lot": 300, "city": 900, "some": 900, "times": 700, "sometimes": 400}
COUNTS |= {"club": 300, "america": 800, "largest": 400, "stadium": 90, "their": 800, "there": 900, "cite": 3, "home": 500}


def speller(method: str = "mdlm") -> Speller:
    """Return a speller with an untrained model, for which all letters are equally likely: the words decide."""
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


def test_context_decides_between_candidates_of_equal_count() -> None:
    made = Speller(speller().model, Words(COUNTS), Channel(context=1.0))
    made.context = lambda text, candidates: [5.0 if r.text == "their" else 0.0 for r in candidates]  # type: ignore[method-assign]
    assert made.correct("the thier home").text == "the their home"
    made.context = lambda text, candidates: [-30.0 if r.text == "their" else 0.0 for r in candidates]  # type: ignore[method-assign]
    assert made.correct("the thier home").text != "the their home"


def test_words() -> None:
    made = Words.from_texts(["The cat the CAT, don't. the x"], least=2)
    assert made.counts == {"the": 3, "cat": 2}
    assert Words.from_bytes(made.to_bytes()).counts == made.counts
    assert made.near("cap", 1) == {"cat": 1} and made.near("cat", 1) == {}
    assert made.log_p("the") > made.log_p("cat") > made.log_p("dog")
    with pytest.raises(ValueError, match="is not a word list"):
        _ = Words.from_bytes(b"x").counts


@pytest.mark.parametrize(
    ("written", "intended", "kinds"),
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
def test_the_kinds_of_edits(written: str, intended: str, kinds: dict[str, int]) -> None:
    assert {kind: count for kind, count in edits(written, intended).items() if count} == kinds


def test_evidence() -> None:
    words = Words(COUNTS)

    def of(written: str, intended: str, **how: bool) -> dict[str, float]:
        return {name: value for name, value in evidence(words, written, intended, **how).items() if value and name != "count"}

    assert of("city", "city") == {"letter": 4}
    assert of("citi", "citi", name=True) == {"letter": 4, "unknown": 1}  # leaving a name alone costs nothing
    assert of("citi", "city", name=True) == {"letter": 4, "name": 1, "vowel": 1}
    assert of("cite", "city") == {"letter": 4, "known": 1, "vowel": 1}
    assert of("there", "their").keys() == {"letter", "known", "frequent", "confused"}
    assert of("some times", "sometimes") == {"letter": 9, "known": 1, "frequent": 1, "join": 1}
    assert of("alot", "a lot") == {"letter": 5, "split": 1, "lower": 1}
    assert of("citi", "city") == {"letter": 4, "vowel": 1, "lower": 1}
    assert of("hom", "home")["short"] == of("hom", "home")["ending"] == 1
    assert evidence(words, "x", "a lot")["count"] == pytest.approx(words.log_p("a") + words.log_p("lot"))
    weights = Channel(vowel=-3.0, letter=1.0)
    assert weights.score({"vowel": 2.0, "letter": 4.0}) == -2.0


def alternatives(made: Speller, word: str) -> list[str]:
    """All of them, nearest first."""
    return [other for _, other in made.alternatives.find([(word, "")], math.inf, math.inf, 1000)[word, ""]]


def test_words_that_sound_alike_are_alternatives() -> None:
    made = Speller(speller().model, Words(COUNTS | {"watch": 400, "night": 400, "knight": 5}))
    assert made.words.same_sound("nite") == ["night", "knight"] and made.words.same_sound("night") == ["knight"]
    assert "night" in alternatives(made, "nite") and "night" not in made.words.near("nite", 2)  # three edits, the same sound
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


def test_a_word_is_not_split_into_what_is_no_word() -> None:
    made = Speller(speller().model, Words(COUNTS | {"was": 900, "nt": 900, "what": 900, "s": 900}))
    assert {"was nt", "wasn t"}.isdisjoint(alternatives(made, "wasnt"))
    assert "what s" not in alternatives(made, "whats") and "a lot" in alternatives(made, "alot")


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
        correct(speller().model, "x")


# ---- words ----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(alphabet="aB'é1_-. \n\u2003", max_size=60), max_size=4), st.integers(1, 9))
def test_words_are_counted_as_they_are_found_in_the_text(texts: list[str], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "PIECE", piece)
        counts = counting.count_words(texts)
    assert counts == Counter(word for text in texts for word in WORD.findall(text.lower()))


def test_words_are_counted_when_they_are_first_asked_for() -> None:
    read = []
    made = Words.from_texts(text for text in ["the cat the cat"] if not read.append(text))
    assert read == []
    content = made.to_bytes()
    assert read == ["the cat the cat"] and Words.from_bytes(content).counts == {"the": 2, "cat": 2}


def test_a_text_without_words_makes_an_empty_list_that_cannot_correct() -> None:
    empty = Words.from_bytes(Words.from_texts(["你好 42"]).to_bytes())
    assert empty.counts == {}
    with pytest.raises(ValueError, match="needs a list of words, and this one is empty"):
        Speller(speller().model, empty)


FREQUENT = {"received": 900, "separate": 900, "occurred": 900, "until": 2000, "government": 2000, "play": 900, "player": 9000}
FREQUENT |= {"refer": 900, "referred": 900, "pay": 50, "state": 900, "staple": 900}
WRONG = {"recieved": 3, "seperate": 5, "occured": 4, "untill": 2, "goverment": 2, "refered": 10}
RIGHT = {"payer": 2, "slate": 2, "stapel": 9, "separates": 2, "governments": 2, "receives": 9}


def test_misspellings_are_rare_words_near_frequent_ones() -> None:
    assert misspellings(FREQUENT | WRONG | RIGHT) == set(WRONG)
    assert misspellings(FREQUENT | dict.fromkeys(WRONG, 200)) == set()
    text = " ".join(itertools.chain.from_iterable([word] * count for word, count in (FREQUENT | WRONG | RIGHT).items()))
    assert set(Words.from_texts([text]).counts) == set(FREQUENT | RIGHT)


def test_the_bundled_list_has_few_misspellings() -> None:
    path = Path(unnoise.__file__).parent / "models" / "wiki" / "words.txt.gz"
    words = Words.from_bytes(path.read_bytes())
    usual = "recieved seperate definately occured untill wich becuase goverment begining existance refered commited beleive"
    assert [word for word in usual.split() if word in words.counts] == []
    assert misspellings(words.counts) == set()
    assert path.read_bytes()[4:8] == bytes(4)  # no time of writing in it
    assert list(words.counts.values()) == sorted(words.counts.values(), reverse=True)


# ---- what is searched, and what the model is asked ------------------------------------------------------------------------


def test_the_search_finds_what_comparing_with_every_word_finds() -> None:
    """Limits save time and change nothing."""
    words = Words(COUNTS | {"watch": 400, "wash": 30, "mash": 25, "cites": 2, "lots": 40, "hope": 100, "hose": 3, "slot": 9})
    made = Speller(speller().model, words)
    letters = random.Random(1)
    for word in [*words.counts, *("".join(letters.choices("acehilmosty", k=letters.randint(1, 7))) for _ in range(60))]:
        own = made.channel.score(evidence(words, word, word))
        reach = 1 if words.counts.get(word, 0) > 20 or len(word) < 3 else 2
        near = {w for w in words.counts if 0 < edit_distance(w, word) <= reach}
        near |= {w for w in words.same_sound(word) if edit_distance(w, word) <= reach + 1}
        behind = sorted((own - made.channel.score(evidence(words, word, other)), other) for other in near)
        for margin, decided, most in ((4.0, 0.3, 6), (4.0, 4.0, 2), (math.inf, math.inf, 6)):
            found = made.alternatives.find([(word, "")], margin, decided, most).get((word, ""))
            expected = [pair for pair in behind if pair[0] < margin][:most]
            if found is None:
                assert not expected or expected[0][0] >= decided
            elif not any(" " in other or "'" in other for _, other in found):
                assert found == expected


def test_the_model_is_asked_only_where_context_can_decide() -> None:
    asked: list[str] = []

    def context(text: str, candidates: list[Candidate]) -> list[float]:
        asked.extend(candidate.text for candidate in candidates)
        return [0.0] * len(candidates)

    made = speller()
    made.context = context  # type: ignore[method-assign]
    assert made.correct("the largst city of amerika").text == "the largest city of america" and asked == []
    far = Speller(made.model, made.words, Channel(context=1.0))
    far.context = context  # type: ignore[method-assign]
    assert far.correct("the citi").text == "the city" and {"city", "cite"} <= set(asked)


def test_all_candidates_can_be_asked_for() -> None:
    sets = list(speller().candidates("there cite", complete=True))
    assert [candidates[0].text for candidates in sets] == ["there", "cite"]
    assert all("context" in candidate.evidence for candidates in sets for candidate in candidates)


@pytest.mark.parametrize("method", ["mdlm", "udlm"])
def test_context_does_not_depend_on_what_is_evaluated_together(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = speller(method)
    with torch.no_grad():
        for weight in made.model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    text = "the largst stadium of their city"
    candidates = [Candidate(4, 10, word, {}) for word in ("largst", "largest", "a lot", "large")]
    candidates += [Candidate(22, 27, word, {}) for word in ("their", "there", "the")]
    together = made.context(text, candidates)
    assert together == pytest.approx([made.context(text, [candidate])[0] for candidate in candidates], abs=1e-4)
    monkeypatch.setattr(context, "ROWS", 2)
    monkeypatch.setattr(context, "SPANS", 3)
    assert together == pytest.approx(made.context(text, candidates), abs=1e-4)


def test_which_models_can_correct() -> None:
    made = {
        name: can_correct(Model.build(name, Text8(), length=16, width=8, depth=1, heads=2).process) for name in ("mdlm", "ar")
    }
    assert made == {"mdlm": True, "ar": False}


# ---- time -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["a", "qwertyuiopasdfghjklzxcvbnm", "a@", ".", "www.", "://", "a@a ", "citi. ", "Citi\n", "a'", " ", "\u00e9a", "a1'"],
)
def test_time_is_linear_in_the_length_of_the_text(text: str) -> None:
    """Four times the text takes less than eight times as long: half of what a quadratic search would, twice a linear one."""
    made = speller()

    def seconds(length: int) -> float:
        whole = (text * length)[:length]
        times = []
        for _ in range(5):
            start = time.process_time()
            made.correct(whole, strength=1.0)
            times.append(time.process_time() - start)
        return min(times)

    short = seconds(4_000)
    assert seconds(16_000) < max(8 * short, 0.005)


def test_openings() -> None:
    text = "The cat. A 1 Dog\nBird “Cow x's\tEgg @ Fog"
    spans = {span.word: (span.name, span.opening) for span in find_spans(text, {})}
    assert {word for word, (_, opening) in spans.items() if opening} == {"the", "a", "bird", "cow"}
    assert {word for word, (name, _) in spans.items() if name} == {"dog", "egg", "fog"}
    assert list(find_spans(" \n ", {})) == []


def test_british_and_american_spellings_are_no_mistakes_of_each_other() -> None:
    for pair in (("mum", "mom"), ("colours", "colors"), ("centre", "center"), ("realised", "realized"), ("analyse", "analyze")):
        assert are_variants(*pair) and are_variants(*reversed(pair)), pair
    for pair in (("for", "four"), ("then", "than"), ("hour", "hor"), ("rise", "rize"), ("mum", "mommy")):
        assert not are_variants(*pair), pair
    text = "My mum painted the centre of the wall in another colour."
    assert correct(unnoise.load("wiki"), text, strength=0.7).text == text


def test_a_right_word_that_the_training_text_lacks_is_left_alone() -> None:
    model = unnoise.load("wiki")
    known = model_words(model)
    assert known is not None and "pram" not in known.counts and "pram" in lexicon() and len(lexicon()) > 80_000
    words = Words(known.counts, lexicon())
    assert words.knows("pram") and words.knows("the") and not words.knows("capakity")
    text = "She pushed the pram along the road."
    assert correct(model, text).text == text
