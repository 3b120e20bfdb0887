"""Filling in words: probabilities are those of enumeration, blanks stay single, every text model serves or says why not."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unnoise
from toy import Exact, ExactBlocks, Toy
from unnoise.apps.filling import fill
from unnoise.apps.filling.search import MaskedSearch, Place, is_word, search_in_blocks, search_left_to_right, word_tokens
from unnoise.apps.filling.word_filling import Filling, check_only_words
from unnoise.apps.spelling.words import FILE, Words
from unnoise.cli.command_base import percent
from unnoise.data import Characters, Codec, Pixels
from unnoise.data.tokenizer import Bpe, Text8Bpe
from unnoise.families.autoregressive import NextTokenPrediction
from unnoise.families.block import Blocks
from unnoise.model.generate import Template

SENTENCES = ["the big dog ran home", "a big cat sat on the mat", "the dog sat in the sun", "one cat ran to the big mat"] * 40


class Joined(Codec):
    """Five tokens, of which two bring a blank with them."""

    kind = "joined"
    vocab = 5
    prepends_space = True
    symbols = (" a", " b", "a", "b", ".")

    def encode(self, text: str, strict: bool = False) -> Any:
        raise NotImplementedError

    def decode(self, tokens: Sequence[int] | Any) -> str:
        return "".join(self.symbols[token] for token in tokens)

    def show(self, token: int) -> str:
        return self.symbols[token]


class ExactNext:
    """The autoregressive denoiser that knows a toy."""

    def __init__(self, toy: Toy):
        self.toy = toy

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor) -> NextTokenPrediction:
        rows = []
        for row, place in where.nonzero().tolist():
            fits = (self.toy.x[:, :place] == x_t[row, :place]).all(1)
            weights = torch.zeros(self.toy.vocab, dtype=torch.float64).index_add(0, self.toy.x[fits, place], self.toy.p[fits])
            rows.append((weights / weights.sum()).log())
        return NextTokenPrediction(torch.stack(rows))


def log_p(toy: Toy, begins: Sequence[int]) -> float:
    """log p that a text begins so."""
    fits = (toy.x[:, : len(begins)] == torch.tensor(begins)).all(1)
    return math.log(float(toy.p[fits].sum()))


# ---- the probabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("schedule", [unnoise.Linear(), unnoise.Cosine()])
def test_words_of_every_length_have_their_exact_probability(schedule: unnoise.Schedule) -> None:
    """All words of one to three letters between " " and " ": log p(w, c | a), whatever the order of the reveals."""
    toy, words = Toy(3, 5), word_tokens(Characters(" ab"))
    process = unnoise.Masked(3, schedule)
    found = MaskedSearch(process, Exact(toy, process, "mean"), words, Place([0], [0], 3, False)).run()
    assert len({word.tokens for word in found}) == len(found) == 2 + 4 + 8
    for word in found:
        assert word.log_p == pytest.approx(log_p(toy, [0, *word.tokens, 0]) - log_p(toy, [0]), abs=1e-9)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("block", [1, 5])
def test_words_in_blocks_have_their_exact_probability(block: int, whole: bool) -> None:
    """log p(w, c | a) from both readings of a text, as one block and block by block from left to right."""
    toy, words = Toy(3, 5), word_tokens(Characters(" ab"))
    found = search_in_blocks(Blocks(3, block, whole), ExactBlocks(toy), words, Place([1, 0], [0], 2, False))
    assert len({word.tokens for word in found}) == len(found) == 2 + 4
    for word in found:
        assert word.log_p == pytest.approx(log_p(toy, [1, 0, *word.tokens, 0]) - log_p(toy, [1, 0]), abs=1e-9)


@pytest.mark.usefixtures("double")
def test_where_nothing_follows_a_word_must_end() -> None:
    toy, words = Toy(5, 4), word_tokens(Joined())
    process = unnoise.Masked(5, unnoise.Linear())
    found = MaskedSearch(process, Exact(toy, process, "mean"), words, Place([4], [], 2, True)).run()
    assert {word.tokens[0] for word in found} == {0, 1} and {word.tokens[1:] for word in found} == {(), (2,), (3,)}
    for word in found:
        ends = [log_p(toy, [4, *word.tokens, token]) for token in (0, 1, 4)]
        assert word.log_p == pytest.approx(float(torch.tensor(ends).logsumexp(0)) - log_p(toy, [4]), abs=1e-9)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("after", [[0, 2], [0], []])
def test_words_of_an_autoregressive_model_have_their_exact_probability(after: list[int]) -> None:
    toy, words = Toy(3, 6), word_tokens(Characters(" ab"))
    found = search_left_to_right(ExactNext(toy), words, Place([0], after, 3, False))
    assert len({word.tokens for word in found}) == 2 + 4 + 8
    for word in found:
        wanted = log_p(toy, [0, *word.tokens, *(after or [0])]) - log_p(toy, [0])
        assert word.log_p == pytest.approx(wanted, abs=1e-9)


def test_the_network_is_read_only_where_a_token_is_hidden() -> None:
    process, words = unnoise.Masked(3, unnoise.Linear()), word_tokens(Characters(" ab"))
    read: list[Tensor] = []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> unnoise.MeanPrediction:
        assert where is not None and bool((x_t[where] == 3).all()) and not bool(where[:, 0].any())
        read.append(where.sum(1))
        return unnoise.MeanPrediction.from_logits(torch.zeros(int(where.sum()), 3))

    MaskedSearch(process, denoiser, words, Place([0], [0, 1], 3, False)).run()
    assert int(torch.cat(read).max()) == 3


# ---- through the model ---------------------------------------------------------------------------------------------------


def built(method: str, codec: Codec | str = "text8", length: int = 32, **more: Any) -> unnoise.Model:
    """Return a small model with random weights."""
    model = unnoise.Model.build(method, codec, length=length, width=16, depth=1, heads=2, **more)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model


@pytest.mark.parametrize("method", ["mdlm", "md4", "genmd4", "sedd-absorb", "d3pm-absorb", "ardm", "ar", "flexmdm"])
def test_each_mark_gets_ranked_words(method: str) -> None:
    model = built(method)
    text = "The big [WORD] ran; then another [WORD] came to them, as it was to be."
    found = fill(model, text, most=3)
    assert len(found) == 2
    for candidates in found:
        probabilities = [p for _, p in candidates]
        assert 1 <= len(candidates) <= 3 and probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) <= 1 + 1e-9 and all(is_word(word) and word.isalpha() for word, _ in candidates)
    first, second = (candidates[0].text for candidates in found)
    filling = Filling(model, text).finished()
    assert filling.text(filling.ways(1)[0][0]) == f"The big {first} ran; then another {second} came to them, as it was to be."


def test_variants_are_the_likeliest_combinations() -> None:
    filling = Filling(built("mdlm"), "a [WORD] and a [WORD]").finished()
    ways = filling.ways(4)
    every = sorted((p * q for _, p in filling.found[0] for _, q in filling.found[1]), reverse=True)
    assert [p for _, p in ways] == pytest.approx(every[:4]) and len({filling.text(words) for words, _ in ways}) == 4
    assert sum(p for _, p in filling.found[0]) == pytest.approx(1)


@pytest.mark.parametrize(
    "text", ["[WORD]", "[WORD] ran", "the [WORD]", "([WORD])", "un[WORD]ed", "[WORD][WORD] x", "a" * 99 + " [WORD]"]
)
@pytest.mark.parametrize("method", ["mdlm", "ar"])
def test_a_mark_may_stand_anywhere(method: str, text: str) -> None:
    model = built(method, length=16)
    assert all(candidates for candidates in fill(model, text, 2))
    filling = Filling(model, text).finished()
    assert filling.text(filling.ways(1)[0][0]).startswith(text.partition("[WORD]")[0])


def test_what_is_far_away_is_not_searched_for_again() -> None:
    far = Filling(built("mdlm"), f"the [WORD] {'of ' * 60}the [WORD] ran")
    near = Filling(built("mdlm"), "the [WORD] of the [WORD] ran")
    assert len(list(far)) == 2 and len(list(near)) == 3


def test_a_label_changes_what_fits() -> None:
    model = built("mdlm", labels=["a", "b"])
    found = [fill(model, "the [WORD] ran", label=label)[0][0] for label in ("a", "b")]
    assert found[0] != found[1]


# ---- blanks --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bpe() -> Bpe:
    return Bpe.train(SENTENCES, 300)


@pytest.mark.parametrize("method", ["mdlm", "ar", "flexmdm"])
def test_no_blank_is_doubled_and_no_words_are_glued(bpe: Bpe, method: str) -> None:
    model = built(method, bpe)
    for text in ("the big [MASK] ran", "the [MASK][MASK] [MASK] ran", "a [MASK]"):
        for filled in model.infill(text, n=8, steps=4):
            assert filled.startswith(text.split("[MASK]")[0]) and filled.endswith(text.split("[MASK]")[-1])
            pieces = filled.split(" ")
            assert all(pieces[1:-1]) and pieces[0] in ("the", "a")
    filling = Filling(model, "the big [WORD] ran, (a [WORD]) sat").finished()
    for filled in (filling.text(words) for words, _ in filling.ways(4)):
        assert filled.startswith("the big ") and " ran, (a " in filled and filled.endswith(") sat")
        assert "  " not in filled and len(filled.split()) == 7


def test_a_blank_before_a_mark_belongs_to_what_comes(bpe: Bpe) -> None:
    made = Template.parse("the big [MASK] ran", bpe)
    assert made.given == [*bpe.encode("the big").tolist(), -1, *bpe.encode(" ran").tolist()]
    assert made.woven([" dog"]) == made.woven(["dog"]) == made.woven([" dog "]) == "the big dog ran"
    assert Template.parse("the big[MASK]", bpe).woven([" dog"]) == "the big dog"
    letters = Characters("abc ")
    assert Template.parse("ab [MASK] c", letters).given == [0, 1, 3, -1, 3, 2]
    assert Template.parse("ab [MASK] c", letters).woven([" "]) == "ab   c"
    assert len(built("mdlm", bpe).completion("the big ", " ran", 9).given) == 9


def test_the_first_word_of_running_text_is_read_after_a_blank(bpe: Bpe) -> None:
    letters = Text8Bpe(bpe.tokenizer)
    assert Template.parse("the big [MASK] ran", letters).given[:2] == letters.encode(" the big").tolist()
    assert Template.parse(" the big [MASK]", letters).given[:-1] == letters.encode(" the big").tolist()
    assert Template.parse("[MASK] ran", letters).given == [-1, *letters.encode(" ran").tolist()]
    assert Template.between("the big", [-1], "", letters).given == [*letters.encode(" the big").tolist(), -1]
    assert Template.between("the", [-1], "", letters).woven([" dog"]) == "the dog"
    read = Filling(built("mdlm", letters), "the [WORD] of [WORD]")
    assert read.context(0) == (" the ", " of ") and read.text(["x", "y"]) == "the x of y"
    assert Template.parse("the big [MASK]", bpe).given[0] == bpe.encode("the")[0]  # where words also stand after a line's end


def test_a_suffix_begins_with_a_word_of_its_own(bpe: Bpe) -> None:
    made = Template.between("the", [-1], "ran home", bpe)
    assert made.given[-len(bpe.encode(" ran home")) :] == bpe.encode(" ran home").tolist()
    assert made.woven([" dog"]) == "the dog ran home" and Template.between("the", [-1], ".", bpe).woven([" dog"]) == "the dog."
    assert Template.between("a", [-1], "b", Characters("ab")).woven(["b"]) == "abb"


def test_what_is_written_at_the_start_of_a_given_text_has_no_blank_before_it(bpe: Bpe) -> None:
    assert Template.parse("[MASK] ran", bpe).woven([" dog"]) == "dog ran"
    assert Template.between("", [-1], "", bpe).woven([" dog"]) == " dog"  # a part of running text, as the model wrote it


def test_words_of_the_training_text_come_before_what_pieces_make(bpe: Bpe) -> None:
    model = built("mdlm", bpe)
    every = {one.text for one in Filling(model, "the [WORD] ran").finished().found[0]}
    model.extra_files[FILE] = Words({"the": 1, "dog": 1}).to_bytes()
    known = [one.text.lower() for one in Filling(model, "the [WORD] ran").finished().found[0]]
    assert sorted(known) == ["dog", "the"] and len(every) > 2
    model.extra_files[FILE] = Words({"zzz": 1}).to_bytes()
    assert {one.text for one in Filling(model, "the [WORD] ran").finished().found[0]} == every


def test_a_text_begins_with_a_capital_where_there_is_one() -> None:
    model = built("mdlm", Bpe.train(["The dog ran. A Cat sat. The Sun. The big Dog."] * 40, 300))
    for text, most in (("[WORD] ran", 5), ("the [WORD] ran", 5)):
        found = [one.text[0].isupper() for one in Filling(model, text).finished().found[0][:most]]
        assert all(found) == text.startswith("[WORD]")


def test_a_trained_model_finds_what_is_missing() -> None:
    (states,) = fill(unnoise.load("wiki-ar"), "the united [WORD] of america")
    assert states[0].text == "states" and states[0].probability > 0.5


# ---- mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda m: fill(m, "no marks"), r"no word to fill in: mark each with \[WORD\]"),
        (lambda m: fill(m, "a [WORD]", most=0), "number of candidates must be ≥ 1, found 0"),
        (lambda m: m.infill("a [WORD] [MASK]"), r"fill in each \[WORD\] first with `unnoise fill`, then \[MASK\] and \[GAP\]"),
        (lambda m: check_only_words("a [WORD] [MASK]"), r"fill in each \[WORD\] first, then \[MASK\] and \[GAP\]"),
        (lambda m: next(m.chain(template="a [WORD]")), "has no fixed number of tokens"),
        (lambda m: fill(m, "a [WORD]", label="x"), "trained without labels"),
        (lambda m: fill(built("udlm"), "a [WORD]"), "needs a model of masked noise such as mdlm, or flexmdm or ar, found udlm"),
        (lambda m: fill(built("mdlm", Characters(".,")), "[WORD]."), "there are no words to fill in"),
        (lambda m: fill(built("mdlm", Pixels((2, 2), 4), 4), "a [WORD]"), "this is a model of images"),
    ],
)
def test_mistakes_are_one_sentence(act: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        act(built("mdlm"))


def test_the_benchmark_blanks_content_words(tmp_path: Path) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("fill_benchmark", Path(__file__).parents[3] / "benchmarks" / "fill.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(module.phrases()) == 30 and all(case.text.count("[WORD]") == 1 for case in module.phrases())
    train = ["the little girl loved her big brown horse and her small white rabbit"] * 3
    cases = module.passages(["today the little girl loved her big brown horse, as girls do"], 20)
    assert {case.word for case in cases} <= {"little", "girl", "loved", "brown", "horse", "girls"}
    baseline = module.Baseline(train, cases)
    assert {baseline.guesses(case)[0] for case in cases if case.word == "brown"} == {"brown"}


def test_shares_in_percent() -> None:
    shown = {0.0: "0 %", 0.001: "< 1 %", 0.005: "< 1 %", 0.0051: "1 %", 0.5: "50 %", 1.0: "100 %"}
    assert {share: percent(share) for share in shown} == shown
    assert percent(0.0004, 1) == "< 0.1 %" and percent(0.0006, 1) == "0.1 %"
