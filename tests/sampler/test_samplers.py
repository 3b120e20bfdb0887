"""The law of every sampler: computed exactly by enumeration, compared with p_data, and met by what is drawn."""

import itertools

import pytest
import torch

from cases import build
from sampler_laws import exact_law
from toy import Exact, Random, Toy, chi_square, total_variation
from unnoise import (
    Ancestral,
    EulerLeaping,
    FirstHitting,
    Linear,
    Markov,
    Masked,
    MeanPrediction,
    Sampler,
    ScorePrediction,
    TweedieLeaping,
    sample,
    sample_frames,
)
from unnoise.denoiser import SamplingDenoiser
from unnoise.sampler import sampler_base as base
from unnoise.sampler.ancestral import Psi
from unnoise.sampler.sampler_base import GridSampler

TOYS = {"K=3 L=2": Toy(3, 2, seed=0), "K=4 L=3": Toy(4, 3, seed=1)}
DRAWS = 20_000


pytestmark = pytest.mark.usefixtures("double")


def counts(toy: Toy, x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(toy.index(x), minlength=len(toy.x))


GRID = [
    (process, schedule, kind, sampler)
    for process, schedule, kind in (
        ("masked", "linear", "mean"),
        ("masked", "log-linear", "mean"),
        ("masked", "geometric", "mean"),
        ("masked", "cosine", "score"),
        ("masked", "log-linear", "score"),
        ("masked", "per-token", "mean"),
        ("uniform", "linear", "mean"),
        ("uniform", "cosine-table", "score"),
        ("uniform plug-in", "linear", "leave-one-out"),
        ("banded", "polynomial", "mean"),
        ("lopsided", "linear", "mean"),
    )
    for sampler in (Ancestral, EulerLeaping, TweedieLeaping)
    if not (sampler is Ancestral and kind == "score")
]


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize(("process", "schedule", "kind", "sampler"), GRID)
def test_more_steps_bring_the_law_to_the_data(toy: str, process: str, schedule: str, kind: str, sampler) -> None:
    """Compute the exact law of the chain: its distance to p_data falls about as 1/steps."""
    made = build(process, schedule, TOYS[toy].vocab)
    exact = Exact(TOYS[toy], made, kind)
    with torch.no_grad():
        far, near = (total_variation(exact_law(TOYS[toy], made, sampler(steps), exact), TOYS[toy].p) for steps in (8, 64))
    assert near < 0.03
    assert near < 0.5 * far or near < 5e-3


@pytest.mark.parametrize(("process", "schedule", "kind", "sampler"), GRID)
def test_what_is_drawn_follows_the_computed_law(process: str, schedule: str, kind: str, sampler) -> None:
    """Take a few rough steps with arbitrary predictions, so that any sampling error would show."""
    toy = TOYS["K=3 L=2"]
    made = build(process, schedule, toy.vocab)
    denoiser = Random(toy, made, "score" if kind == "score" else "mean", scale=0.7)
    for grid in ("uniform", "cosine"):
        few = sampler(5, grid)
        with torch.no_grad():
            law = exact_law(toy, made, few, denoiser)
        drawn = sample(made, denoiser, batch=DRAWS, length=toy.length, sampler=few, seed=3)
        assert abs(float(law.sum()) - 1) < 1e-9
        assert chi_square(counts(toy, drawn), law) > 1e-4


@pytest.mark.parametrize("toy", TOYS)
def test_first_hitting_is_exact_at_once(toy: str) -> None:
    made = Masked(TOYS[toy].vocab, Linear())
    drawn = sample(made, Exact(TOYS[toy], made, "mean"), batch=DRAWS, length=TOYS[toy].length, sampler=FirstHitting(), seed=0)
    assert chi_square(counts(TOYS[toy], drawn), TOYS[toy].p) > 1e-4


def test_first_hitting_follows_the_law_of_any_prediction() -> None:
    """Time-free predictions: every order of reveals is equally likely, so the law is the mean over orders."""
    toy = TOYS["K=4 L=3"]
    made = Masked(toy.vocab, Linear())
    denoiser = Random(toy, made, time=0.0)
    law = torch.zeros(len(toy.x))
    orders = list(itertools.permutations(range(toy.length)))
    for order in orders:
        x_t = torch.full_like(toy.x, made.mask)
        log_p = torch.zeros(len(toy.x))
        for i in order:
            log_probs = denoiser(x_t, torch.zeros(len(x_t))).values[:, i]
            log_p += log_probs.gather(1, toy.x[:, i : i + 1])[:, 0]
            x_t[:, i] = toy.x[:, i]
        law += log_p.exp() / len(orders)
    drawn = sample(made, denoiser, batch=DRAWS, length=toy.length, sampler=FirstHitting(), seed=0)
    assert chi_square(counts(toy, drawn), law) > 1e-4


def test_first_hitting_times_are_those_of_the_schedule() -> None:
    """Each reveal's noise level is uniform on [0, 1] under every schedule; the last reveal of n has CDF 1 − (1−a)^n."""
    made = build("masked", "cosine", 3)
    asked: list[torch.Tensor] = []

    def denoiser(x_t, t, where=None):
        asked.append(made.schedule.noise(t))
        return MeanPrediction.from_logits(torch.zeros(*x_t.shape, 3) if where is None else torch.zeros(int(where.sum()), 3))

    sample(made, denoiser, batch=4000, length=5, sampler=FirstHitting(), seed=1)
    levels = torch.cat(asked)
    assert len(levels) == 4000 * 5
    ranks = levels.sort().values
    assert float((ranks - torch.linspace(0, 1, len(ranks))).abs().max()) < 0.02  # Kolmogorov–Smirnov at 20,000 draws


@pytest.mark.parametrize("sampler", [Ancestral(64), TweedieLeaping(64), EulerLeaping(128), FirstHitting()])
def test_masked_infilling_is_the_exact_conditional(sampler: Sampler) -> None:
    toy = TOYS["K=4 L=3"]
    made = Masked(toy.vocab, Linear())
    given = torch.tensor([-1, 2, -1])
    conditional = torch.where(toy.x[:, 1] == 2, toy.p, torch.zeros_like(toy.p))
    conditional = conditional / conditional.sum()
    exact = Exact(toy, made, "mean")
    drawn = sample(made, exact, batch=DRAWS, length=3, sampler=sampler, given=given.expand(DRAWS, 3).contiguous(), seed=5)
    assert (drawn[:, 1] == 2).all()
    if isinstance(sampler, GridSampler):
        with torch.no_grad():
            law = exact_law(toy, made, sampler, exact, given)
        assert total_variation(law, conditional) < 0.02
        assert chi_square(counts(toy, drawn), law) > 1e-4
    else:
        assert chi_square(counts(toy, drawn), conditional) > 1e-4


@pytest.mark.parametrize("sampler", [Ancestral(200), TweedieLeaping(200), EulerLeaping(200), FirstHitting()])
@pytest.mark.parametrize("schedule", ["linear", "per-token"])
def test_time_free_asks_less_and_draws_the_same(sampler: Sampler, schedule: str) -> None:
    if schedule == "per-token" and isinstance(sampler, FirstHitting):
        pytest.skip("first-hitting needs one schedule for all tokens")
    toy = Toy(4, 3, seed=1)
    made = build("masked", schedule, 4)
    asked = [0, 0]

    def counted(time_free: bool):
        denoiser = Random(toy, made, time=0.0)

        def count(x_t, t, where=None):
            asked[time_free] += len(x_t)
            return denoiser(x_t, t, where)

        return sample(made, count, batch=50, length=3, sampler=sampler, seed=2, time_free=time_free)

    assert torch.equal(counted(False), counted(True))
    assert asked[1] <= 50 * 4  # once at the start and once after each reveal
    assert asked[1] <= asked[0]


def test_ancestral_masked_sampling_needs_no_more_than_one_evaluation_a_position() -> None:
    """1,000 steps of length 256, batch 8: 2,048 sequence evaluations at most instead of 8,000."""
    made = Masked(27, Linear())
    asked = [0]

    def denoiser(x_t, t, where=None):
        asked[0] += len(x_t)
        return MeanPrediction.from_logits(torch.zeros(*x_t.shape, 27)[where])

    sample(made, denoiser, batch=8, length=256, sampler=Ancestral(1000), seed=0, time_free=True)
    assert asked[0] <= 256 * 8


def test_every_canvas_is_yielded_and_the_last_has_no_mask() -> None:
    toy = TOYS["K=4 L=3"]
    for schedule in ("linear", "geometric", "log-linear"):
        made = build("masked", schedule, 4)
        for sampler in (Ancestral(9), TweedieLeaping(9), EulerLeaping(9), FirstHitting()):
            frames = list(sample_frames(made, Random(toy, made), batch=40, length=3, sampler=sampler, seed=0))
            assert frames[0].t == 1 and frames[-1].t == 0
            assert (frames[0].x == made.mask).all() and not (frames[-1].x == made.mask).any()
            assert all(a.t >= b.t for a, b in itertools.pairwise(frames))
            for a, b in itertools.pairwise(frames):  # an unmasked token never changes again
                kept = a.x != made.mask
                assert torch.equal(a.x[kept], b.x[kept])
            if isinstance(sampler, GridSampler):
                assert len(frames) == 10


def test_temperature_and_top_p_shape_the_mean() -> None:
    log_probs = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    mean = MeanPrediction(log_probs)
    assert torch.allclose(mean.shaped(0.5).log_probs.exp(), torch.tensor([0.25, 0.09, 0.0225, 0.0025]) / 0.365)
    assert torch.allclose(mean.shaped(1.0, 0.7).log_probs.exp(), torch.tensor([0.625, 0.375, 0, 0]))
    assert torch.allclose(mean.shaped(1.0, 0.5).log_probs.exp(), torch.tensor([1.0, 0, 0, 0]))
    assert torch.allclose(mean.shaped(0.0).log_probs.exp(), torch.tensor([1.0, 0, 0, 0]))
    assert mean.shaped().log_probs is log_probs
    toy = TOYS["K=4 L=3"]
    made = Masked(4, Linear())
    cold = sample(made, Random(toy, made, time=0.0), batch=30, length=3, sampler=FirstHitting(temperature=0.0), seed=0)
    assert len(torch.unique(cold, dim=0)) <= 6  # nothing but the order is left to chance


def test_a_sampling_denoiser_counts_and_remembers() -> None:
    toy = TOYS["K=4 L=3"]
    made = Masked(4, Linear())
    calls = SamplingDenoiser(made, made, Random(toy, made, time=0.0), length=3, time_free=True)
    x = torch.full((2, 3), made.mask)
    where = torch.ones_like(x, dtype=torch.bool)
    first = calls.predict(x, torch.ones(2), where)
    again = calls.predict(x, torch.zeros(2), where)
    assert torch.equal(first.values, again.values) and calls.nfe == 2
    x = x.clone()
    x[1, 0] = 2
    calls.predict(x, torch.zeros(2), where & (x == made.mask))
    assert calls.nfe == 3


def test_the_grids_and_where_leaping_begins() -> None:
    import math

    assert Ancestral(4).times() == [1.0, 0.75, 0.5, 0.25]
    for t, i in zip(Ancestral(5, "cosine").times(), range(5), strict=True):
        assert abs(t - math.cos(math.pi / 2 * i / 5)) < 1e-12
    for schedule in ("linear", "cosine", "geometric"):
        made = build("masked", schedule, 3)
        begin = torch.tensor([TweedieLeaping(4).begin(made)])
        assert begin < 1
        assert torch.allclose(made.schedule.alpha(begin), torch.tensor([1e-5]), rtol=0.2)


def test_masks_are_revealed_in_the_step_that_the_schedule_says() -> None:
    """Step i from t to s unmasks a share (1 − α_t − (1 − α_s))/(1 − α(1)); given and unmasked tokens never change."""
    for schedule in ("linear", "cosine", "polynomial", "log-linear", "geometric"):
        made = build("masked", schedule, 3)
        x = torch.full((400, 100), made.mask)
        x[:, :10] = 1
        free = torch.ones_like(x, dtype=torch.bool)
        free[:, 10:20] = False
        times = Ancestral(7, "cosine").times()
        steps = made.jump_steps(x, free, times, torch.Generator().manual_seed(0))
        assert steps is not None and (steps[:, :20] == 7).all() and int(steps[:, 20:].max()) < 7
        noise = torch.cat([made.schedule.noise(torch.tensor(times)), torch.zeros(1)])
        assert chi_square(torch.bincount(steps[:, 20:].flatten(), minlength=7), -noise.diff() / noise[0]) > 1e-4
    assert build("masked", "per-token", 3).jump_steps(x, free, times) is None


@pytest.mark.parametrize(
    ("schedule", "sampler"),
    [("linear", Ancestral(40)), ("per-token", Ancestral(40)), ("linear", TweedieLeaping(40)), ("linear", FirstHitting())],
)
def test_rows_in_which_nothing_moves_need_not_be_read(schedule: str, sampler: Sampler) -> None:
    """With a denoiser that depends on t: fewer rows are read, and the same texts come out."""
    toy = TOYS["K=4 L=3"]
    made = build("masked", schedule, 4)
    inner, read = Random(toy, made, time=1.0), [0, 0]
    given = torch.full((50, 3), -1)
    given[:30, 0], given[:10, 1] = 2, 3

    def drawn(independent: bool) -> torch.Tensor:
        def counted(x_t, t, where=None):
            read[independent] += len(x_t)
            return inner(x_t, t, where)

        return sample(made, counted, batch=50, length=3, sampler=sampler, given=given, independent_rows=independent)

    assert torch.equal(drawn(False), drawn(True)) and read[1] < 0.95 * read[0]


def test_tokens_are_drawn_in_blocks_as_they_are_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = TOYS["K=4 L=3"]
    for process, sampler in itertools.product(
        (build("uniform", "linear", 4), build("masked", "per-token", 4)), (Ancestral(6), EulerLeaping(6), Psi(6, kappa=0.5))
    ):
        denoiser = Random(toy, process)
        whole = sample(process, denoiser, batch=20, length=3, sampler=sampler)
        with monkeypatch.context() as patch:
            patch.setattr(base, "CPU_BLOCK", 30)
            assert torch.equal(sample(process, denoiser, batch=20, length=3, sampler=sampler), whole)


def test_top_p_reaches_the_draw() -> None:
    made = Masked(4, Linear())

    def denoiser(x_t, t, where=None):
        return MeanPrediction(torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(*x_t.shape, 4))

    for sampler in (Ancestral(5, top_p=0.7), FirstHitting(top_p=0.7), TweedieLeaping(5, top_p=0.7)):
        assert int(sample(made, denoiser, batch=50, length=20, sampler=sampler).max()) == 1


def test_a_prediction_that_is_not_a_number_is_refused() -> None:
    for process in (Masked(4, Linear()), build("uniform", "linear", 4)):
        for sampler in (Ancestral(3), TweedieLeaping(3)):
            with pytest.raises(ValueError, match="cannot draw from a prediction with NaN"):
                sample(
                    process,
                    lambda x, t, where=None: MeanPrediction(torch.full((*x.shape, 4), torch.nan)),
                    batch=1,
                    length=2,
                    sampler=sampler,
                )


def test_everything_given_is_a_chain_too() -> None:
    made = Masked(4, Linear())
    known = torch.tensor([[1, 2, 3]])
    for sampler in (Ancestral(3), FirstHitting()):
        frames = list(sample_frames(made, Random(TOYS["K=4 L=3"], made), batch=1, length=3, sampler=sampler, given=known))
        assert frames[-1].t == 0 and torch.equal(frames[-1].x, known)


def test_leaping_with_a_wide_band_and_a_score() -> None:
    """Modes that have decayed beyond recovery are left out instead of dividing by zero."""
    made = Markov.banded(64, Linear(), width=2.0)
    lopsided_process = build("lopsided", "linear", 4)
    for process in (made, lopsided_process):

        def denoiser(x_t, t, where=None, process=process):
            at = t[:, None].expand(x_t.shape)
            mean = torch.log_softmax(torch.zeros(*x_t.shape, process.vocab), -1)
            return ScorePrediction(process.mean_ratios(mean, x_t, at))

        for sampler in (TweedieLeaping(8), EulerLeaping(8)):
            drawn = sample(process, denoiser, batch=2, length=5, sampler=sampler)
            assert int(drawn.max()) < process.vocab and int(drawn.min()) >= 0
