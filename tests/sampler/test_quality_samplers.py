"""Samplers for quality: confidence order, entropy bound, remasking, predictor–corrector; their laws and orders, on toys."""

import itertools
import math

import pytest
import torch

from cases import build
from toy import Exact, Random, Toy, chi_square, sampler_law, texts, total_variation
from unnoise import (
    Confidence,
    Cosine,
    EntropyBounded,
    Linear,
    Masked,
    MeanPrediction,
    PerToken,
    PredictorCorrector,
    Process,
    Remasking,
    Sampler,
    Uniform,
    sample,
    sample_frames,
)
from unnoise.sampler.ancestral import Psi
from unnoise.sampler.unmasking import certainty, entropy, surest

TOY = Toy(4, 3, seed=1)
DRAWS = 20_000

pytestmark = pytest.mark.usefixtures("double")


def counts(x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(TOY.index(x), minlength=len(TOY.x))


@pytest.mark.parametrize(
    "sampler",
    [
        Confidence(3),
        Confidence(3, by="margin"),
        Confidence(3, by="entropy"),
        EntropyBounded(3, budget=0.0),
    ],
)
def test_one_token_at_a_time_keeps_an_exact_law_whatever_the_order(sampler: Sampler) -> None:
    made = Masked(4, Linear())
    drawn = sample(made, Exact(TOY, made, "mean"), batch=DRAWS, length=3, sampler=sampler, seed=0)
    assert chi_square(counts(drawn), TOY.p) > 1e-4


@pytest.mark.parametrize("sampler", [Confidence(1), EntropyBounded(1), EntropyBounded(5, budget=math.inf)])
def test_all_at_once_draws_the_product_of_the_marginals(sampler: Sampler) -> None:
    made = Masked(4, Linear())
    drawn = sample(made, Exact(TOY, made, "mean"), batch=DRAWS, length=3, sampler=sampler, seed=0)
    product = torch.ones(len(TOY.x))
    for i in range(3):
        product *= TOY.marginals(TOY.p[None], i)[0][TOY.x[:, i]]
    assert chi_square(counts(drawn), product) > 1e-4 > chi_square(counts(drawn), TOY.p)


@pytest.mark.parametrize(
    ("sampler", "first", "last"),
    [(Confidence(4), 1, 2), (Confidence(4, by="margin"), 3, 1), (Confidence(4, by="entropy"), 1, 2)],
)
def test_the_surest_come_first(sampler: Sampler, first: int, last: int) -> None:
    probs = torch.tensor([[0.4, 0.3, 0.3], [0.5, 0.495, 0.005], [0.34, 0.33, 0.33], [0.48, 0.26, 0.26]])

    def fixed(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> MeanPrediction:
        values = probs.log().expand(*x.shape, 3)
        return MeanPrediction(values if where is None else values[where])

    frames = list(sample_frames(Masked(3, Linear()), fixed, batch=5, length=4, sampler=sampler, seed=0))
    assert [int((frame.x == 3).sum(1)[0]) for frame in frames] == [4, 3, 2, 1, 0]
    assert ((frames[1].x != 3).nonzero()[:, 1] == first).all()
    assert ((frames[-2].x == 3).nonzero()[:, 1] == last).all()


def test_certainty_and_the_surest_by_hand() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.2, 0.2]])
    assert certainty(p.log(), "max").exp().tolist() == pytest.approx([0.5, 0.6])
    assert certainty(p.log(), "margin").tolist() == pytest.approx([0.0, 0.4])
    assert entropy(p.log())[0].item() == pytest.approx(math.log(2))
    where = torch.tensor([[True, True, False], [True, True, True]])
    chosen = surest(torch.tensor([0.1, 0.9, 0.5, 0.2, 0.7]), where, torch.tensor([1, 2]))
    assert chosen.tolist() == [[False, True, False], [True, False, True]]


def test_the_entropy_budget_by_hand() -> None:
    masks = torch.tensor([[True, True, True, True], [True, True, False, False]])
    uncertain = torch.tensor([0.3, 0.1, 0.2, 5.0, 1.0, 2.0])
    assert EntropyBounded(9, budget=0.0).count(uncertain, masks, 9).tolist() == [1, 1]
    assert EntropyBounded(9, budget=0.31).count(uncertain, masks, 9).tolist() == [3, 1]  # 0.1 + 0.2 ≤ 0.31
    assert EntropyBounded(9, budget=1.0).count(uncertain, masks, 9).tolist() == [4, 2]
    assert EntropyBounded(9).count(uncertain, masks, 28).tolist() == [2, 1]  # 5.6/28 = 0.2, 3/28 < 1
    assert EntropyBounded(9).count(uncertain, masks, 1).tolist() == [4, 2]


@pytest.mark.parametrize(
    "sampler", [Confidence(5), EntropyBounded(5), EntropyBounded(5, budget=0.1), Remasking(5), PredictorCorrector().with_nfe(5)]
)
def test_no_more_calls_than_steps_and_given_tokens_stay(sampler: Sampler) -> None:
    toy = Toy(3, 6, seed=2)
    made = Masked(3, Cosine())
    inner, calls = Random(toy, made), 0

    def counted(x: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None):
        nonlocal calls
        calls += 1
        return inner(x, t, where)

    given = torch.tensor([[0, -1, -1, 2, -1, -1]]).expand(7, -1).contiguous()
    *_, last = sample_frames(made, counted, batch=7, length=6, sampler=sampler, given=given, seed=1)
    assert 1 <= calls <= 5 and last.t == 0 and (last.x < 3).all()
    assert (last.x[:, 0] == 0).all() and (last.x[:, 3] == 2).all()


def remasking_law(toy: Toy, made: Masked, sampler: Remasking, denoiser) -> torch.Tensor:
    """Compute the exact law of the remasking sampler's result from its one-step probabilities."""
    start = torch.zeros(made.states**toy.length)
    start[-1] = 1.0  # all masked
    times = sampler.times()

    def kernel(t: float, s: float | None):
        def probs(x: torch.Tensor) -> torch.Tensor:
            at = torch.full((len(x),), t)
            mean = torch.nn.functional.pad(denoiser(x, at.clamp_max(1 - 1e-6)).values.exp(), (0, 1))
            stay = torch.nn.functional.one_hot(x, made.states).double()
            mask = torch.nn.functional.one_hot(torch.full_like(x, made.mask), made.states).double()
            if s is None:
                remask, show = torch.zeros(len(x)), torch.ones(len(x))
            else:
                remask, show = sampler.chances(made, torch.full_like(at, s), at)
            remask, show = remask[:, None, None], show[:, None, None]
            masked = (x == made.mask)[..., None]
            return torch.where(masked, show * mean + (1 - show) * stay, (1 - remask) * stay + remask * mask)

        return probs

    law = sampler_law(toy, made, start, [kernel(t, s) for t, s in zip(times, [*times[1:], None], strict=True)])
    return law[toy.index(toy.x, made.states)]


def test_remasking_keeps_an_exact_law_as_steps_grow() -> None:
    toy = Toy(3, 2, seed=0)
    made = Masked(3, Linear())
    exact = Exact(toy, made, "mean")
    far = [total_variation(remasking_law(toy, made, Remasking(n, rate=2 / n), exact), toy.p) for n in (8, 32, 128)]
    assert far[0] > far[1] > far[2] and far[2] < 0.01


def corrected_law(toy: Toy, made, sampler: PredictorCorrector, denoiser) -> torch.Tensor:
    """Compute the exact law of its result: the kernel of each step, then a forward step and the kernel again."""
    canvases = texts(made.states, toy.length)
    start = made.stationary()[canvases].prod(-1)
    times = sampler.times(sampler.begin(made))

    def back(t: float, s: float | None):
        def probs(x: torch.Tensor) -> torch.Tensor:
            at = torch.full(x.shape, t)
            prediction = denoiser(x, at[:, 0])
            if s is None:
                log_p = torch.nn.functional.pad(prediction.clean(made, x, at), (0, made.states - toy.vocab), value=-1e9)
            else:
                log_p = prediction.reverse(made, x, torch.full(x.shape, s), at)
            stay = torch.nn.functional.one_hot(x, made.states).double()
            return torch.where(made.active(x)[..., None], log_p.exp(), stay)

        return probs

    def forth(t: float, s: float | None):
        matrix = made.transition(None if s is None else torch.tensor(s), torch.tensor(t))
        return lambda x: matrix[x]

    kernels = []
    for t, s in zip(times, [*times[1:], None], strict=True):
        kernels += [back(t, s), *(sampler.corrections if kernels else 0) * [forth(t, s), back(t, s)]]
    return sampler_law(toy, made, start, kernels)[toy.index(toy.x, made.states)]


CORRECTED = [("masked", "linear", "mean"), ("masked", "per-token", "mean"), ("masked", "cosine", "score")]
CORRECTED += [("uniform", "linear", "mean"), ("banded", "polynomial", "mean"), ("lopsided", "linear", "mean")]


@pytest.mark.parametrize(("process", "schedule", "kind"), CORRECTED)
def test_corrections_bring_an_exact_model_nearer_to_its_law(process: str, schedule: str, kind: str) -> None:
    toy = Toy(3, 2, seed=0)
    made = build(process, schedule, 3)
    exact = Exact(toy, made, kind)
    with torch.no_grad():
        far = [total_variation(corrected_law(toy, made, PredictorCorrector(4, corrections=n), exact), toy.p) for n in (0, 1, 6)]
        coarse, fine = (total_variation(corrected_law(toy, made, PredictorCorrector(n), exact), toy.p) for n in (8, 64))
    assert far[0] > far[1] > far[2]
    assert fine < 0.03 and fine < 0.5 * coarse  # as the other samplers on a grid


@pytest.mark.parametrize(("process", "schedule", "kind"), CORRECTED)
def test_the_corrector_draws_what_its_steps_say(process: str, schedule: str, kind: str) -> None:
    toy = Toy(3, 2, seed=0)
    made = build(process, schedule, 3)
    denoiser = Random(toy, made, kind, scale=0.7)
    sampler = PredictorCorrector(3, corrections=2)
    with torch.no_grad():
        law = corrected_law(toy, made, sampler, denoiser)
    drawn = sample(made, denoiser, batch=DRAWS, length=2, sampler=sampler, seed=3)
    assert chi_square(torch.bincount(toy.index(drawn), minlength=9), law) > 1e-4


@pytest.mark.parametrize("process", ["masked", "uniform", "banded", "lopsided"])
def test_noise_upon_noise_is_noise(process: str) -> None:
    """Σ q(x_s | x_0) q(x_t | x_s) = q(x_t | x_0), by formula and by drawing."""
    made = build(process, "linear", 3)
    s, t = torch.tensor(0.3), torch.tensor(0.6)
    state = torch.arange(made.states)
    row = made.row(state, s.expand(made.states), t.expand(made.states))
    assert torch.allclose(row, made.dense().row(state, s.expand(made.states), t.expand(made.states)))
    x = torch.zeros(DRAWS, dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    x_s = made.noised(x, None, s.expand(DRAWS), generator)
    x_t = made.noised(x_s, s.expand(DRAWS), t.expand(DRAWS), generator)
    told = made.marginal(torch.zeros(1, dtype=torch.long), t[None])[0]
    assert torch.allclose(made.marginal(torch.zeros(1, dtype=torch.long), s[None])[0] @ row, told)
    assert chi_square(torch.bincount(x_t, minlength=made.states), told) > 1e-4


def test_a_corrector_by_name_takes_no_more_calls_than_steps() -> None:
    for steps in (1, 2, 3, 5, 8):
        made = PredictorCorrector().with_nfe(steps)
        assert isinstance(made, PredictorCorrector) and steps - 1 <= 2 * made.steps - 1 <= steps


def psi_law(toy: Toy, made: Process, sampler: Psi, denoiser) -> torch.Tensor:
    """Compute the exact law of the Ψ sampler's result from the two parts of each step."""
    start = made.stationary()[texts(made.states, toy.length)].prod(-1)
    times = sampler.times()

    def kernel(t: float, s: float | None):
        def probs(x: torch.Tensor) -> torch.Tensor:
            at = torch.full(x.shape, min(t, 1 - 1e-6))
            prediction = denoiser(x, at[:, 0])
            clean = prediction.clean(made, x, at).exp()
            if s is None:
                whole = torch.nn.functional.pad(clean, (0, made.states - toy.vocab))
                return torch.where(made.active(x)[..., None], whole, torch.nn.functional.one_hot(x, made.states).double())
            earlier = torch.full(x.shape, s)
            renoised = (clean[..., None] * made.transition(None, earlier)[..., : toy.vocab, :]).sum(-2)
            return sampler.kappa * prediction.reverse(made, x, earlier, at).exp() + (1 - sampler.kappa) * renoised

        return probs

    law = sampler_law(toy, made, start, [kernel(t, s) for t, s in zip(times, [*times[1:], None], strict=True)])
    return law[toy.index(toy.x, made.states)]


@pytest.mark.parametrize(("process", "kind"), [("masked", "mean"), ("uniform", "mean"), ("uniform plug-in", "leave-one-out")])
def test_psi_keeps_every_marginal_and_comes_to_the_data(process: str, kind: str) -> None:
    single, pair = Toy(3, 1, seed=1), Toy(3, 2, seed=0)
    with torch.no_grad():
        for kappa in (0.0, 0.5, 1.0):  # one position: at any κ, in any number of steps
            made = build(process, "linear", 3)
            assert total_variation(psi_law(single, made, Psi(5, kappa=kappa), Exact(single, made, kind)), single.p) < 1e-4
        made = build(process, "linear", 3)
        exact = Exact(pair, made, kind)
        far = [total_variation(psi_law(pair, made, Psi(n, kappa=1 - 1 / n), exact), pair.p) for n in (8, 32, 128)]
    assert far[0] > far[1] > far[2] and far[2] < 0.01


@pytest.mark.parametrize(("process", "kind"), [("masked", "mean"), ("uniform", "mean"), ("uniform plug-in", "mean")])
def test_psi_draws_what_its_steps_say(process: str, kind: str) -> None:
    toy = Toy(3, 2, seed=0)
    made = build(process, "linear", 3)
    denoiser = Random(toy, made, kind, scale=0.7)
    sampler = Psi(4, kappa=0.6)
    with torch.no_grad():
        law = psi_law(toy, made, sampler, denoiser)
    drawn = sample(made, denoiser, batch=DRAWS, length=2, sampler=sampler, seed=3)
    assert chi_square(torch.bincount(toy.index(drawn), minlength=9), law) > 1e-4


def test_remasking_draws_what_its_steps_say() -> None:
    toy = Toy(3, 2, seed=0)
    made = Masked(3, Cosine())
    denoiser = Random(toy, made, scale=0.7)
    sampler = Remasking(6, rate=0.3)
    with torch.no_grad():
        law = remasking_law(toy, made, sampler, denoiser)
    drawn = sample(made, denoiser, batch=DRAWS, length=2, sampler=sampler, seed=3)
    assert chi_square(torch.bincount(toy.index(drawn), minlength=9), law) > 1e-4


@pytest.mark.parametrize("sampler", [Remasking(10, rate=0.2), Psi(10, kappa=0.5)])
def test_the_share_of_masks_is_kept_and_tokens_are_taken_back(sampler: Sampler) -> None:
    made = Masked(4, Linear())
    frames = list(sample_frames(made, Exact(TOY, made, "mean"), batch=4000, length=3, sampler=sampler, seed=0))
    for frame in frames[1:-1]:
        assert float((frame.x == 4).double().mean()) == pytest.approx(frame.t, abs=0.02)
    back = [((a.x != 4) & (b.x == 4)).any() for a, b in itertools.pairwise(frames)]
    assert sum(map(bool, back)) > 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Confidence(3, "x"), 'by must be "max", "margin" or "entropy"'),
        (lambda: EntropyBounded(3, budget=-1.0), "budget must be ≥ 0 nats"),
        (lambda: PredictorCorrector(3, corrections=-1), "corrections must be a whole number ≥ 0"),
        (lambda: Psi(3, kappa=1.5), r"kappa must lie in \[0, 1\]"),
        (lambda: Remasking(3, rate=1.5), r"rate must lie in \[0, 1\]"),
        *(
            (
                lambda s=s, process=process: sample(process, Random(TOY, process), batch=1, length=3, sampler=s),
                f"{type(s).__name__} needs a Masked process with one schedule",
            )
            for s in (Confidence(2), EntropyBounded(2), Remasking(2))
            for process in (Uniform(4, Linear()), Masked(4, PerToken(4)))
        ),
    ],
)
def test_mistakes(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
