"""Results of an evaluation by hand: tables, published losses, points of a frontier, requests of a harness."""

import math
import statistics
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import unnoise
from exact_models import ToyNetwork, toy_model
from toy import Toy, expected, pairs, quadrature
from unnoise.apps.harness.harness import Continuation, HarnessModel, HarnessOptions, greedy_at_once
from unnoise.apps.harness.tasks import _continuation
from unnoise.apps.protocols.protocols import PROTOCOLS, Evaluation, Measurement, ProtocolOptions, evaluate
from unnoise.apps.protocols.published_nats import (
    Difference,
    PublishedLoss,
    _block_times,
    _measured,
    _one_of,
    differences,
    published_nats,
)
from unnoise.apps.protocols.tables import _key
from unnoise.apps.protocols.windows import BENCHMARKS, Wrapping, characters_of, chunk, pieces
from unnoise.data import Bpe, Bytes, Characters, Text8
from unnoise.data.codec import LETTERS
from unnoise.evaluation.compare import compare
from unnoise.evaluation.conditional import conditional, greedy
from unnoise.evaluation.dataset import Tokenizer
from unnoise.evaluation.frontier import FrontierOptions, frontier, qualities
from unnoise.evaluation.generative import LikelihoodJudge, TextMeasures, features, mauve, measure_texts
from unnoise.evaluation.table_text import Cell, as_csv, markdown
from unnoise.families.block_objective import BlockElbo
from unnoise.objective import Elbo
from unnoise.objective.losses import noise_end, random_part
from unnoise.prediction import MeanPrediction
from unnoise.process import Masked
from unnoise.published_tables import ZERO_SHOT
from unnoise.rng import RowGenerator, seed_of
from unnoise.schedule import Linear
from unnoise.training.training_options import RunOptions

TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat "


def small(method: str, codec: unnoise.Codec | None = None, length: int = 8) -> unnoise.Model:
    model = unnoise.Model.build(method, codec or Text8(), length=length, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.4 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


# ---- windows -----------------------------------------------------------------------------------------------------------


def test_characters_of_the_text_in_windows() -> None:
    """Count the documents' tokens in a window, without the tokens put around them."""
    codec, texts = Characters("abcdefghijkl", end=True), ["abcde", "fgh", "ijkl"]
    assert chunk(texts, codec, 4, Wrapping(ends=True, around=True, rows=2)).characters == pytest.approx(12 * 14 / 15)
    assert chunk(texts, codec, 4, Wrapping(ends=True, rows=2)).characters == pytest.approx(12 * 12 / 15)
    assert chunk(["abcdef", "g", ""], codec, 6, Wrapping(padded=True)).characters == pytest.approx(7 * 5 / 7)
    assert pieces(["abcdefgh", "ij"], 3) == ["abc", "def"]  # shorter last ones are dropped
    wide = Wrapping(ends=False, rows=None, whole_batches=4)
    assert [len(chunk(["a" * 4 * n], codec, 4, wide).x) for n in (3, 4, 7, 8)] == [3, 4, 4, 8]


def test_windows_have_the_characters_of_their_own_tokens() -> None:
    """Long tokens followed by single letters: the first windows hold several times as many characters."""
    words = "the cat sat on the mat and the dog ran " * 30
    codec = Bpe.train([words * 3], 300)
    text = words + "qxzjkvwyqpzx" * 20
    chunks = chunk([text], codec, 8, Wrapping(ends=False, rows=None))
    found = [characters_of(chunks, codec, torch.tensor([i])) for i in range(len(chunks.x))]
    assert sum(found) == pytest.approx(chunks.characters) == pytest.approx(len(text), rel=0.02)
    assert found == pytest.approx([len(codec.decode(row)) for row in chunks.x.tolist()], rel=0.02)
    assert found[0] > 2 * found[-1]
    assert characters_of(chunks, codec, torch.arange(len(chunks.x))) == chunks.characters
    ended = Characters("abc", end=True)
    padded = chunk(["abcabc", "a", "ab"], ended, 9, Wrapping(padded=True, around=True))
    assert [characters_of(padded, ended, torch.tensor([i])) for i in range(3)] == pytest.approx([6, 1, 2])


# ---- tables ------------------------------------------------------------------------------------------------------------


def test_what_is_made_of_nats() -> None:
    """400 nats ± 8 of 200 tokens, which are 500 characters of 640 bytes."""
    found = Measurement(400.0, 8.0, 200).described(500, 640)
    assert found == pytest.approx(
        {
            "nats_per_token": 2,
            "stderr": 0.04,
            "perplexity": math.e**2,
            "perplexity_stderr": 0.04 * math.e**2,
            "bits_per_token": 2 / math.log(2),
            "bits_per_char": 0.8 / math.log(2),
            "bits_per_char_stderr": 0.016 / math.log(2),
            "bits_per_byte": 0.625 / math.log(2),
            "bits_per_byte_stderr": 0.0125 / math.log(2),
        }
    )


def evaluated(*parts: tuple[float, float]) -> Evaluation:
    codec = Characters("ab", end=True)
    return Evaluation(
        protocol=PROTOCOLS["mdlm"],
        benchmark=BENCHMARKS["plain"],
        split="test",
        chunks=chunk(["ab" * 20], codec, 10, Wrapping()),
        windows=4,
        characters=40.0,
        bytes=40.0,
        tokenizer=Tokenizer.of(codec),
        lossless=True,
        published=100.0,
        passes=Measurement(100.0, 1.0, 40),
        bound=Measurement(100.0 + sum(nats for nats, _ in parts), 1.0, 40),
        exact=False,
        draws=4,
        differences=[Difference(str(i), nats, error, "") for i, (nats, error) in enumerate(parts)],
    )


def test_the_difference_is_the_sum_of_its_parts() -> None:
    found = evaluated((-6.0, 3.0), (2.0, 4.0))
    assert found.difference == pytest.approx((-4 / 40, 5 / 40))
    facts = found.as_dict()["difference"]
    assert (facts["bound_minus_published"], facts["stderr"]) == pytest.approx((-0.1, 0.125))
    assert facts["parts"]["0"]["nats_per_token"] == pytest.approx(-6 / 40)


@pytest.mark.parametrize(
    ("parts", "is_bound"),
    [
        ([(-6.0, 1.0)], True),  # the bound is lower than what was published
        ([(6.0, 1.0)], False),
        ([(-1.5, 1.0)], None),
        ([(1.5, 1.0)], None),
        ([(2.5, 1.0)], False),
        ([], True),  # nothing is missing
    ],
)
def test_whether_a_published_figure_is_a_bound(parts: list[tuple[float, float]], is_bound: bool | None) -> None:
    assert evaluated(*parts).is_bound is is_bound


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "wikitext2.txt"
    path.write_text(f" = A = \n \n {TEXT}\n" * 3)
    return path


@torch.no_grad()
@pytest.mark.parametrize("name", ["mdlm", "bd3lm", "mdlm-lm1b"])
def test_the_published_figure_is_the_first_of_its_passes(name: str, lines: Path) -> None:
    model = small("mdlm", Bytes(end=True), 16)
    found = evaluate(model, str(lines), ProtocolOptions(protocol=name, windows=5, draws=4, passes=3, seed=7))
    which = torch.linspace(0, len(found.chunks.x) - 1, 5).round().long()
    x, counted = found.chunks.x[which], found.chunks.counted[which].clone()
    free = torch.ones_like(counted)
    free[:, 0] = name != "bd3lm"
    loss = PROTOCOLS[name].loss
    assert loss is not None and found.passes is not None
    sums = [float(published_nats(model, loss, x, free, seed=8 + i, counted=counted).counted.sum()) for i in range(3)]
    assert len(set(sums)) == 3 and found.published == pytest.approx(sums[0])
    assert found.passes.nats == pytest.approx(statistics.fmean(sums))
    assert found.passes.stderr == pytest.approx(statistics.stdev(sums) / math.sqrt(3))
    assert found.bound.tokens == found.passes.tokens == int((counted & free).sum())
    text = ((found.chunks.x != model.codec.eos) & found.chunks.counted).sum(1)  # a byte is a character here
    assert found.windows == 5 and found.characters == pytest.approx(
        found.chunks.characters * float(text[which].sum() / text.sum())
    )
    value = math.exp(sums[0] / found.bound.tokens)
    assert found.as_dict()["published"]["value"] == pytest.approx(value)


def test_text8_is_cut_into_pieces_where_end_tokens_follow_them(tmp_path: Path) -> None:
    """45 characters: two pieces of 16 for MDLM, and for Duo, which has no end tokens, one stream."""
    (tmp_path / "text8").mkdir()
    (tmp_path / "text8" / "test.txt").write_text(TEXT[:45])
    model = small("mdlm", Text8(end=True), 16)
    for name, tokens in (("mdlm", 2 * 17), ("duo", 45), ("sedd", 45)):
        assert evaluate(model, str(tmp_path / "text8"), ProtocolOptions(protocol=name, draws=4)).chunks.tokens == tokens


# ---- published losses --------------------------------------------------------------------------------------------------


class Watched(torch.nn.Module):
    """A network of ones; keeps the times that it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"inputs": 28, "outputs": 27}
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.times: list[Tensor] = []

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        assert t is not None
        self.times.append(t)
        return torch.zeros(*x.shape, 27) + self.anchor


@torch.no_grad()
def test_the_times_of_a_batch_are_spread() -> None:
    """Of 16 windows one has its t in each sixteenth of [0.1, 1], uniform within it; of the last 5 one in each fifth."""
    network = Watched()
    model = unnoise.Model.build("mdlm", Text8(), length=4, network=network)
    x = torch.zeros(16 * 40 + 5, 4, dtype=torch.long)
    published_nats(model, PublishedLoss(start=0.1), x, torch.ones_like(x, dtype=torch.bool))
    v = (torch.cat(network.times).double() - 0.1) / 0.9
    assert len(v) == len(x)
    for part in v.split(16):
        assert (part * len(part)).floor().long().sort().values.tolist() == list(range(len(part)))
    inside = v[:640] * 16 % 1
    counts = torch.histc(inside, 8, 0, 1)
    assert float(((counts - 80) ** 2 / 80).sum()) < 30  # χ² of 7 degrees of freedom, p = 1e-4


def test_a_block_has_one_time() -> None:
    model = small("bd3lm:block=4", length=12)
    assert isinstance(model.bound, BlockElbo)
    x = torch.zeros(500, 12, dtype=torch.long)
    t = _block_times(model.bound, 0.2, 0.8, x, RowGenerator(0, torch.arange(500)))
    blocks = t.unflatten(1, (3, 4))
    assert (
        torch.equal(blocks, blocks[..., :1].expand(-1, -1, 4)) and 0.2 <= float(t.min()) < 0.21 and 0.79 < float(t.max()) < 0.8
    )
    assert abs(float(torch.corrcoef(blocks[..., 0].T)[0, 1])) < 0.15 and float(t.mean()) == pytest.approx(0.5, abs=0.02)


def test_one_of_the_free_positions_each_alike() -> None:
    free = torch.tensor([False, True, True, False, True]).expand(6000, 5)
    chosen = _one_of(free, RowGenerator(1, torch.arange(6000)))
    assert (chosen.sum(1) == 1).all() and not (chosen & ~free).any()
    assert torch.allclose(chosen.double().mean(0), torch.tensor([0, 1, 1, 0, 1]).double() / 3, atol=0.025)


def exact_figures(toy: Toy, model: unnoise.Model, start: float, schedule: Any = None) -> tuple[float, float]:
    """E_{t ~ U[start, 1]} of the integrand and ∫_0^start of it, by quadrature over t and enumeration over texts and noise."""
    bound = model.bound if schedule is None else unnoise.Elbo(unnoise.Masked(toy.vocab, schedule))
    assert isinstance(bound, unnoise.Elbo)
    u, w = quadrature(20)

    def mean(low: float, high: float) -> float:
        times = low + (high - low) * u
        return sum(
            float(weight * expected(toy, bound.process, float(t), lambda x, x_t, s: bound.at(model.denoiser, x, x_t, s)))
            for t, weight in zip(times, w, strict=True)
        )

    return mean(start, 1 - 1e-6), start * mean(1e-9, start)


@torch.no_grad()
@pytest.mark.parametrize("method", ["mdlm", "md4", "sedd-absorb:schedule=geometric", "udlm"])
def test_what_lies_near_the_text(method: str) -> None:
    """Use an inexact network, with its own schedule if it conditions on t: below `start` exactly one mask counts."""
    toy = Toy(3, 3)
    inputs = 3 if method == "udlm" else 4
    codec = Characters("abc")
    model = unnoise.Model.build(method, codec, length=3, network=ToyNetwork(toy, 0.3, inputs))
    loss = PublishedLoss(start=0.2, schedule=Linear)
    published, first = exact_figures(toy, model, 0.2, Linear() if method == "mdlm" else None)
    counts = (toy.p * 3000).round().long()
    x = toy.x.repeat_interleave(counts, 0)
    free = torch.ones_like(x, dtype=torch.bool)
    once = published_nats(model, loss, x, free).all
    assert float(once.mean()) == pytest.approx(published, abs=4 * float(once.std()) / len(x) ** 0.5 + 0.005)
    near = {part.name: part for part in differences(model, loss, 1.0, x, free, draws=8)}["near the text"]
    assert near.nats / len(x) == pytest.approx(first, abs=5 * near.stderr / len(x) + 0.002 * first), (near.nats / len(x), first)
    assert near.stderr / len(x) < 0.05 * first


def block_truth(model: unnoise.Model, x: Tensor, start: float) -> tuple[float, float]:
    """E_{t ~ U[start, 1]} Σ_sets t^{k−1}(1 − t)^{m−k} nats(set) for one block, and ∫_0^start, at the free positions 1, 2, …."""
    m = x.shape[1] - 1
    bound = model.bound
    assert isinstance(bound, BlockElbo)
    u, w = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(12))
    sums = [0.0, 0.0]
    for number in range(1, 2**m):
        hidden = torch.tensor([[False] + [bool(number >> i & 1) for i in range(m)]])
        ones = torch.ones(x.shape, dtype=torch.float64)
        nats, k = float(bound.at(model.denoiser, x, hidden, ones, ones)), int(hidden.sum())
        for place, (low, high) in enumerate(((start, 1.0), (0.0, start))):
            t = low + (high - low) * (u + 1) / 2
            share = float((w / 2 * t ** (k - 1) * (1 - t) ** (m - k)).sum())
            sums[place] += nats * share * (high - low if place else 1)
    return sums[0], sums[1]


@torch.no_grad()
def test_a_block_model_with_a_given_token() -> None:
    model = small("bd3lm:block=4", length=4)
    x = torch.tensor([[3, 1, 4, 1]])
    published, first = block_truth(model, x, 0.25)
    copies = x.expand(4000, -1)
    free = torch.tensor([[False, True, True, True]]).expand(4000, -1)
    loss = PublishedLoss(start=0.25)
    once = published_nats(model, loss, copies, free).all
    assert float(once.mean()) == pytest.approx(published, abs=4 * float(once.std()) / 4000**0.5)
    found = {part.name: part for part in differences(model, loss, published * 4000, copies, free, draws=4)}
    assert found["the factor"].nats == pytest.approx(-0.25 * published * 4000)
    near = found["near the text"]
    assert (
        near.nats / 4000 == pytest.approx(first, abs=5 * near.stderr / 4000 + 0.01 * first) and near.stderr < 0.05 * near.nats
    )


@torch.no_grad()
def test_reconstruction_is_paid_at_random_and_could_be_had_cheaper() -> None:
    """MD4's figure has L·(1 − α(0))·log K; the bound has E Σ −log μ at the masks of t = 0, with its own schedule."""
    toy = Toy(3, 3)
    model = unnoise.Model.build("md4:offset=0.1", Characters("abc"), length=3, network=ToyNetwork(toy, 0.2, 4))
    loss = PROTOCOLS["md4"].loss
    assert loss is not None and loss.start == 0 and loss.reconstruction
    objective = loss.objective(model)
    assert objective.process is model.process and PublishedLoss().objective(toy_model(toy)).process is not model.process
    counts = (toy.p * 3000).round().long()
    x = toy.x.repeat_interleave(counts, 0)
    free = torch.ones_like(x, dtype=torch.bool)
    free[:, 0] = False
    plain = published_nats(model, replace(loss, reconstruction=False), x, free).all
    whole = published_nats(model, loss, x, free).all
    assert torch.allclose(whole - plain, torch.full_like(plain, 2 * 0.1 * math.log(3)))
    free[:, 0] = True
    found = {part.name: part for part in differences(model, loss, 1.0, x, free, draws=8)}
    assert "the factor" not in found and "near the text" not in found
    texts, noised, weight = pairs(toy, model.process, 1e-9)
    log_p = model.denoiser(noised, torch.full((len(noised),), 1e-9)).log_probs
    exact = float((weight * (-log_p.gather(-1, texts[..., None])[..., 0] * (noised == 3)).sum(1)).sum())
    part = found["reconstruction"]
    assert part.nats / len(x) == pytest.approx(exact - 0.3 * math.log(3), abs=5 * part.stderr / len(x) + 0.002)
    late = found["at pure noise"]
    every = -toy.p @ model.denoiser(torch.full_like(toy.x, 3), torch.ones(len(toy.x))).log_probs.gather(
        -1, toy.x[..., None]
    ).sum((1, 2))
    assert late.nats / len(x) == pytest.approx(0.1 * float(every), rel=0.02)


def test_the_error_of_a_measured_part() -> None:
    x = torch.zeros(50, 2, dtype=torch.long)
    found = _measured(lambda v, rows, generator: v * 3, x, name="part", description="", draws=5, seed=9)
    sums = []
    for i in range(5):
        key = seed_of(9, 977, i)
        sums.append(3 * float(RowGenerator(key, torch.arange(50)).uniform((50,)).sum()))
    assert found.nats == pytest.approx(statistics.fmean(sums))
    assert found.stderr == pytest.approx(statistics.stdev(sums) / math.sqrt(5))


# ---- quality and variety -----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_point_of_the_frontier_by_hand() -> None:
    texts = ["the cat sat on the mat", "a a a", "the dog and the cat and the dog"]
    judge = small("ar", Bpe.train([TEXT], 290), 12)
    model = small("mdlm", Text8(), 12)
    found = measure_texts(texts, model, LikelihoodJudge(judge), sampler="by hand", temperature=0.5)
    nats = [judge.score(text).nats for text in texts]
    tokens = [len(judge.codec.encode(text)) for text in texts]
    perplexity = math.exp(sum(nats) / sum(tokens))
    assert found.perplexity == pytest.approx(perplexity)
    assert found.bits_per_char == pytest.approx(sum(nats) / math.log(2) / sum(map(len, texts)))
    ratio = sum(nats) / sum(tokens)  # by the delta method: var of the mean of (n − r·k), over the mean k squared
    left = [n - ratio * k for n, k in zip(nats, tokens, strict=True)]
    error = statistics.stdev(left) / math.sqrt(3) / statistics.fmean(tokens)
    assert found.perplexity_stderr == pytest.approx(perplexity * error)
    entropies = []
    for text in texts:
        share = [text.count(letter) / len(text) for letter in set(text)]
        entropies.append(-sum(p * math.log(p) for p in share))
    assert found.entropy == pytest.approx(statistics.fmean(entropies))
    assert found.entropy_stderr == pytest.approx(statistics.stdev(entropies) / math.sqrt(3))
    assert found.distinct_1 == 8 / 17 and found.distinct_2 == 10 / 14 and found.distinct_3 == 1


def test_nothing_that_a_model_recommends_shapes_what_is_compared() -> None:
    model, judge = small("mdlm", length=12), LikelihoodJudge(small("ar", length=12))
    model.sampling = {"temperature": 0.1, "top_p": 0.3}
    plain = small("mdlm", length=12)
    assert model.generate(3, steps=6, sampler="ancestral") != plain.generate(3, steps=6, sampler="ancestral")
    options = FrontierOptions(samplers=("ancestral",), calls=(6,), temperatures=(1.0,), steps=6, num_samples=3)
    for measure in (qualities, frontier):
        assert list(measure(model, judge, options)) == list(measure(plain, judge, options))


def test_a_judge_of_another_alphabet_is_refused() -> None:
    judge = LikelihoodJudge(small("ar"))
    with pytest.raises(ValueError, match="the alphabet of the judge differs"):
        measure_texts(["The Cat!"], judge.model, judge)
    with pytest.raises(ValueError, match="the alphabet of the judge differs"):
        judge.judged("The Cat!")


def test_perplexity_is_two_to_the_bits() -> None:
    found = TextMeasures("x", 1.0, 1, 20.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert found.char_perplexity == 8


# ---- MAUVE -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_features_of_a_long_text_are_those_of_all_that_is_read() -> None:
    judge = small("ar", length=8)
    tokens = torch.from_numpy(judge.codec.encode("a dog ran around"))
    found = torch.from_numpy(features(judge, ["a dog ran around", "a dog r"]))
    after = torch.cat([torch.tensor([27]), tokens[:7]])[None]  # the start and seven tokens are the eight that it reads
    assert torch.allclose(judge.network.head(found[0]), judge.network(after)[0, -1], atol=1e-5)
    assert torch.equal(found[0], found[1])


def test_mauve_is_of_as_many_written_as_real_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def compute_mauve(**options: Any) -> types.SimpleNamespace:
        given.update(options)
        return types.SimpleNamespace(mauve=0.5)

    monkeypatch.setitem(sys.modules, "mauve", types.SimpleNamespace(compute_mauve=compute_mauve))
    real, written = np.arange(50.0)[:, None], -np.arange(30.0)[:, None]
    assert mauve(written, real) == 0.5
    assert np.array_equal(given["p_features"], real[:30]) and np.array_equal(given["q_features"], written)
    with pytest.raises(ValueError, match="found 19"):
        mauve(written[:19], real)


# ---- the harness -------------------------------------------------------------------------------------------------------


def test_the_end_of_a_long_prompt_is_kept() -> None:
    """Three letters of answer leave room for the last five of eight letters of prompt."""
    asked = HarnessModel(small("ar"), HarnessOptions(draws=4))
    long, short = asked.loglikelihood([("abcdefghijklm", " no"), ("ijklm", " no")])
    assert long.log_p == pytest.approx(short.log_p, abs=1e-5) and long.shortened and not short.shortened
    other = asked.loglikelihood([("abcde", " no")])[0]
    assert abs(other.log_p - long.log_p) > 1e-3
    texts = asked.generate([Continuation("abcdefghijklm", tokens=4), Continuation("jklm", tokens=4)])
    assert texts[0] == texts[1] != asked.generate([Continuation("abcd", tokens=4)])[0]


def test_requests_of_other_temperatures_are_not_mixed() -> None:
    asked = HarnessModel(small("ar", length=12), HarnessOptions(draws=4))
    prompts = [Continuation("abc", tokens=9), Continuation("abc", tokens=9, temperature=5.0)]
    surest, drawn = asked.generate(prompts)
    assert surest == asked.generate(prompts[:1])[0] and drawn != surest
    surest, drawn = reversed(asked.generate(prompts[::-1]))
    assert surest == asked.generate(prompts[:1])[0] and drawn != surest


@torch.no_grad()
def test_errors_of_whole_texts() -> None:
    for method in ("mdlm", "udlm"):
        model = small(method)
        found = HarnessModel(model, HarnessOptions(draws=64)).rolling(["abcdefghijkl"])[0]
        score = model.score("abcdefghijkl", 16, 0, error=0.0)
        assert score.stderr is not None and found.log_p == pytest.approx(-score.nats)
        assert found.stderr == pytest.approx(score.stderr * 12 * math.log(2)) and found.stderr > 0


@torch.no_grad()
def test_an_answer_has_the_noise_of_its_number() -> None:
    model = small("mdlm")
    asked = HarnessModel(model, HarnessOptions(draws=8))
    pairs_ = [("ab", "cdef"), ("abc", "def"), ("abcd", "efg")]
    found = asked.loglikelihood(pairs_)
    for number, (prompt, answer) in enumerate(pairs_):
        x = torch.from_numpy(model.codec.encode(prompt + answer))[None]
        known = (torch.arange(x.shape[1]) < len(prompt))[None]
        alone = conditional(model, x, known, draws=8, numbers=torch.tensor([number]))
        assert (found[number].log_p, found[number].stderr) == pytest.approx((-float(alone.nats), float(alone.stderr)))


@torch.no_grad()
def test_which_answers_are_known_to_be_greedy() -> None:
    """Without a check only those that one call tells exactly; for noise that is no mask none."""
    for method in ("mdlm", "udlm"):
        model = small(method)
        asked = HarnessModel(model, HarnessOptions(draws=4, check_greedy=False))
        found = asked.loglikelihood([("abcdef", letter) for letter in LETTERS])
        assert sum(one.greedy for one in found) == (method == "mdlm")
        if method == "mdlm":
            assert max(found, key=lambda one: one.log_p).greedy and sum(math.exp(one.log_p) for one in found) == pytest.approx(
                1
            )
    model = small("mdlm")
    calls: list[int] = []
    model.network.register_forward_hook(lambda *_: calls.append(1))
    x = torch.tensor([[1, 2, 3, 4, 5]])
    known = torch.tensor([[True, True, False, False, False]])
    assert not greedy_at_once(model, x, known).any() and not calls  # three tokens would take three calls
    greedy_at_once(model, x, torch.tensor([[True, True, True, True, False]]))
    assert calls


def test_what_the_harness_says_of_a_continuation() -> None:
    assert _continuation("x", {}) == Continuation("x", (), 256, 0.0)
    options = {"until": "stop", "max_gen_toks": 3, "max_tokens": 7, "temperature": 0.5}
    assert _continuation("x", options) == Continuation("x", ("stop",), 3, 0.5)
    assert _continuation("x", options | {"do_sample": False, "until": ["a", "b"]}) == Continuation("x", ("a", "b"), 3, 0.0)
    assert _continuation("x", {"max_tokens": 7}).tokens == 7


# ---- tables of several models ------------------------------------------------------------------------------------------


def test_methods_are_measured_on_the_last_split_after_runs_of_one_length(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 60)
    options = {"data": str(tmp_path / "text.txt"), "size": "nano", "length": 16, "batch": 2, "eval_windows": 2}
    runs = [RunOptions(method=name, steps=1, **options) for name in ("mdlm", "ar")]  # pyright: ignore
    found = compare(runs, tmp_path / "out", windows=4, samples=2, device="cpu")
    assert [row.figures["split"] for row in found] == ["test", "test"]
    assert [row.figures["method"] for row in found] == ["mdlm", "ar"] and all(row.report.steps == 1 for row in found)
    texts = found[1].model.texts(unnoise.corpus(str(tmp_path / "text.txt")), "test")
    assert found[1].figures["bits_per_char"] == pytest.approx(found[1].model.bits_per_char(texts, 4, 2).bits)
    with pytest.raises(ValueError, match="has steps 1, not 2"):
        compare([replace(run, steps=2) for run in runs], tmp_path / "out", windows=4, samples=2, device="cpu")


def cell(benchmark: str = "ptb") -> Cell:
    figures = Measurement(250.0, 1.0, 100).described(400) | {"exact": False, "draws": 4}
    found = {"split": "valid", "protocol": "mdlm", "windows": 4, "counted_tokens": 100, "bound": figures}
    found |= {"tokenizer": {"name": "bpe", "vocab": 9, "key": "a"}, "method": "mdlm", "benchmark": benchmark}
    return Cell("ours", benchmark, found)


def test_the_table_of_models() -> None:
    plain = markdown(ZERO_SHOT, [cell()])
    assert f"{math.exp(2.5):.2f} ± {0.01 * math.exp(2.5):.2f}" in plain
    assert f"{250 / math.log(2) / 400:.3f} ± {1 / math.log(2) / 400:.3f}" in plain
    header, row = (line.split(",") for line in as_csv([cell()]).splitlines())
    values = dict(zip(header, row, strict=True))
    assert float(values["bound"]) == pytest.approx(math.exp(2.5))
    assert float(values["bound_stderr"]) == pytest.approx(0.01 * math.exp(2.5))
    assert float(values["bound_nats_per_token"]) == pytest.approx(2.5)


def test_a_cell_is_of_its_options_and_files(tmp_path: Path) -> None:
    small("mdlm").save(tmp_path / "model")
    (tmp_path / "ptb.txt").write_text("a")
    first = _key(str(tmp_path / "model"), tmp_path / "ptb.txt", ProtocolOptions())
    assert first == _key(str(tmp_path / "model"), tmp_path / "ptb.txt", ProtocolOptions())
    for changed in (
        ProtocolOptions(seed=1),
        ProtocolOptions(windows=3),
        ProtocolOptions(draws=17),
        ProtocolOptions(protocol="sedd"),
    ):
        assert _key(str(tmp_path / "model"), tmp_path / "ptb.txt", changed) != first
    (tmp_path / "ptb.txt").write_text("ab")
    assert _key(str(tmp_path / "model"), tmp_path / "ptb.txt", ProtocolOptions()) != first


# ---- molecules ---------------------------------------------------------------------------------------------------------


def test_unique_molecules_are_counted_among_the_first_thousand() -> None:
    pytest.importorskip("rdkit", reason="the molecules extra is not installed")
    from unnoise.apps.molecules import molecule_quality

    found = molecule_quality(["CCO"] * 1000 + ["C" * n for n in range(1, 11)], {"C"})
    assert found.unique_1k == 1 / 1000 and found.unique_10k == 11 / 1010 and found.novel == 10 / 11


# ---- conditionals ------------------------------------------------------------------------------------------------------


def test_a_clamped_bound_pays_for_what_is_noised_at_its_start() -> None:
    """Uniform predictions cost log K for each free token: 1 − start of it from the integral, start from the boundary."""
    process = Masked(3, Linear())

    def undecided(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        values = torch.full((*x_t.shape, 3), -math.log(3))
        return MeanPrediction(values if where is None else values[where])

    n = 20_000
    x, free = torch.zeros(n, 5, dtype=torch.long), torch.tensor([True, False, True, True, False]).expand(n, 5)
    v = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for start in (0.0, 0.3, 0.8):
        bound = Elbo(process, start=start)
        found = random_part(bound, undecided, x, free, v, RowGenerator(0, torch.arange(n)))
        found = found + noise_end(bound, undecided, x, free)
        assert float(found.mean()) == pytest.approx(3 * math.log(3), abs=5 * float(found.std()) / math.sqrt(n))


def test_greedy_reveals_happen_at_the_time_of_the_masks_that_are_left() -> None:
    """1 − α(t) is the share of masks in the text, for a network that reads t."""
    model = unnoise.Model.build("md4", "text8", length=5, width=16, depth=1, heads=2)
    asked: list[tuple[Tensor, Tensor]] = []

    def recorded(module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        asked.append((given[0].clone(), given[1].clone()))

    model.network.register_forward_pre_hook(recorded)
    greedy(model, torch.zeros(3, 5, dtype=torch.long), torch.tensor([[False] * 5, [True] * 2 + [False] * 3, [True] * 5]))
    assert asked
    for x_t, t in asked:
        share = (x_t == model.process.mask).double().mean(1)
        assert torch.allclose(model.process.schedule.noise(t.double()), share, atol=2e-4)
