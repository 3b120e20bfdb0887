"""Metropolis–Hastings leaves the target as it is: detailed balance by enumeration, then by drawing."""

import pytest
import torch

from cases import build
from toy import Exact, Toy, chi_square, texts, total_variation
from unnoise import Ancestral, FirstHitting, Linear, Masked, MeanPrediction, Metropolis, TweedieLeaping, Uniform, sample
from unnoise.denoiser import SamplingDenoiser

TOY = Toy(3, 2, seed=0)


pytestmark = pytest.mark.usefixtures("double")


def kernel(process, denoiser, level: float, toy: Toy = TOY) -> torch.Tensor:
    """Compute the transition matrix of one move over all texts: [N, N]."""
    x = texts(toy.vocab, toy.length)
    matrix = torch.zeros(len(x), len(x))
    t = torch.full((len(x),), level)
    for i in range(toy.length):
        asked = x.clone()
        where = torch.zeros_like(x, dtype=torch.bool)
        where[:, i] = True
        if isinstance(process, Masked):
            asked[:, i] = process.mask
        prediction = denoiser(asked, t, where)
        for y in range(toy.vocab):
            token = torch.full((len(x),), y)
            accept = Metropolis.log_ratio(process, prediction, x[:, i], token, t).exp().clamp_max(1)
            proposed = x.clone()
            proposed[:, i] = y
            weight = accept / toy.length / toy.vocab
            matrix[torch.arange(len(x)), toy.index(proposed)] += weight
            matrix[torch.arange(len(x)), torch.arange(len(x))] += 1 / toy.length / toy.vocab - weight
    return matrix


@pytest.mark.parametrize(("name", "kind"), [("uniform", "score"), ("uniform", "mean"), ("banded", "score"), ("masked", "mean")])
def test_detailed_balance(name: str, kind: str) -> None:
    process = build(name, "linear", TOY.vocab)
    level = 0.3
    target = TOY.p if name == "masked" else TOY.noised(process, TOY.x, torch.full((len(TOY.x),), level))
    matrix = kernel(process, Exact(TOY, process, kind), level)
    assert torch.allclose(matrix.sum(1), torch.ones(len(matrix)))
    flow = target[:, None] * matrix
    assert torch.allclose(flow, flow.T, atol=1e-10)
    assert torch.allclose(target @ matrix, target, atol=1e-10)


def test_from_noise_it_reaches_the_target() -> None:
    process = Uniform(TOY.vocab, Linear())
    t = torch.full((len(TOY.x),), 0.05)
    exact = Exact(TOY, process, "score")
    clean = exact(TOY.x, t).clean(process, TOY.x, t[:, None].expand(TOY.x.shape)).exp()  # the last call, from each text
    last = clean[:, 0, TOY.x[:, 0]] * clean[:, 1, TOY.x[:, 1]]
    target = TOY.noised(process, TOY.x, t) @ last
    drawn = sample(process, exact, batch=8000, length=2, sampler=Metropolis(120, level=0.05), seed=1)
    assert chi_square(torch.bincount(TOY.index(drawn), minlength=9), target) > 1e-4
    assert total_variation(target, TOY.p) < 0.01  # little is left of the noise at that level


def test_it_corrects_what_another_sampler_wrote() -> None:
    """Two steps of ancestral sampling are far from the data; corrected, they are near."""
    process = Masked(TOY.vocab, Linear())
    exact = Exact(TOY, process, "mean")
    rough, corrected = (
        torch.bincount(TOY.index(sample(process, exact, batch=8000, length=2, sampler=sampler, seed=2)), minlength=9) / 8000
        for sampler in (Ancestral(1), Metropolis(60, before=Ancestral(1)))
    )
    assert total_variation(rough.double(), TOY.p) > 0.08
    assert total_variation(corrected.double(), TOY.p) < 0.03


def test_a_text_that_no_single_change_leaves_stays() -> None:
    """With x_3 = x_1 + x_2 mod 3 the target is kept, but from one text no other is reached; noise builds bridges."""
    toy = Toy(3, 3)
    toy.p = torch.where(toy.x[:, 2] == toy.x[:, :2].sum(1) % 3, 1 / 9, 0.0)
    process = Masked(3, Linear())
    exact = Exact(toy, process, "mean")
    written = toy.x[toy.p > 0]
    calls = SamplingDenoiser(process, process, exact, length=3)
    moved = written.repeat(50, 1)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        moved = Metropolis(1).move(calls, moved, torch.ones_like(moved, dtype=torch.bool), torch.ones(len(moved)), generator)
    assert torch.equal(moved, written.repeat(50, 1))
    noisy = Uniform(3, Linear())
    matrix = kernel(noisy, Exact(toy, noisy, "score"), 0.3, toy)
    assert (torch.linalg.matrix_power(matrix, 100) > 0).all()


def test_a_free_position_is_chosen_uniformly() -> None:
    """If every proposal is accepted, each free position changes with probability (1/n)·(K − 1)/K."""
    process = Masked(4, Linear())

    def undecided(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> MeanPrediction:
        return MeanPrediction.from_logits(torch.zeros(*x_t.shape, 4))

    x = torch.zeros(30_000, 5, dtype=torch.long)
    free = torch.tensor([True, True, False, True, True]).expand(x.shape)
    calls = SamplingDenoiser(process, process, undecided, length=5)
    moved = Metropolis(1).move(calls, x, free, torch.full((len(x),), 0.02), torch.Generator().manual_seed(0))
    changed = (moved != x).sum(0)
    assert changed[2] == 0 and int((moved != x).sum(1).max()) == 1
    counts = torch.cat([changed[[0, 1, 3, 4]], len(x) - changed.sum()[None]])
    assert chi_square(counts, torch.tensor([3 / 16] * 4 + [1 / 4])) > 1e-4


def test_given_positions_stay() -> None:
    known = torch.tensor([[1, -1]]).expand(50, 2).contiguous()
    for process, kind, before in (
        (Masked(3, Linear()), "mean", FirstHitting()),
        (Uniform(3, Linear()), "score", TweedieLeaping(4)),
        (Uniform(3, Linear()), "mean", None),
    ):
        sampler = Metropolis(10, before=before)
        drawn = sample(process, Exact(TOY, process, kind), batch=50, length=2, sampler=sampler, given=known)
        assert (drawn[:, 0] == 1).all()


def test_mistakes() -> None:
    for make, words in (
        (lambda: Metropolis(0), "steps must be a whole number"),
        (lambda: Metropolis(5, level=0.0), "level must lie between 0 and 1"),
        (
            lambda: sample(Masked(3, Linear()), None, batch=1, length=1, sampler=Metropolis(3)),
            "the sampler that writes it as `before`",
        ),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ValueError, match=words):
            make()
