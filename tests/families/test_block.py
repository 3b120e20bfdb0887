"""Block diffusion: the bound equals the entropy for every block size, the sampler's distribution is the data's, and nobody
sees what must not be seen."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unnoise
from toy import ExactBlocks, Toy, chi_square, total_variation
from unnoise import MeanPrediction, Model, sample
from unnoise.apps.filling.search import left_to_right
from unnoise.cli.main import main
from unnoise.families.autoregressive import LeftToRight
from unnoise.families.block import BlockParameterization, Blocks, BlockSampler
from unnoise.families.block_objective import BlockCrossEntropy, BlockElbo
from unnoise.network.attention import block_visibility
from unnoise.network.transformer import Transformer
from unnoise.rng import RowGenerator
from unnoise.sampler import Ancestral, Confidence

TOYS = [Toy(3, 2), Toy(4, 3)]


def expected(objective: BlockElbo, denoiser: ExactBlocks, x: Tensor, by_time: bool) -> Tensor:
    """Compute the mean of the bound over all hidden sets of each block, drawn by a uniform count or by ∫ dt/t."""
    block, length = objective.block, x.shape[1]
    total = torch.zeros(len(x), dtype=torch.float64)
    for first in range(0, length, block):
        places = list(range(first, min(first + block, length)))
        m = len(places)
        for count in range(1, m + 1):
            for chosen in itertools.combinations(places, count):
                hidden = torch.zeros_like(x, dtype=torch.bool)
                hidden[:, list(chosen)] = True
                if by_time:  # ∫ t^{count−1} (1 − t)^{m−count} dt
                    weight = math.factorial(count - 1) * math.factorial(m - count) / math.factorial(m)
                else:
                    weight = m / count / m / math.comb(m, count)
                share = torch.full(x.shape, count / m)
                total += objective.at(denoiser, x, hidden, share, torch.full(x.shape, weight, dtype=torch.float64))
    return total


@pytest.mark.parametrize("toy", TOYS, ids=["3^2", "4^3"])
@pytest.mark.parametrize("block", [1, 2])
def test_the_bound_is_the_entropy_for_every_block_size(toy: Toy, block: int) -> None:
    if block >= toy.length:
        pytest.skip("one block is the masked bound, in test_exactness.py")
    objective = BlockElbo(Blocks(toy.vocab, block))
    assert float(toy.p @ expected(objective, ExactBlocks(toy), toy.x, False)) == pytest.approx(toy.entropy, abs=1e-9)


def test_one_block_is_the_masked_bound() -> None:
    """In expectation over counts, as over times."""
    toy = TOYS[1]
    objective = BlockElbo(Blocks(toy.vocab, 3))
    assert float(toy.p @ expected(objective, ExactBlocks(toy), toy.x, True)) == pytest.approx(toy.entropy, abs=1e-9)


@pytest.mark.parametrize("block", [1, 2])
def test_counts_and_times_have_the_same_mean_and_a_draw_is_unbiased(block: int) -> None:
    toy = TOYS[1]
    denoiser = ExactBlocks(toy, error=0.7)
    objective = BlockElbo(Blocks(toy.vocab, block))
    x = toy.x[:12]
    mean = expected(objective, denoiser, x, False)
    assert torch.allclose(mean, expected(objective, denoiser, x, True), atol=1e-9)
    draws = torch.stack([objective(denoiser, x, torch.Generator().manual_seed(i)) for i in range(150)]).double()
    error = draws.mean(1).std() / len(draws) ** 0.5
    assert abs(float(draws.mean() - mean.mean())) <= 4 * float(error) + 1e-9
    if block == 1:  # exact: no draw differs
        assert float(draws.std(0).max()) < 1e-6


def test_blocks_of_one_token_give_the_likelihood_itself() -> None:
    toy = TOYS[1]
    nats = BlockElbo(Blocks(toy.vocab, 1))(ExactBlocks(toy), toy.x)
    assert torch.allclose(nats.double(), -toy.p.log(), atol=1e-5)


@pytest.mark.parametrize("toy", TOYS, ids=["3^2", "4^3"])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_the_samplers_distribution_is_the_datas(toy: Toy, block: int) -> None:
    process = Blocks(toy.vocab, block)
    x = sample(process, ExactBlocks(toy), batch=3000, length=toy.length, sampler=BlockSampler(), seed=block)
    counts = torch.bincount(toy.index(x), minlength=len(toy.x)).double()
    expected_counts = 3000 * toy.p
    chi2 = float(((counts - expected_counts) ** 2 / expected_counts.clamp_min(1e-9)).sum())
    freedom = len(toy.x) - 1
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("block", [1, 2, 4])
def test_from_left_to_right_every_block_size_gives_the_probability_of_the_next_token(block: int) -> None:
    """log p(x^i | x^{<i}) by enumeration, from the start and from behind tokens that are given."""
    toy, process = Toy(2, 4), Blocks(2, block)
    chain = left_to_right(ExactBlocks(toy), process, toy.x, 0)
    assert torch.allclose(chain.sum(1), toy.p.log(), atol=1e-9)
    begins = torch.stack([toy.p[(toy.x[:, :1] == row[:1]).all(1)].sum() for row in toy.x])
    given = torch.cat([left_to_right(ExactBlocks(toy), process, toy.x[toy.x[:, 0] == a], 1) for a in range(2)])
    assert torch.allclose(given.sum(1), (toy.p / begins).log(), atol=1e-9)


def test_what_is_given_first_is_an_exact_condition() -> None:
    toy = TOYS[1]
    given = torch.tensor([[2, -1, -1]]).expand(3000, -1).contiguous()
    x = sample(Blocks(4, 2), ExactBlocks(toy), batch=3000, length=3, sampler=BlockSampler(), given=given)
    p = toy.p * (toy.x[:, 0] == 2)
    counts = torch.bincount(toy.index(x), minlength=len(toy.x)).double()
    seen = p > 0
    assert counts[~seen].sum() == 0
    wanted = 3000 * (p / p.sum())[seen]
    assert float(((counts[seen] - wanted) ** 2 / wanted).sum()) < 15 + 4 * 30**0.5


# ---- the network ---------------------------------------------------------------------------------------------------------


def lively(method: str, length: int = 13, **options: object) -> Model:
    """Return a model with random weights, whose predictions are not uniform."""
    model = Model.build(method, "text8", length=length, width=32, depth=3, heads=2, **options)  # pyright: ignore[reportArgumentType]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for weight in model.network.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    model.network.double()
    return model


@pytest.mark.parametrize("block", [1, 2, 4, 5])
def test_nobody_sees_what_must_not_be_seen(block: int) -> None:
    model = lively(f"bd3lm:block={block}")
    assert isinstance(model.denoiser, BlockParameterization)
    length = 12
    x, x_t = torch.randint(27, (2, 1, length))
    t = torch.full((1, length), 0.5)
    at = torch.ones(1, length, dtype=torch.bool)
    before = model.denoiser.blocks(x_t, x, t, at, block).log_probs
    moved = {"noised": torch.zeros(length, length), "clean": torch.zeros(length, length)}
    for j in range(length):
        for kind, (a, b) in {"noised": (x_t.clone(), x), "clean": (x_t, x.clone())}.items():
            changed = a if kind == "noised" else b
            changed[0, j] = (changed[0, j] + 1) % 27
            after = model.denoiser.blocks(a, b, t, at, block).log_probs
            moved[kind][:, j] = (after != before).any(1)
    own = torch.arange(length) // block
    assert torch.equal(moved["noised"].bool(), own[:, None] == own[None, :])
    assert torch.equal(moved["clean"].bool(), own[:, None] > own[None, :])


@pytest.mark.parametrize(("length", "block"), [(12, 4), (13, 4), (10, 1), (9, 3), (7, 16)])
def test_the_convolution_over_blocks_is_the_one_over_visible_neighbours(length: int, block: int) -> None:
    network = Transformer(inputs=28, outputs=27, length=16, width=32, depth=3, heads=2, attention_every=2).double()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    x = torch.randint(28, (2, 2 * length))
    mask, positions = block_visibility(length, block, x.device)
    assert torch.allclose(network(x, block=block), network(x, attention_mask=mask, positions=positions), atol=1e-12)


@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize("inner", [None, "ancestral", "confidence"])
def test_with_and_without_a_cache_the_same_tokens(block: int, inner: str | None) -> None:
    model = lively(f"bd3lm:block={block}")
    options = "" if inner is None else f",inner={inner}"
    torch.set_default_dtype(torch.float64)
    try:
        one, other = (model.generate(3, sampler=f"block:cache={cache}{options}", seed=5) for cache in ("true", "false"))
        alone = model.generate(1, sampler="block", seed=5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert one == other
    assert inner is not None or alone == one[:1]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize("start", [0, 4, 7])
def test_from_left_to_right_with_and_without_a_cache(block: int, start: int) -> None:
    """Rows of unequal length that begin alike; without a cache all blocks are read at once."""
    model = lively(f"bd3lm:block={block}")
    assert isinstance(model.denoiser, BlockParameterization) and isinstance(model.process, Blocks)
    x = torch.randint(27, (3, 13))
    x[:, :start] = x[0, :start]
    x[1, 9:] = x[2, 11:] = -1
    fast = left_to_right(model.denoiser, model.process, x, start)

    class Uncached:
        blocks = staticmethod(model.denoiser.blocks)

    assert torch.allclose(fast, left_to_right(Uncached(), model.process, x, start), atol=1e-10)
    assert fast.shape == (3, 13 - start) and not fast[1, 9 - start :].any() and bool((fast[0] < 0).all())


def test_one_block_is_mdlm_to_the_digit() -> None:
    texts = ["the cat sat on the mat and sang", "a dog sat in the sun and slept on"] * 20
    made = []
    for method in ("mdlm", "bd3lm:block=16"):
        model = Model.build(method, "text8", length=16, size="nano")
        report = unnoise.train(model, texts, steps=4, loss="fast")
        paper = unnoise.train(model, texts, steps=2, loss="paper")
        made.append(
            (report.bits, paper.bits, model.nats(torch.randint(27, (4, 16), generator=torch.Generator().manual_seed(0))))
        )
    assert made[0][:2] == made[1][:2]
    assert torch.equal(made[0][2], made[1][2])


# ---- texts that end ------------------------------------------------------------------------------------------------------


def test_padding_costs_nothing_and_the_end_fills_its_block() -> None:
    model = Model.build("bd3lm:block=4", unnoise.codec("text8", end=True), length=16, size="nano", whole_texts=True)
    torch.nn.init.normal_(model.network.head.weight)
    end = model.codec.eos
    long = torch.tensor([[1, 2, 3, 4, 5, end, *[-1] * 10]])
    filled = torch.tensor([[1, 2, 3, 4, 5, end, end, end]])

    def nats(x: Tensor) -> Tensor:
        return torch.stack(
            [model.bound(model.denoiser, x, RowGenerator(seed, torch.tensor([0]))) for seed in range(150)]
        ).detach()

    one, other, short = nats(long), nats(filled), nats(long[:, :6])
    error = float(other.std() / 150**0.5)
    assert abs(float(one.mean() - other.mean())) < 6 * error  # the same text, drawn in other tensors
    assert abs(float(short.mean() - other.mean())) < 6 * error
    assert model.score("abcdefg").characters == 7  # a text that does not end has a shorter last block
    with pytest.raises(ValueError, match="must end with the codec's end token"):
        model.bound(model.denoiser, torch.tensor([[1, 2, 3, 4, 5, -1, -1, -1]]))


def test_a_text_that_has_ended_is_not_written_on() -> None:
    model = Model.build("bd3lm:block=4", unnoise.codec("text8", end=True), length=32, size="nano", whole_texts=True)
    with torch.no_grad():
        model.network.head.bias[model.codec.eos] = 2.0
    steps = list(model.chain(seed=3))
    last = steps[-1].ids
    end = last.index(model.codec.eos)
    assert end < 28 and set(last[end:]) == {model.codec.eos} and steps[-1].t == 0
    read = []
    hook = model.network.register_forward_pre_hook(lambda _, given: read.append(given[0].shape))
    texts = model.generate(6, seed=3)
    hook.remove()
    assert texts[0] == model.codec.decode(last) and len({len(text) for text in texts}) > 1
    assert {shape[1] for shape in read} == {4} and read[-1][0] < 6  # blocks alone, and at last not of all texts


def test_few_tokens_of_whole_texts_are_hidden_in_spans() -> None:
    """Every token as often as another, those of a span together, and the loss of a network that knows nothing L·log K."""
    objective = BlockCrossEntropy(Blocks(5, 2, whole_text=True), whole=1.0, hidden=0.4, span=3)
    generator = RowGenerator(0, torch.arange(4000))
    order = objective.hiding_order(torch.Size((4000, 12)), torch.device("cpu"), generator)
    share = (order < 0.3).double().mean(0)
    assert (share - 0.3).abs().max() < 5 * math.sqrt(0.3 * 0.7 / 4000)
    together = (order[:, 1:] == order[:, :-1]).double().mean()  # spans of 1, 2 and 3: 0, 1/2 and 2/3 of the neighbours
    assert abs(float(together) - (0 + 1 / 2 + 2 / 3) / 3) < 0.02

    def undecided(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor) -> MeanPrediction:
        assert float((x_t == 5).double().mean()) < 0.3
        return MeanPrediction(torch.full((int(where.sum()), 5), -math.log(5)))

    nats = objective(undecided, torch.randint(5, (4000, 12)), RowGenerator(1, torch.arange(4000)))
    assert abs(float(nats.mean()) - 12 * math.log(5)) < 0.3


def test_parts_of_texts_begin_anywhere() -> None:
    objective = BlockCrossEntropy(Blocks(100, 2, whole_text=True), whole=1.0)
    lengths = torch.tensor([1, 5, 40] * 200)
    x = torch.arange(40).expand(600, 40).masked_fill(torch.arange(40) >= lengths[:, None], -1)
    starts, widths = set(), set()
    for seed in range(20):
        parts = objective.fragments(x, lengths, RowGenerator(seed, torch.arange(600)))
        there = parts != -1
        assert bool(there[:, 0].all()) and bool((there.sum(1) <= lengths).all())
        follows = parts[:, 1:] == parts[:, :-1] + 1
        assert bool((follows | ~there[:, 1:]).all()) and bool((parts < lengths[:, None]).all())
        starts |= set(parts[2::3, 0].tolist())
        widths.add(int(there[2].sum()))
        assert parts.shape[1] == int(there.sum(1).max())
    assert max(starts) >= 30 and min(starts) == 0 and min(widths) < 12 and max(widths) > 30


def test_growing_blocks_and_whole_texts_in_training() -> None:
    model = Model.build("bd3lm:block=8,first=1,whole=0.5", "text8", length=32, size="nano")
    objective = model.method.fast_objective(model.process)  # pyright: ignore[reportOptionalCall]
    assert isinstance(objective, BlockCrossEntropy)
    sizes = []
    for progress in (0.0, 0.13, 0.3, 0.4, 0.9):
        objective.set_progress(progress)
        sizes.append(objective.block)
    assert sizes == [1, 2, 4, 8, 8]
    assert unnoise.train(model, ["the cat sat on the mat and sang"] * 40, steps=6, loss="fast").bits < 4.8
    template = model.template("the c[MASK]t sat on the m[MASK]t")
    assert model.fills_exactly(template)
    assert model.infill("the c[MASK]t sat on the m[MASK]t")[0].startswith("the c")
    plain = Model.build("bd3lm:block=8", "text8", length=32, size="nano")
    assert not plain.fills_exactly(plain.template("the c[MASK]t sat on the mat"))
    assert plain.fills_exactly(plain.template("the cat sat[MASK]"))
    assert plain.fills_exactly(plain.template("the [MASK]at"))


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="block of a block diffusion must be a whole number"):
        Blocks(3, 0)
    with pytest.raises(ValueError, match="share of the batches"):
        BlockCrossEntropy(Blocks(3, 2), whole=2.0)
    with pytest.raises(ValueError, match="hidden is a share of the tokens"):
        BlockCrossEntropy(Blocks(3, 2), whole=0.5, hidden=0.0)
    with pytest.raises(ValueError, match="span must be a whole number"):
        BlockCrossEntropy(Blocks(3, 2), whole=0.5, span=0)
    with pytest.raises(ValueError, match="block size from 1 to 2"):
        BlockCrossEntropy(Blocks(3, 2), first=4)
    with pytest.raises(ValueError, match="needs a denoiser with `blocks`"):
        BlockElbo(Blocks(3, 1))(lambda x, t, where=None: None, torch.zeros(1, 4, dtype=torch.long))  # pyright: ignore
    with pytest.raises(ValueError, match="sampler of masked diffusion, found LeftToRight"):
        BlockSampler(inner=LeftToRight())
    with pytest.raises(ValueError, match="steps must be"):
        BlockSampler(steps=0)
    model = Model.build("bd3lm", "text8", length=16, size="nano")
    with pytest.raises(ValueError, match="use one of block"):
        model.generate(sampler="ancestral")
    assert BlockSampler().keeps_distribution and not BlockSampler(inner=Confidence()).keeps_distribution
    assert BlockSampler(inner=Ancestral()).of_block(4, 2) == Ancestral(2)


def test_fewer_calls_than_tokens_keep_the_distribution_as_steps_grow_only() -> None:
    """One call for a block of two samples the product of its marginals: enumeration gives the distance to the data."""
    toy = Toy(3, 2)
    product = torch.ones(len(toy.x), dtype=torch.float64)
    for i in range(2):
        product *= toy.marginals(toy.p[None], i)[0][toy.x[:, i]]
    for steps, law in ((1, product), (2, toy.p)):
        drawn = sample(Blocks(3, 2), ExactBlocks(toy), batch=20_000, length=2, sampler=BlockSampler(steps=steps), seed=1)
        assert chi_square(torch.bincount(toy.index(drawn), minlength=9), law) > 1e-4
    assert total_variation(product, toy.p) > 0.08
    assert BlockSampler().distribution == "keeps the model's distribution exactly"
    assert "as steps grow with fewer" in BlockSampler(steps=1).distribution
    assert BlockSampler(steps=1, inner=Confidence()).distribution == Confidence().distribution


# ---- streaming -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ar", "bd3lm:block=4", "mdlm"])
def test_a_stream_is_the_text_piece_by_piece(method: str) -> None:
    model = Model.build(method, "text8", length=24, size="nano")
    torch.nn.init.normal_(model.network.head.weight, std=0.2)
    pieces = list(model.stream("the cat", row=1, seed=4, steps=24))
    assert "".join(pieces) == model.complete("the cat", n=2, seed=4, steps=24)[1]
    assert len(pieces) == {"ar": 17, "bd3lm:block=4": 5, "mdlm": 1}[method]
    assert "".join(model.stream(length=8, seed=4)) == model.generate(1, length=8, seed=4)[0]


def test_the_command_line_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model.build("bd3lm:block=4", unnoise.codec("text8", end=True), length=16, size="nano")
    model.save(tmp_path)
    words = ["--model", str(tmp_path), "--num-samples", "1", "--seed", "3"]
    texts = []
    for line in (["complete", "--prefix", "the c", *words], ["generate", *words]):
        assert main(line) == 0
        whole = capsys.readouterr().out
        assert main([*line, "--stream"]) == 0
        assert capsys.readouterr().out == whole
        texts.append(whole)
    assert texts[0].startswith("the c") and texts[1].strip()
    assert main(["generate", *words, "--stream", "--json"]) == 2
    assert "--stream prints texts while they are generated" in capsys.readouterr().err
    assert main(["complete", "--prefix", "a", "--suffix", "b", *words, "--stream"]) == 2
