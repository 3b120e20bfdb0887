"""Single parts of samplers against plain numbers: how many are revealed, where a walk begins, what is called and remembered."""

import math

import pytest
import torch
from torch import Tensor

import unnoise
from cases import build
from toy import Exact, Random, Toy, chi_square, texts
from unnoise import (
    Ancestral,
    Confidence,
    EntropyBounded,
    EulerLeaping,
    FirstHitting,
    Linear,
    LogLinear,
    Masked,
    MeanPrediction,
    Metropolis,
    PerToken,
    PredictorCorrector,
    Remasking,
    ScorePrediction,
    TweedieLeaping,
    Uniform,
    sample,
)
from unnoise.denoiser import SamplingDenoiser
from unnoise.sampler import sampler_base as base
from unnoise.sampler.ancestral import gumbel_argmax
from unnoise.sampler.sampling import sample_from
from unnoise.sampler.unmasking import certainty

pytestmark = pytest.mark.usefixtures("double")


def fixed(probs: Tensor):
    """Return a denoiser with the same distributions [L, K] for every text."""

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        values = probs.log().expand(*x_t.shape, probs.shape[-1])
        return MeanPrediction(values if where is None else values[where])

    return denoiser


def revealed(sampler: Confidence, masks: int, process: Masked | None = None) -> list[int]:
    """Return the number of masks that each step reveals, by `count` alone."""
    left, found = masks, []
    for i in range(sampler.steps):
        total = torch.tensor([masks])
        now = int(sampler.count(process or Masked(3, Linear()), total, torch.tensor([left]), i, sampler.steps)[0])
        found.append(now)
        left -= now
    return found


def test_dreams_reveals_are_rounded_down() -> None:
    """⌊masks·(1 − s/t)⌋ from t = 1 to 10⁻³, and the rest in the last step."""
    for masks, steps in ((10, 4), (7, 5), (64, 9)):
        times = [1 + (1e-3 - 1) * i / steps for i in range(steps + 1)]
        left, wanted = masks, []
        for i in range(steps - 1):
            wanted.append(math.floor(left * (1 - times[i + 1] / times[i])))
            left -= wanted[-1]
        assert revealed(Confidence(steps, spread="floor"), masks) == [*wanted, left]


def test_even_reveals_differ_by_one() -> None:
    assert revealed(Confidence(4, spread="even"), 10) == [3, 3, 2, 2]
    assert revealed(Confidence(4, spread="even"), 3) == [1, 1, 1, 0]
    assert revealed(Confidence(3, spread="even"), 9) == [3, 3, 3]


def test_reveals_by_a_schedule_leave_what_it_expects() -> None:
    """After step i, ⌊n·(1 − α(t_{i+1}))⌋ masks are left: with the linear schedule, n·(1 − (i + 1)/steps)."""
    assert revealed(Confidence(4), 10) == [3, 2, 3, 2]  # 7, 5, 2 and 0 are left, of 7.5, 5, 2.5 and 0
    assert revealed(Confidence(5), 7) == [2, 1, 2, 1, 1]  # 5, 4, 2, 1 and 0 are left, of 5.6, 4.2, 2.8, 1.4 and 0


def test_blocks_of_blanks_are_written_one_after_the_other() -> None:
    """With blocks of two and one call for each, positions 0 and 1 come first, then 2 and 3, then 4."""
    made = Masked(3, Linear())
    probs = torch.tensor([[0.4, 0.3, 0.3]] * 4 + [[0.9, 0.05, 0.05]])  # the last would be first
    calls = SamplingDenoiser(made, made, fixed(probs), length=5)
    x = torch.full((4, 5), made.mask)
    frames = list(Confidence(3, block=2).frames(calls, x, torch.ones_like(x, dtype=torch.bool), None))
    assert [(frame.x[0] == made.mask).tolist() for frame in frames] == [
        [False, False, True, True, True],
        [False, False, False, False, True],
        [False] * 5,
    ]


def test_margin_is_the_lead_over_the_second() -> None:
    p = torch.tensor([[0.5, 0.45, 0.05], [0.4, 0.1, 0.5 - 1e-9], [1.0, 0.0, 0.0]])
    assert certainty(p.log(), "margin").tolist() == pytest.approx([0.05, 0.1, 1.0], abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.2])
def test_the_order_is_that_of_the_models_own_certainty(temperature: float) -> None:
    """Use a low temperature, which makes both positions look certain; the model gives more to the second."""
    made = Masked(3, Linear())
    probs = torch.tensor([[0.5, 0.49, 0.01], [0.55, 0.23, 0.22]])
    sharpened = (probs / probs.amax(1, keepdim=True)) ** 5  # at 0.2 the shaped distributions have the order of the others
    assert sharpened[1, 0] / sharpened[1].sum() > sharpened[0, 0] / sharpened[0].sum()
    close = torch.tensor([[0.52, 0.24, 0.24], [0.54, 0.45, 0.01]])
    shaped = MeanPrediction(close.log()).shaped(temperature).log_probs.exp()
    assert shaped[0].amax() >= shaped[1].amax()  # by the shaped distributions the first would not be later
    calls = SamplingDenoiser(made, made, fixed(close), length=2, temperature=temperature)
    x = torch.full((6, 2), made.mask)
    first = next(iter(Confidence(2, temperature=temperature).frames(calls, x, torch.ones_like(x, dtype=torch.bool), None)))
    assert (first.x[:, 0] == made.mask).all() and not (first.x[:, 1] == made.mask).any()


def test_entropy_that_is_left_is_spread_over_the_calls_that_are_left() -> None:
    """With None the budget is Σ H over the calls that remain, which are fewer each time."""
    masks = torch.ones(1, 6, dtype=torch.bool)
    uncertain = torch.full((6,), 1.0)
    sampler = EntropyBounded(8)
    assert [int(sampler.count(uncertain, masks, left)[0]) for left in (8, 6, 3, 2, 1)] == [1, 2, 3, 4, 6]


def test_the_largest_entropy_of_a_call_is_free() -> None:
    """Σ H − max H ≤ budget: at a budget of 0.3 the entropies 0.1, 0.2 and 4 are revealed together."""
    masks = torch.ones(1, 4, dtype=torch.bool)
    uncertain = torch.tensor([4.0, 0.1, 0.2, 5.0])
    assert int(EntropyBounded(9, budget=0.3 + 1e-9).count(uncertain, masks, 9)[0]) == 3
    assert int(EntropyBounded(9, budget=0.29).count(uncertain, masks, 9)[0]) == 2


def test_leaping_begins_where_every_token_has_lost_its_signal() -> None:
    """At the latest time at which a token's α is 10⁻⁵."""
    schedule = PerToken(3).double().requires_grad_(False)
    schedule.theta.copy_(torch.tensor([0.0, 1.0, 3.0]))
    w = torch.nn.functional.softplus(schedule.theta)
    wanted = float(((1 - 1e-5) ** (1 / w)).max())
    assert TweedieLeaping(4).begin(Masked(3, schedule)) == pytest.approx(wanted, abs=1e-12)
    assert TweedieLeaping(4).begin(Masked(3, Linear())) == pytest.approx(1 - 1e-5, abs=1e-12)
    assert TweedieLeaping(4).begin(Masked(3, LogLinear(1e-3))) == pytest.approx(1 - 1e-6, abs=1e-12)


def test_a_step_of_euler_that_is_too_long_is_scaled_to_one() -> None:
    """Ratios so large that Σ Δt·R·s > 1: nothing stays, and the others share the probability as they would share the jump."""
    process = Uniform(3, Linear())
    ratios = torch.tensor([[1.0, 30.0, 10.0]])
    x_t, s, t = torch.tensor([0]), torch.tensor([0.1]), torch.tensor([0.9])
    found = EulerLeaping(2).log_leap(process, ScorePrediction(ratios.log()), x_t, s, t).exp()
    assert torch.allclose(found, torch.tensor([[0.0, 0.75, 0.25]]), atol=1e-12)
    short = EulerLeaping(2).log_leap(process, ScorePrediction(ratios.log()), x_t, torch.tensor([0.899]), t).exp()
    rate = 1 / 0.1 / 3  # β/K with β = 1/(1 − t)
    wanted = torch.tensor([[1 - 0.001 * rate * 40, 0.001 * rate * 30, 0.001 * rate * 10]])
    assert torch.allclose(short, wanted, atol=1e-12)


def test_a_nucleus_is_that_of_the_distribution_at_its_temperature() -> None:
    """At temperature 2 the roots 0.377, 0.292, 0.207 and 0.119 (of 1.879) have 0.7 of the mass with the third only."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    roots = p.sqrt()[:3]
    assert torch.allclose(MeanPrediction(p.log()).shaped(2.0, 0.7).log_probs[:3].exp(), roots / roots.sum(), atol=1e-12)
    assert MeanPrediction(p.log()).shaped(0.5, 0.9).log_probs.exp().tolist() == pytest.approx([25 / 34, 9 / 34, 0, 0])


def test_a_score_is_scaled_at_the_time_of_its_own_row() -> None:
    """At some positions of texts with other times each: the same as there among all."""
    model = unnoise.Model.build("sedd-absorb", length=4, width=16, depth=1, heads=2)
    x_t = torch.full((3, 4), model.process.mask)
    where = torch.tensor([[False, True, False, True], [False] * 4, [True, False, False, True]])
    for t in (torch.tensor([0.1, 0.5, 0.9]), torch.linspace(0.05, 0.95, 12).view(3, 4)):
        whole, some = model.denoiser(x_t, t), model.denoiser(x_t, t, where)
        assert torch.allclose(some.values, whole.values[where], atol=1e-6)
        at = t if t.dim() == 2 else t[:, None].expand(3, 4)
        odds = model.process.schedule.alpha(at) / model.process.schedule.noise(at) / model.process.vocab
        assert torch.allclose(whole.values[..., :-1].exp(), odds[..., None].expand(3, 4, 27), rtol=1e-4)  # of an untrained one


def test_calls_are_counted_by_rows() -> None:
    made = Masked(3, Linear())
    calls = SamplingDenoiser(made, made, fixed(torch.full((4, 3), 1 / 3)), length=4)
    x = torch.full((5, 4), made.mask)
    calls.predict(x, torch.ones(5), x == made.mask)
    assert calls.nfe == 5
    calls.predict(x[:2], torch.ones(2), x[:2] == made.mask)
    assert calls.nfe == 7


def test_a_denoiser_is_given_times_below_one() -> None:
    made, seen = Masked(3, Linear()), []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        seen.append(float(t.max()))
        return fixed(torch.full((4, 3), 1 / 3))(x_t, t, where)

    for sampler in (Ancestral(3), FirstHitting(), Confidence(3), TweedieLeaping(3)):
        sample(made, denoiser, batch=2, length=4, sampler=sampler, seed=0)
    assert max(seen) < 1


def timed(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
    """Return the probability t for the first of two tokens."""
    at = (t if t.dim() == 2 else t[:, None].expand(x_t.shape)).double()
    values = torch.stack([at, 1 - at], -1).log()
    return MeanPrediction(values if where is None else values[where])


def test_rows_that_are_called_alone_keep_their_own_times() -> None:
    made = Masked(2, Linear())
    calls = SamplingDenoiser(made, made, timed, length=3, independent_rows=True)
    x = torch.full((3, 3), made.mask)
    where = torch.tensor([[False] * 3, [True, False, True], [False, True, False]])
    found = calls.predict(x, torch.tensor([0.1, 0.2, 0.3]), where).values.exp()
    assert torch.allclose(found[:, 0], torch.tensor([0.2, 0.2, 0.3])) and calls.nfe == 2


def test_what_is_remembered_of_a_row_is_for_the_positions_that_were_asked() -> None:
    """Ask about one text at other positions: it is evaluated again."""
    made = Masked(3, Linear())
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.6, 0.2]])
    calls = SamplingDenoiser(made, made, fixed(probs), length=3, time_free=True)
    x = torch.full((2, 3), made.mask)
    for places in ([0], [2], [0, 1], [1, 2], [1, 2]):
        where = torch.zeros_like(x, dtype=torch.bool)
        where[:, places] = True
        found = calls.predict(x, torch.ones(2), where).values.exp()
        assert torch.allclose(found, probs[places].repeat(2, 1))
    assert calls.nfe == 8  # the last was known


def test_the_confidence_of_a_mask_is_that_of_its_favourite() -> None:
    made = Masked(3, Linear())
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2]])
    calls = SamplingDenoiser(made, made, fixed(probs), length=3)
    masks = torch.tensor([[3, 3, 0]])
    calls.predict(masks, torch.ones(1), masks == 3)
    found = calls.confidence(torch.tensor([[1, 3, 0]]), torch.zeros(1, 3))
    assert torch.allclose(found, torch.tensor([[0.3, 0.8, 0.0]]))  # written, still masked, never predicted


def test_the_way_back_begins_at_the_noise_of_its_time() -> None:
    """First-hitting from t: the first reveal of n masks is at (1 − α(t))·U^{1/n}, with a schedule that is not its own noise."""
    made, levels = build("masked", "cosine", 3), []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        levels.append(made.schedule.noise(t.double()))
        return fixed(torch.full((2, 3), 1 / 3))(x_t, t, where)

    state = torch.full((4000, 2), made.mask)
    list(sample_from(made, denoiser, state, 0.3, sampler=FirstHitting(), seed=0))
    level = math.sin(math.pi / 2 * 0.3)
    first = levels[0].sort().values
    assert float(first.max()) <= level
    assert float(((first / level) ** 2 - torch.linspace(0, 1, len(first))).abs().max()) < 0.04  # P(U^{1/2} ≤ u) = u²


def test_the_way_back_begins_at_its_time_on_every_grid() -> None:
    made, times = Masked(2, Linear()), []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        times.append(float(t.max()))
        return timed(x_t, t, where)

    state = torch.full((50, 8), made.mask)
    for sampler in (Ancestral(4), TweedieLeaping(4), Ancestral(4, "cosine")):
        times.clear()
        list(sample_from(made, denoiser, state, 0.4, sampler=sampler, seed=0))
        assert max(times) == pytest.approx(0.4, abs=1e-6)


@pytest.mark.parametrize("sampler", [Ancestral(4), FirstHitting()])
def test_rows_of_the_way_back_are_numbered(sampler) -> None:
    made = Masked(2, Linear())
    state = torch.full((6, 8), made.mask)
    whole = list(sample_from(made, timed, state, 0.9, sampler=sampler, seed=3))[-1].x
    rest = list(sample_from(made, timed, state[4:], 0.9, sampler=sampler, seed=3, first_row=4))[-1].x
    assert torch.equal(whole[4:], rest) and not torch.equal(whole[:2], rest)


def test_parts_of_a_batch_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw tokens a few at a time: they are independent, as if drawn at once."""
    monkeypatch.setattr(base, "CPU_BLOCK", 8)
    made = Masked(2, Linear())
    x = sample(made, fixed(torch.full((4, 2), 0.5)), batch=3000, length=4, sampler=Ancestral(1), seed=0)
    number = (x * torch.tensor([8, 4, 2, 1])).sum(1)
    assert chi_square(torch.bincount(number, minlength=16), torch.full((16,), 1 / 16)) > 1e-4
    assert chi_square(torch.bincount((x[1:] == x[:-1]).sum(1), minlength=5), torch.tensor([1.0, 4, 6, 4, 1]) / 16) > 1e-4


def test_remasking_takes_back_no_more_than_the_noise_has_room_for() -> None:
    """σ = min(rate, (1 − α_s)/α_t), and the share of masks after the step is 1 − α_s whatever σ is."""
    made = Masked(3, Linear())
    t = torch.tensor([0.9, 0.5, 0.3, 0.12])
    s = torch.tensor([0.8, 0.4, 0.02, 0.01])
    remask, show = Remasking(4, rate=0.1).chances(made, s, t)
    assert torch.allclose(remask, torch.tensor([0.1, 0.1, 0.02 / 0.7, 0.01 / 0.88]), atol=1e-12)
    assert torch.allclose((1 - t) * remask + t * (1 - show), s, atol=1e-12)
    assert float(show.max()) <= 1 + 1e-12


def test_network_calls_are_shared_out_between_steps_and_corrections() -> None:
    """n steps take n + (n − 1)·corrections calls, as the first has nothing to correct: the most that fit into a number."""
    for corrections in (0, 1, 2, 5):
        for nfe in range(1, 30):
            steps = PredictorCorrector(corrections=corrections).with_nfe(nfe).steps
            used = steps + (steps - 1) * corrections
            assert used <= nfe or steps == 1
            assert used + 1 + corrections > nfe
    made = Metropolis(5, before=Ancestral(5))
    for nfe in range(3, 20):
        shared = made.with_nfe(nfe)
        assert shared.before is not None
        assert shared.steps + shared.before.with_nfe(nfe // 2).steps + 1 == nfe  # pyright: ignore[reportAttributeAccessIssue]
        assert Metropolis(5).with_nfe(nfe).steps + 1 == nfe


def test_a_masked_model_is_asked_about_a_proposal_without_the_token_it_replaces() -> None:
    made, seen = Masked(3, Linear()), []

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        assert where is not None
        seen.append(bool((x_t[where] == made.mask).all()) and int((x_t == made.mask).sum()) == len(x_t))
        return fixed(torch.full((4, 3), 1 / 3))(x_t, t, where)

    calls = SamplingDenoiser(made, made, denoiser, length=4)
    x = torch.zeros(7, 4, dtype=torch.long)
    Metropolis(1).move(calls, x, torch.ones_like(x, dtype=torch.bool), torch.full((7,), 0.02), torch.Generator().manual_seed(0))
    assert seen == [True]


def test_a_step_of_ancestral_sampling_is_drawn_from_the_reverse_step() -> None:
    """One step of uniform noise from t to s, from every text, by the formula of the dense process."""
    toy = Toy(3, 2)
    process = Uniform(3, Linear())
    denoiser = Random(toy, process)
    x = texts(3, 2)[5:6].repeat(40_000, 1)
    s, t = torch.full((len(x),), 0.3), torch.full((len(x),), 0.6)
    calls = SamplingDenoiser(process, process, denoiser, length=2)
    free = torch.ones_like(x, dtype=torch.bool)
    found = Ancestral(2).step(calls, x, s, t, free, torch.Generator().manual_seed(0))
    law = denoiser(x[:1], t[:1]).reverse(process.dense(), x[:1], s[:1, None].expand(1, 2), t[:1, None].expand(1, 2)).exp()[0]
    wanted = (law[0][:, None] * law[1]).flatten()
    assert chi_square(torch.bincount(toy.index(found), minlength=9), wanted) > 1e-4


def test_gumbel_noise_of_float32_has_its_resolution() -> None:
    """u is rounded down to a multiple of 2⁻²⁴: a token of weight p needs −log u as small as p against that of the other."""
    step = 2.0**-24
    probs = torch.tensor([[0.5, 0.5]])
    assert int(gumbel_argmax(probs, torch.tensor([[1 - 1.5 * step, 1 - 2.5 * step]]))) == 0  # 1 − 2 and 1 − 3 steps
    assert int(gumbel_argmax(probs, torch.tensor([[1 - 2.9 * step, 1 - 2.1 * step]]))) == 0  # the same number: the first
    assert int(gumbel_argmax(probs, torch.tensor([[1 - 2.9 * step, 1 - 1.9 * step]]))) == 1
    assert int(gumbel_argmax(probs, torch.tensor([[1 - 3.5 * step, 1 - 2.5 * step]]))) == 1  # no coarser: 1 − 4 and 1 − 3 steps


def test_the_exact_mean_is_a_fixed_point_of_nothing_but_itself() -> None:
    """Sample one position of an exact model of uniform noise: the result follows p(x_0)."""
    toy = Toy(4, 1)
    process = Uniform(4, Linear())
    found = sample(process, Exact(toy, process, "mean"), batch=20_000, length=1, sampler=Ancestral(3), seed=0)
    assert chi_square(torch.bincount(found[:, 0], minlength=4), toy.p) > 1e-4
