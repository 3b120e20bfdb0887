"""Single parts of block diffusion, any order, Gaussian noise, Bayesian flow and insertion, against plain numbers."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import unnoise
from toy import ExactBlocks, Random, Toy, chi_square
from unnoise import AnyOrder, BayesianFlow, FlowSampler, Insertion, InsertionElbo, Linear, Masked, MeanPrediction, sample
from unnoise.families.block import BlockParameterization, Blocks, BlockSampler
from unnoise.families.block_objective import BlockCrossEntropy, BlockElbo, BlockImportanceWeighted
from unnoise.families.gaussian import GaussianNoise
from unnoise.families.insertion import InsertionPrediction, Partial
from unnoise.families.insertion_sampler import OpenGaps
from unnoise.objective import ImportanceWeighted
from unnoise.process.state import OPEN_GAP, PAD
from unnoise.rng import RowGenerator
from unnoise.sampler.sampling import sample_frames

pytestmark = pytest.mark.usefixtures("double")

CPU = torch.device("cpu")


class Asked:
    """Undecided about K tokens; keeps the texts and times that it was asked about."""

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.asked: list[tuple[Tensor, Tensor]] = []

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        self.asked.append((x_t, t))
        values = torch.full((*x_t.shape, self.vocab), -math.log(self.vocab))
        return MeanPrediction(values if where is None else values[where])

    def blocks(self, x_t: Tensor, x: Tensor, t: Tensor, where: Tensor, block: int) -> MeanPrediction:
        return self(x_t, t, where)


# ---- orders of reveals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [AnyOrder, lambda process: ImportanceWeighted(process, 2)])
def test_the_time_of_a_text_is_its_share_of_masks(make) -> None:
    """α(t) = 1 − t of the linear schedule: k of L positions are hidden at t = k/L."""
    denoiser = Asked(3)
    make(Masked(3, Linear()))(denoiser, torch.zeros(6, 5, dtype=torch.long), torch.Generator().manual_seed(0))
    for x_t, t in denoiser.asked:
        assert torch.allclose(t, (x_t == 3).double().mean(1), atol=1e-5)
    assert len({float(t) for _, times in denoiser.asked for t in times}) == 5


@pytest.mark.parametrize("orders", [1, 2, 3])
def test_each_block_averages_over_its_own_orders(orders: int) -> None:
    """Σ_blocks −log (1/M) Σ_m w_{k,m}, w of each block and order multiplied together token by token."""
    toy = Toy(3, 4)
    process, denoiser = Blocks(3, 2), ExactBlocks(toy, error=1.0)
    bound = BlockImportanceWeighted(process, orders)
    ranks = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]])[:orders, None].expand(-1, len(toy.x), -1)
    found = bound.at(denoiser, toy.x, ranks)
    wanted = torch.zeros(len(toy.x))
    for first in (0, 2):
        weights = []
        for rank in ranks:
            log_w = torch.zeros(len(toy.x))
            for k in (0, 1):
                hidden = rank >= k
                where = (rank == k) & (torch.arange(4) // 2 == first // 2)
                values = denoiser.blocks(toy.x.masked_fill(hidden, 3), toy.x, torch.zeros(toy.x.shape), where, 2).log_probs
                log_w += values.gather(1, toy.x[where][:, None])[:, 0]
            weights.append(log_w)
        wanted -= torch.stack(weights).logsumexp(0) - math.log(orders)
    assert torch.allclose(found, wanted, atol=1e-9)


def test_orders_of_what_is_no_text_have_no_weight() -> None:
    """Rows of unequal length together: each as it is alone, whatever lies behind its last block."""
    process = Blocks(3, 2)
    process.end = 2
    denoiser = Asked(3)
    x = torch.tensor([[0, 1, 0, 1, 0, 2], [1, 2, PAD, PAD, PAD, PAD], [0, 1, 2, PAD, PAD, PAD]])
    found = BlockImportanceWeighted(process, 2)(denoiser, x, torch.Generator().manual_seed(0))
    assert torch.allclose(found, torch.tensor([6.0, 2.0, 4.0]) * math.log(3), atol=1e-9)


# ---- block diffusion ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [4, 5, 7])
def test_the_share_that_is_hidden_is_of_the_tokens_that_a_block_has(length: int) -> None:
    """With blocks of three: the last has length mod 3 tokens, of which each number is hidden equally often."""
    objective = BlockElbo(Blocks(5, 3))
    there = torch.ones(6000, length, dtype=torch.bool)
    hidden, share = objective.hide(there, torch.Generator().manual_seed(0))
    for first in range(0, length, 3):
        last = min(first + 3, length)
        counted = hidden[:, first:last].sum(1)
        assert torch.allclose(share[:, first], counted / (last - first), atol=1e-12)
        assert torch.allclose(torch.bincount(counted)[1:] / 6000, torch.full((last - first,), 1 / (last - first)), atol=0.01)


@pytest.mark.parametrize(("block", "length"), [(1, 4), (3, 9), (4, 10)])
def test_an_undecided_network_costs_log_k_a_token_with_equal_weights_too(block: int, length: int) -> None:
    objective = BlockCrossEntropy(Blocks(5, block))
    x = torch.zeros(6000, length, dtype=torch.long)
    nats = objective(Asked(5), x, torch.Generator().manual_seed(0))
    assert float(nats.mean()) == pytest.approx(length * math.log(5), rel=5e-3)


def test_a_span_has_each_length_as_often() -> None:
    """Spans of 1, 2 and 3 tokens, a length for each text, begun anywhere."""
    objective = BlockCrossEntropy(Blocks(5, 2, whole_text=True), whole=1.0, span=3)
    order = objective.hiding_order(torch.Size((9000, 30)), CPU, RowGenerator(0, torch.arange(9000)))
    longest = torch.tensor([max(len(list(run)) for _, run in itertools.groupby(row)) for row in order.tolist()])
    assert chi_square(torch.bincount(longest, minlength=4)[1:], torch.full((3,), 1 / 3)) > 1e-4
    begins = (order[longest == 3][:, :1] == order[longest == 3][:, 1:3]).sum(1)  # of the first span 1, 2 or 3 are there
    assert chi_square(torch.bincount(begins, minlength=3), torch.full((3,), 1 / 3)) > 1e-4


def test_a_part_of_a_text_ends_at_its_end_as_often_as_anywhere() -> None:
    objective = BlockCrossEntropy(Blocks(90, 2, whole_text=True), whole=1.0)
    x = torch.arange(8).repeat(40_000, 1)
    for seed in range(8):
        found = objective.fragments(x, torch.full((len(x),), 8), RowGenerator(seed, torch.arange(len(x))))
        places = 8 - found.shape[1] + 1
        if places == 1:
            continue
        assert chi_square(torch.bincount(found[:, 0], minlength=places), torch.full((places,), 1 / places)) > 1e-4


class Recorder(nn.Module):
    """Outputs of zeros; keeps the times that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"outputs": 3}
        self.times: list[Tensor] = []

    def forward(
        self,
        x: Tensor,
        t: Tensor | None = None,
        where: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        assert t is not None and attention_mask is not None and positions is not None
        self.times.append(t)
        return torch.zeros(*x.shape, 3)


def test_clean_blocks_are_read_at_time_zero() -> None:
    network = Recorder()
    denoiser = BlockParameterization(network, Blocks(3, 2), 4)
    x = torch.zeros(2, 4, dtype=torch.long)
    t = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
    denoiser.blocks(torch.full_like(x, 3), x, t, torch.ones_like(x, dtype=torch.bool), 2)
    assert torch.equal(network.times[0], torch.cat([t, torch.zeros(2, 4)], 1))


def test_calls_are_shared_out_over_the_blocks_that_are_written() -> None:
    """Two of four blocks are given, so each of the others has two of four calls."""
    process, denoiser = Blocks(3, 4), Asked(3)
    given = torch.zeros(40, 16, dtype=torch.long)
    given[:, 8:] = -1
    x = sample(process, denoiser, batch=40, length=16, sampler=BlockSampler(4, cache=False), given=given, seed=0)
    assert not (x == 3).any() and len(denoiser.asked) == 4


def test_a_given_end_ends_nothing_and_what_is_given_stays() -> None:
    process = Blocks(3, 2)
    process.end = 2
    given = torch.tensor([[2, 1, -1, -1, -1, -1]]).expand(300, 6).contiguous()
    for cache in (True, False):
        sampler = BlockSampler(cache=cache)
        x = sample(process, Asked(3), batch=300, length=6, sampler=sampler, given=given, seed=0)
        assert (x[:, 0] == 2).all() and (x[:, 1] == 1).all()
        assert float((x[:, 2] == 2).double().mean()) == pytest.approx(1 / 3, abs=0.1)  # as drawn, whatever ends after it
        ended = (x[:, 2:] == 2).long().cummax(1).values.bool()
        assert (x[:, 2:][ended] == 2).all()


def test_the_time_of_a_text_falls_from_block_to_block() -> None:
    process = Blocks(3, 2)
    times = [frame.t for frame in sample_frames(process, Asked(3), batch=2, length=6, sampler=BlockSampler(), seed=0)]
    assert times[0] == 1 and times[-1] == 0 and times == sorted(times, reverse=True)
    assert {round(2 / 3, 9), round(1 / 3, 9)} <= {round(t, 9) for t in times}  # after the first block, and the second


def test_only_what_is_given_after_the_first_block_that_is_written_has_no_say() -> None:
    """Use blocks of three; the block of the first free position may have given tokens on both sides of it."""
    process, whole = Blocks(3, 3), Blocks(3, 3, whole_text=True)
    for known, wanted in (
        ("110 000", True),
        ("101 000", True),
        ("111 010", True),
        ("111 101 000", True),
        ("101 100", False),
        ("000 000 001", False),
        ("111 111", True),
    ):
        given = [mark == "1" for mark in known.replace(" ", "")]
        assert process.conditions_exactly(given) is wanted and whole.conditions_exactly(given)


def test_guided_blocks_are_written_as_guided_with_a_cache_too() -> None:
    model = unnoise.Model.build("bd3lm:block=2", length=6, width=16, depth=1, heads=2, labels=["a", "b"])
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    denoiser = model.denoiser.condition(1, 3.0)
    with_cache, without = (
        sample(model.process, denoiser, batch=30, length=6, sampler=BlockSampler(cache=cache), seed=0)
        for cache in (True, False)
    )
    assert torch.equal(with_cache, without)
    plain = sample(model.process, model.denoiser.condition(1), batch=30, length=6, sampler=BlockSampler(), seed=0)
    assert not torch.equal(plain, without)


# ---- numbers in place of tokens -----------------------------------------------------------------------------------------


class Line(GaussianNoise):
    """Three values on a line, of unequal size, under noise with ā(t) = 1 − t."""

    width = 1

    def table(self) -> Tensor:
        return torch.tensor([[-1.0], [0.5], [3.0]])

    def signal(self, t: Tensor) -> Tensor:
        return 1 - t

    def noise(self, t: Tensor) -> Tensor:
        return t


def test_the_likelihood_of_a_vector_counts_its_length() -> None:
    """log N(z; √ā v_k, 1 − ā) up to what does not depend on k."""
    process = Line(3)
    z, t = torch.linspace(-2, 3, 7)[None, :, None], torch.tensor([0.3])
    density = torch.distributions.Normal(math.sqrt(0.7) * process.table()[:, 0], math.sqrt(0.3))
    wanted = torch.log_softmax(density.log_prob(z), -1)
    assert torch.allclose(torch.log_softmax(process.log_likelihood(z, t), -1), wanted, atol=1e-12)
    nearest = (z - process.table()[:, 0]).abs().argmin(-1)
    assert torch.equal(process.nearest(z), nearest)


def test_steps_of_gaussian_noise_add_up() -> None:
    """Var(z_t) from s is 1 − ā_t/ā_s, and the posterior of two normal densities is their product."""
    process = Line(3)
    s, t = torch.tensor([0.2]), torch.tensor([0.6])
    kept, lost = process.step(s, t)
    assert float(kept) == pytest.approx(0.4 / 0.8) and float(lost) == pytest.approx(1 - 0.4 / 0.8)
    z, z_0 = torch.full((1, 1, 1), 0.7), torch.full((1, 1, 1), 3.0)
    mean, variance = process.posterior(z, z_0, s, t)
    precision = 1 / 0.2 + 0.5 / 0.5  # of q(z_s | z_0), and of q(z_t | z_s) as a function of z_s
    wanted = (math.sqrt(0.8) * 3.0 / 0.2 + math.sqrt(0.5) * 0.7 / 0.5) / precision
    assert float(variance) == pytest.approx(1 / precision) and float(mean) == pytest.approx(wanted)


@pytest.mark.parametrize("network_free", [False, True])
def test_the_gaussian_bound_has_three_terms(network_free: bool) -> None:
    """Check all three with much signal at t = 1; the third is KL(q(z_1|x_0) ‖ N(0, I)) = ½ Σ_d (ā v_d² − ā − log(1 − ā))."""
    process = unnoise.Gaussian(3, width=2, gamma=(-4.0, -1.0)).double()
    objective = unnoise.GaussianElbo(process, network_free)

    def lopsided(z: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        return MeanPrediction(torch.tensor([0.5, 0.3, 0.2]).log().expand(*z.shape[:2], 3))

    x = torch.tensor([[0, 1, 2, 2]]).repeat(20_000, 1)
    with torch.no_grad():
        found = objective(lopsided, x, torch.Generator().manual_seed(0)).mean()
        table, signal = process.table()[x[0]], 1 / (1 + math.exp(-1.0))  # ā(1) = sigmoid(−γ_1)
        third = 0.5 * (signal * table.square() - signal - math.log(1 - signal)).sum()
        guess = torch.tensor([0.5, 0.3, 0.2]) @ process.table()
        snr = math.exp(4.0) - math.exp(1.0)  # −∫ SNR′ dt
        first = 0.5 * snr * (table - guess).square().sum()
        second = -torch.tensor([0.5, 0.3, 0.2]).log()[x[0]].sum()
        if network_free:
            z = process.diffuse(process.table()[x], torch.zeros(len(x)), torch.Generator().manual_seed(1))
            known = torch.log_softmax(process.log_likelihood(z, torch.zeros(len(x))), -1)
            second = -known.gather(-1, x[..., None]).sum((1, 2)).mean()
    assert float(third) > 1
    assert float(found) == pytest.approx(float(first + second + third), rel=2e-2, abs=0.05)


def test_the_messages_of_a_flow_begin_with_the_least_accurate() -> None:
    """After i of n messages about token 0, log θ_0/θ_1 has the mean K·β(i/n) and the variance 2K·β(i/n)."""
    process, states = BayesianFlow(3, accuracy=4.0), []

    def certain(state: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        states.append(state)
        return MeanPrediction(torch.tensor([0.0, -torch.inf, -torch.inf]).expand(state.shape))

    sample(process, certain, batch=20_000, length=1, sampler=FlowSampler(5), seed=0)
    assert torch.equal(states[0], torch.ones(20_000, 1, 3))  # the network reads K·θ, and θ is 1/K at first
    for i, state in enumerate(states):
        beta = 4.0 * (i / 4) ** 2
        odds = (state[:, 0, 0] / state[:, 0, 1]).double().log()
        assert float(odds.mean()) == pytest.approx(3 * beta, abs=5 * math.sqrt(6 * beta / 20_000) + 1e-6)
        assert float(odds.var()) == pytest.approx(6 * beta, rel=0.05, abs=1e-6)


# ---- insertion ----------------------------------------------------------------------------------------------------------


def test_gaps_behind_the_end_of_a_text_cost_nothing() -> None:
    """Compare a short text in a batch with a longer one to the same text alone; predictions behind its end do not count."""
    objective = InsertionElbo(Insertion(2))

    def eager(x: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        return InsertionPrediction(torch.full((*x.shape, 2), -math.log(2)), torch.full((len(x), x.shape[1] + 1), 0.8))

    t = torch.tensor([0.4, 0.4])
    together = Partial(
        torch.tensor([[0, PAD, PAD], [1, 2, 0]]),
        torch.tensor([[0, PAD, PAD], [1, 1, 0]]),
        torch.tensor([[1, 0, 0, 0], [0, 2, 0, 1]]),
    )
    alone = Partial(together.x[:1, :1], together.target[:1, :1], together.gaps[:1, :2])
    both = objective.at(eager, together, t)
    assert torch.allclose(both[:1], objective.at(eager, alone, t[:1]), atol=1e-12)
    costs = [0.8 - n - n * math.log(0.8) if n else 0.8 for n in (1, 0)]
    assert float(both[0]) == pytest.approx(sum(costs) / 0.4)  # a′/(1 − a) = 1/t


def test_insertion_and_unmasking_have_rates_of_their_own() -> None:
    """h_b Σ_masks −log μ + h_a Σ_gaps φ, with h = −α′/(1 − α) = w/t of 1 − t^w."""
    objective = InsertionElbo(Insertion(2, unnoise.Polynomial(2.0), unnoise.Polynomial(3.0)))
    partial = Partial(torch.tensor([[2, 0]]), torch.tensor([[1, 0]]), torch.tensor([[0, 1, 0]]))
    gaps = torch.tensor([[0.1, 0.5, 0.2]])

    def made(x: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        return InsertionPrediction(torch.tensor([0.3, 0.7]).log().expand(*x.shape, 2), gaps)

    found = float(objective.at(made, partial, torch.tensor([0.4])))
    cost = 0.1 + (0.5 - 1 - math.log(0.5)) + 0.2
    assert found == pytest.approx(3 / 0.4 * -math.log(0.7) + 2 / 0.4 * cost)


def test_a_gap_before_the_end_of_a_template_is_open() -> None:
    """Put the mark −2 at each place of a template and check which gaps are open."""
    for place, wanted in ((0, [True, False, False]), (1, [False, True, False]), (2, [False, False, True])):
        row = [5, 6]
        row.insert(place, OPEN_GAP)
        gaps = OpenGaps(torch.tensor([row]))
        frame = gaps.first_frame(torch.tensor([row]))
        assert frame.x.tolist() == [[5, 6]]
        assert gaps.at(frame.place)[1].tolist() == [wanted]


def test_new_masks_fill_the_room_that_is_left() -> None:
    """Gaps that ask for more than there is room for fill it from the left, to the last position."""

    def greedy(x: Tensor, t: Tensor, where: Tensor | None = None) -> InsertionPrediction:
        return InsertionPrediction(torch.full((*x.shape, 2), -math.log(2)), torch.full((len(x), x.shape[1] + 1), 60.0))

    sampler = unnoise.InsertionSampler(steps=3)
    frames = list(sample_frames(Insertion(2), greedy, batch=20, length=7, sampler=sampler, seed=0))
    assert all((frame.x != PAD).sum(1).eq(7).all() for frame in frames[1:])


def test_any_order_of_a_wrong_model_is_above_its_likelihood() -> None:
    toy = Toy(3, 2)
    process = Masked(3, Linear())
    denoiser = Random(toy, process, time=0.0)
    both = torch.stack(
        [
            ImportanceWeighted(process, 1).at(denoiser, toy.x, torch.tensor([order]).repeat(9, 1)[None])
            for order in ([0, 1], [1, 0])
        ]
    )
    likelihood = -(torch.logsumexp(-both, 0) - math.log(2))
    drawn = torch.stack([AnyOrder(process)(denoiser, toy.x, torch.Generator().manual_seed(i)) for i in range(400)]).mean(0)
    assert torch.allclose(drawn, both.mean(0), atol=0.1) and (both.mean(0) >= likelihood - 1e-12).all()
