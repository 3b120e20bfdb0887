"""Spelling by the model's context: exact scores, rows that hide several words, real-word errors, proposals of the model."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from unnoise import Model
from unnoise.apps.spelling import context as context_module
from unnoise.apps.spelling.candidates import FLOOR, Case, WordCandidates, alike
from unnoise.apps.spelling.channel import WORD_CHANNEL, Candidate, Channel, Span, difference_evidence
from unnoise.apps.spelling.context import Place, WordContext, has_letters_only, in_letters, reads_words
from unnoise.apps.spelling.english import edit_distance
from unnoise.apps.spelling.speller import Speller
from unnoise.apps.spelling.words import Words
from unnoise.data.tokenizer import Bpe
from unnoise.denoiser import predict_clean

TEXT = "they put on their coats and there was a cat there and the dog saw their cat a lot of times he gave them some food "
COUNTS = {word: 100 * TEXT.split().count(word) for word in TEXT.split()}
COUNTS |= {"cave": 100, "sometimes": 100, "cats": 100, "don": 50, "do": 100, "t": 50}


def random_model(vocab: int = 275, length: int = 16) -> Model:
    """Return a model with random weights over the word pieces of a text."""
    model = Model.build("mdlm", Bpe.train([TEXT * 9], vocab), length=length, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


class After(nn.Module):
    """Bigram network: logits depend on the preceding token, not on the following ones."""

    def __init__(self, pairs: list[tuple[int, int]], states: int, vocab: int):
        super().__init__()
        self.config = {"pairs": pairs, "states": states, "vocab": vocab}
        self.table = nn.Parameter(torch.zeros(states, vocab))
        with torch.no_grad():
            for one, other in pairs:
                self.table[one, other] += 8.0

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        return self.table[torch.cat([x[:, :1], x[:, :-1]], 1)]


def counting_model(text: str = TEXT) -> Model:
    """Return a bigram model of a text in which every word is a token."""
    codec = Bpe.train([f" {text} cave" * 9], 400)
    tokens = codec.encode(" " + text.strip()).tolist()
    network = After(list(itertools.pairwise(tokens)), codec.vocab + 1, codec.vocab)
    return Model.build("mdlm", codec, length=64, network=network)


def log_mu(model: Model, row: list[int], place: int) -> Tensor:
    """log μ at one position of one row, asked directly."""
    x = torch.tensor([row + [model.process.vocab] * (-len(row) % context_module.ROUND)])
    where = torch.zeros_like(x, dtype=torch.bool)
    where[0, place] = True
    with torch.no_grad():
        return predict_clean(model.denoiser, model.process, x, torch.tensor([0.5], dtype=torch.float64), where)[0]


# ---- scores ---------------------------------------------------------------------------------------------------------------


def test_a_candidate_of_several_tokens_is_scored_by_the_chain_rule() -> None:
    model = random_model(length=64)
    context = WordContext(model)
    reading = context.read("they put on their coats")
    place = context.place(reading, 12)
    assert max(place.start, len(reading.tokens) - place.stop) <= context_module.WINDOW // 2
    before, after, mask = reading.tokens[: place.start], reading.tokens[place.stop :], model.process.vocab
    word = [3, 200, 7]
    expected = 0.0
    for j, token in enumerate(word):
        row = [*before, *word[:j], *[mask] * (3 - j), *after]
        expected += float(log_mu(model, row, len(before) + j)[token])
    alone, first, _, again = context.chain(reading, [(place, word), (place, [3]), (place, [3, 200]), (place, word)])
    assert alone == pytest.approx(expected, abs=1e-4) and again == alone
    assert first == pytest.approx(float(log_mu(model, [*before, mask, *after], len(before))[3]), abs=1e-4)


def test_all_candidates_of_two_tokens_sum_to_one() -> None:
    model = random_model(vocab=258)
    context = WordContext(model)
    reading = context.read("on a cat")
    place = context.place(reading, 3)
    some = list(range(0, 258, 43))
    scores = torch.tensor(context.chain(reading, [(place, [one, other]) for one in some for other in range(258)]))
    firsts = torch.tensor([log_mu(model, _with(reading.tokens, place, [258, 258]), place.start)[one] for one in some])
    assert torch.allclose(scores.view(len(some), 258).logsumexp(1), firsts, atol=1e-4)


def _with(tokens: list[int], place: Place, inside: list[int]) -> list[int]:
    return [*tokens[: place.start], *inside, *tokens[place.stop :]]


def test_a_row_that_hides_one_word_gives_the_same_as_the_chain_rule() -> None:
    context = WordContext(random_model(length=128))
    text = "they put on there"
    reading = context.read(text)
    place = context.place(reading, 12)
    (answer,) = context.one_token(reading, [place], [[5, 260]])
    assert [answer.asked[5], answer.asked[260]] == pytest.approx(
        context.chain(reading, [(place, [5]), (place, [260])]), abs=1e-4
    )
    assert len(answer.likeliest) == context_module.RANKED and answer.likeliest == sorted(
        answer.likeliest, key=lambda pair: -pair[1]
    )


@pytest.mark.parametrize("length", [16, 32, 128])
def test_every_place_of_a_long_text_is_answered(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    context = WordContext(random_model(length=length))
    text = (TEXT * 3).strip()
    reading = context.read(text)
    places = [Place(reading.starts[i], reading.starts[i + n]) for i in range(len(reading.starts) - 2) for n in (1, 2)]
    answers = context.one_token(reading, places, [[i % 7] for i in range(len(places))])
    assert [list(answer.asked) for answer in answers] == [[i % 7] for i in range(len(places))]
    monkeypatch.setattr(context_module, "ROWS", 1)
    one_by_one = context.one_token(reading, places, [[i % 7] for i in range(len(places))])
    for one, other in zip(answers, one_by_one, strict=True):
        assert list(one.asked.values()) == pytest.approx(list(other.asked.values()), abs=1e-4)


def test_hidden_words_of_a_row_are_far_apart() -> None:
    context = WordContext(random_model(length=128))
    reading = context.read(TEXT)
    places = [Place(*pair) for pair in itertools.pairwise(reading.starts)]
    for group in context_module._far_apart(places, list(range(len(places)))):
        for one, other in itertools.pairwise(group):
            assert places[other].start - places[one].stop >= context_module.APART


# ---- texts as tokens ------------------------------------------------------------------------------------------------------


def test_a_text_is_read_in_the_letters_of_the_training_text() -> None:
    letters = WordContext(random_model())
    assert letters.plain is not None
    text = "They put 2 coats on, don't they?"
    reading = letters.read(text)
    assert letters.codec.decode(reading.tokens) == " they put two coats on don t they"
    place = letters.place(reading, 11)
    assert letters.codec.decode(reading.tokens[place.start : place.stop]) == " coats"


def test_a_text_is_read_as_it_is_by_a_model_of_such_texts() -> None:
    codec = Bpe.train(['"They put on their coats," he said. Don\'t they? ' * 9], 400)
    context = WordContext(Model.build("mdlm", codec, length=32, width=8, depth=1, heads=2))
    text = '"They put 2 coats on," he said.\n Don\'t they?'
    reading = context.read(text)
    assert context.plain is None and codec.decode(reading.tokens) == text
    assert reading.tokens == codec.encode(text).tolist()


def test_which_models_read_words() -> None:
    assert reads_words(random_model()) and has_letters_only(random_model().codec)
    assert not reads_words(Model.build("mdlm", "text8", length=16, width=8, depth=1, heads=2))
    assert not reads_words(Model.build("udlm", Bpe.train([TEXT], 270), length=16, width=8, depth=1, heads=2))


# ---- corrections ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("they put on there coats", "they put on their coats"),  # a real word in the wrong place
        ("and their was a cat", "and there was a cat"),
        ("They put on there coats. Times he cave them some.", "They put on their coats. Times he gave them some."),
        ("they put on thier coats", "they put on their coats"),
        ("the dog saw a lot of times", "the dog saw a lot of times"),
        ("they put on their coats and there was a cat", "they put on their coats and there was a cat"),
    ],
)
def test_context_finds_real_word_errors(wrong: str, right: str) -> None:
    assert Speller(counting_model(), Words(COUNTS)).correct(wrong, strength=0.95).text == right


def test_the_model_proposes_words_that_no_list_search_finds() -> None:
    made = Speller(counting_model("the dog went home through the dark wood "), Words(COUNTS | {"through": 90, "home": 90}))
    sets = {found[0].text: [one.text for one in found] for found in made.candidates("the dog went home frough the dark wood")}
    assert "through" in sets["frough"]
    assert alike("thort", "thought", False) and not alike("thort", "thought", True) and alike("walk", "walked", True)


def test_an_unknown_word_fits_nothing_and_is_not_asked_about() -> None:
    made = Speller(counting_model(), Words(COUNTS))
    (found,) = [found for found in made.candidates("put on their qqqq coats", complete=True) if found[0].text == "qqqq"]
    assert found[0].evidence["context"] == pytest.approx(FLOOR) and found[0].evidence["pieces"] == 0


def test_apostrophes_that_were_left_out() -> None:
    made = Speller(random_model(), Words(COUNTS), Channel(contraction=12.0))
    result = made.correct("they dont put on their coats")
    assert result.text == "they don't put on their coats" and result.edits[0].before == "dont"
    assert Speller(random_model(), Words(COUNTS | {"i": 90, "m": 9}), Channel(contraction=20.0)).correct(
        "and im there"
    ).text == ("and I'm there")


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({"known": 1.0}, 0.5),
        ({"known": 1.0, "confused": 1.0}, 0.5**1.8),
        ({"name": 1.0}, 0.5),
        ({}, 0.5**1.8),
        ({"known": 1.0, "join": 1.0}, 0.5**0.15),
        ({"join": 1.0}, 0.5**1.8),
    ],
)
def test_how_sure_a_change_must_be(facts: dict[str, float], limit: float) -> None:
    """Of two candidates with p and q = 1 − p it is p·(1 − q)³ = p⁴ that has to be above the limit."""
    made = Speller(
        random_model(), Words(COUNTS), Channel(**dict.fromkeys(("known", "confused", "name", "join"), 0.0), count=1.0)
    )
    for p, changes in ((limit**0.25 + 0.001, True), (limit**0.25 - 0.001, False)):
        ahead = Candidate(0, 5, "other", facts | {"count": math.log(p / (1 - p))})
        assert bool(made.edits("wrote", [[Candidate(0, 5, "wrote", {}), ahead]], 0.5)) == changes


def test_a_word_alone_is_spelled() -> None:
    """Within a text a doubtful word stays; asked about alone it becomes the nearest word."""
    shy = Channel(vowel=-6.0, consonant=-6.0, sound=-6.0)
    made = Speller(Model.build("mdlm", "text8", length=16, width=8, depth=1, heads=2), Words(COUNTS), shy)
    assert made.correct("the coets").edits == []
    assert made.correct("coets").text == "coats" and made.correct("coets", strength=0.0).edits == []
    assert made.correct("cave").edits == [] and made.correct("coets", keep=["coets"]).edits == []


# ---- parts ----------------------------------------------------------------------------------------------------------------


def test_the_nearest_context_is_kept_where_a_model_is_short() -> None:
    """Of eight tokens two are the candidate's: three before it and three behind it are left."""
    model = Model.build("mdlm", "text8", length=8, width=16, depth=1, heads=2)
    text = "abcdefghijklmnopq"
    span = in_letters(model, text, 8, 10, "xy")
    assert [model.codec.decode(part) for part in span] == ["fgh", "xy", "klm"]
    first, last = in_letters(model, text, 0, 1, "xy"), in_letters(model, text, 16, 17, "xy")
    assert model.codec.decode([*first.before, *first.word, *first.after]) == "xybcdefg"
    assert model.codec.decode([*last.before, *last.word, *last.after]) == "nopxy"


def test_a_word_is_read_as_another_that_is_likelier_than_not() -> None:
    """Compare p = e^score/Σ e^score of the best candidate with one half; a word that is its own best candidate stays."""
    channel = Channel(count=1.0, context=0.0)
    candidates = WordCandidates(WordContext(counting_model()), Words(COUNTS), channel)
    span = Span(0, 3, "cta", rest="", name=False, opening=False)

    def mended(*probabilities: float) -> list[int] | None:
        evidence = [{"count": math.log(p)} for p in probabilities]
        some = [Candidate(0, 3, str(i), one) for i, one in enumerate(evidence)]
        return candidates._mended(Case(span, some, [[i] for i in range(len(some))], True, [-1.0] * len(some)))

    assert mended(0.3, 0.6, 0.1) == [1] and mended(0.1, 0.3, 0.6) == [2]
    assert mended(0.3, 0.45, 0.25) is None and mended(0.6, 0.4) is None and mended(0.9, 0.05, 0.05) is None


@pytest.mark.parametrize("words", [False, True])
def test_no_two_words_differ_for_less_than_the_limits_say(words: bool) -> None:
    """score(difference) ≤ edits·(the cheapest kind of edit) + what else can speak for it; a doubled letter comes nearest."""
    channel = WORD_CHANNEL if words else Channel()
    edit, rest = channel.limits()
    pairs = [
        ("leter", "letter"),
        ("cta", "cat"),
        ("cot", "cat"),
        ("car", "cat"),
        ("ct", "cat"),
        ("walk", "walked"),
        ("kat", "cat"),
    ]
    least = math.inf
    for written, intended in pairs:
        score = channel.score(difference_evidence(written, intended))
        most = edit * edit_distance(written, intended) + rest
        assert score <= most + 1e-9
        least = min(least, edit * edit_distance(written, intended) - score)
    assert least == pytest.approx(0.0, abs=1e-9) or words  # one edit costs just that
