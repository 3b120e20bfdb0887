"""Quality against variety: figures by hand, the judge's own tokens, the artefact of float32 Gumbel noise."""

import json
import math
import shlex
from pathlib import Path

import pytest
import torch

import unnoise
from unnoise import Masked, MeanPrediction
from unnoise.cli.main import main
from unnoise.data import Bpe, Text8
from unnoise.evaluation.frontier import FrontierOptions, best, frontier
from unnoise.evaluation.generative import (
    LikelihoodJudge,
    TextMeasures,
    can_mauve,
    distinct_n,
    features,
    mauve,
    measure_texts,
    ratio_error,
    token_entropy,
)
from unnoise.sampler import sample
from unnoise.sampler.ancestral import Float32Gumbel, gumbel_argmax
from unnoise.schedule import Linear

TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat "


def small(method: str, codec: unnoise.Codec | None = None) -> unnoise.Model:
    model = unnoise.Model.build(method, codec or Text8(), length=12, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def test_variety_by_hand() -> None:
    assert token_entropy([1, 1, 2, 2]) == pytest.approx(math.log(2)) and token_entropy([3, 3, 3]) == 0
    assert ratio_error([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 0 and ratio_error([1.0, 3.0], [1.0, 1.0]) == pytest.approx(1.0)
    assert distinct_n(["a b a b", "a b"], 2) == pytest.approx(2 / 4) and distinct_n(["a"], 2) == 0
    points = [TextMeasures("x", 1, 0, ppl, 0, h, 0, 0, 0, 0) for ppl, h in ((10, 2), (5, 1), (11, 1.5), (5, 0.5))]
    assert best(points) == points[:2]
    points = [TextMeasures("x", 1, 0, ppl, 0, h, 0, 0, 0, 0) for ppl, h in ((10, 2), (9, 2), (9, 2), (8, 1), (8, 1.5))]
    assert best(points) == [points[1], points[2], points[4]]  # as varied at less, and twice the same


def test_the_judge_reads_texts_in_its_own_tokens() -> None:
    """Uniform predictions of an untrained judge give a perplexity equal to the size of the judge's vocabulary."""
    codec = Bpe.train([TEXT], 300)
    judge = LikelihoodJudge(unnoise.Model.build("ar", codec, length=12, width=16, depth=1, heads=2))
    found = measure_texts([TEXT, "the cat"], small("mdlm"), judge, sampler="by hand")
    assert found.perplexity == pytest.approx(codec.vocab, rel=1e-4)
    tokens = sum(len(codec.encode(text)) for text in (TEXT, "the cat"))
    assert found.bits_per_char == pytest.approx(tokens * math.log2(codec.vocab) / len(TEXT + "the cat"), rel=1e-4)


def test_colder_texts_are_less_varied() -> None:
    options = FrontierOptions(samplers=("ancestral",), temperatures=(0.05, 1.0), steps=12, num_samples=12)
    found = list(frontier(small("mdlm"), LikelihoodJudge(small("ar")), options))
    assert [point.temperature for point in found] == [0.05, 1.0] and found[0].entropy < found[1].entropy
    assert found[0].distinct_1 <= 1 and found[0].mauve is None


def test_empty_texts_are_left_out_and_none_at_all_is_said() -> None:
    judge, model = LikelihoodJudge(small("ar")), small("mdlm")
    one = measure_texts(["the cat"], model, judge, sampler="x")
    assert one.left_out == 0 and measure_texts(["", "the cat", " "], model, judge, sampler="x") == one._replace(left_out=2)
    assert measure_texts(["The Cat", "the cat"], model, judge, sampler="x") == one._replace(left_out=1)
    with pytest.raises(ValueError, match="all texts by x at temperature 1 are empty"):
        measure_texts(["", " "], model, judge, sampler="x")


def test_features_are_what_the_head_reads_at_the_last_token() -> None:
    for judge in (small("ar"), unnoise.Model.build("ar", Text8(), length=12, network="llama:width=16,depth=1,heads=2")):
        texts = ["the cat", "a dog ran around the mat"]
        found = torch.from_numpy(features(judge, texts))
        assert found.shape == (2, 16)
        network, head = judge.network, judge.network.head
        tokens = torch.from_numpy(judge.codec.encode(texts[0]))[None]
        after = torch.cat([torch.full((1, 1), 27), tokens], 1)
        assert torch.allclose(head(found[:1]), network(after)[:, -1], atol=1e-5)


@pytest.mark.skipif(not can_mauve(), reason="mauve-text is not installed")
def test_mauve_tells_texts_of_one_kind_from_texts_of_two() -> None:
    """Texts like the real ones have nearly 1, quite other ones nearly 0."""
    judge, words = small("ar"), TEXT.split()
    generator = torch.Generator().manual_seed(0)

    def texts(end: str) -> list[str]:
        return [words[i] + end for i in torch.randint(0, 19, (60,), generator=generator).tolist()]

    real, alike, other = (features(judge, texts(end)) for end in (" ab ba", " ab ba", " zzzzz"))
    assert mauve(alike, real) > 0.6 and mauve(other, real) < 0.2
    with pytest.raises(ValueError, match="needs at least 20 of each kind, found 3"):
        mauve(real[:3], real)


def test_float32_gumbel_noise_loses_what_needs_more_than_24_bits() -> None:
    """Rare tokens win if −log u is small enough for their probability; a float32 u is at most 1 − 2⁻²⁴."""
    probs = torch.tensor([[1 - 1e-8, 1e-8]], dtype=torch.float64)
    u = torch.tensor([[math.exp(-2), 1 - 1e-9]], dtype=torch.float64)
    assert int((probs / -u.log()).argmax()) == 1, "in float64 the rare token is drawn"
    assert gumbel_argmax(probs, u).tolist() == [0], "in float32 it is not"


def test_float32_gumbel_is_otherwise_the_ancestral_sampler() -> None:
    probs = torch.tensor([0.6, 0.3, 0.1])

    def denoiser(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> MeanPrediction:
        return MeanPrediction(probs.log().expand(*(x_t.shape if where is None else (int(where.sum()),)), 3))

    x = sample(Masked(3, Linear()), denoiser, batch=64, length=50, sampler=Float32Gumbel(steps=8), seed=0)
    share = torch.bincount(x.flatten(), minlength=4) / x.numel()
    assert torch.allclose(share, torch.tensor([0.6, 0.3, 0.1, 0.0]), atol=0.03)
    assert not Float32Gumbel().keeps_distribution
    options = FrontierOptions(samplers=("first-hitting",), float32_gumbel=True)
    with pytest.raises(ValueError, match="name ancestral alone"):
        list(frontier(small("mdlm"), LikelihoodJudge(small("ar")), options))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    small("mdlm").save(tmp_path / "mdlm")
    small("ar").save(tmp_path / "judge")
    (tmp_path / "text.txt").write_text(TEXT * 20)
    line = f"plot frontier --model {tmp_path / 'mdlm'} --judge {tmp_path / 'judge'} --data {tmp_path / 'text.txt'}"
    more = f"--samplers ancestral --temperatures 0.5 1.0 --steps 4 --num-samples 3 --out {tmp_path / 'f.png'}"
    assert main(shlex.split(f"{line} {more} --float32-gumbel")) == 0
    shown = capsys.readouterr().out
    assert "only to reproduce that artefact" in shown and "ancestral, float32 Gumbel" in shown
    assert f"MAUVE is left out: it needs {'at least 20 texts' if can_mauve() else 'mauve-text'}" in shown
    assert main(shlex.split(f"{line} {more} --json")) == 0
    found = json.loads(capsys.readouterr().out)["frontier"]
    assert [one["sampler"] for one in found] == ["real text", "ancestral", "ancestral"]
    assert any(one["on_frontier"] for one in found) and (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
    assert main(shlex.split(f"plot chain --model {tmp_path / 'mdlm'} --temperatures 1.0")) == 2
    assert "are for `unnoise plot frontier`" in capsys.readouterr().err
