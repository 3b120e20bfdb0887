"""Properties that hold for every input, searched by hypothesis."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from cases import ENDLESS, PROCESSES, SCHEDULES, build
from unnoise import (
    Ancestral,
    Elbo,
    EulerLeaping,
    FirstHitting,
    Masked,
    MeanPrediction,
    Prediction,
    Process,
    ScorePrediction,
    TweedieLeaping,
    sample,
)

FAST = settings(max_examples=25, deadline=None)
COMBINED = [(p, s) for p in PROCESSES for s in SCHEDULES if not (p.startswith("masked ") and s in (*ENDLESS, "unfinished"))]
NAMES = st.sampled_from([*COMBINED, ("masked", "per-token")])
TIMES = st.floats(0.01, 0.99)
SEEDS = st.integers(0, 2**31 - 1)
VOCAB = 4


def positions(process: Process, t: float, seed: int, n: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(VOCAB, (1, n), generator=generator)
    at = torch.tensor([t], dtype=torch.float64)
    return x[0], process.corrupt(x, at, generator)[0], at.expand(n)


def mean(n: int, seed: int, scale: float = 2.0) -> MeanPrediction:
    generator = torch.Generator().manual_seed(seed)
    return MeanPrediction.from_logits(scale * torch.randn(n, VOCAB, generator=generator, dtype=torch.float64))


@FAST
@given(NAMES, TIMES, st.floats(0.0, 0.99), SEEDS)
def test_posteriors_and_reverse_steps_sum_to_one(names: tuple[str, str], t: float, share: float, seed: int) -> None:
    process = build(*names, VOCAB)
    x, x_t, at = positions(process, t, seed)
    s = at * share
    for probs in (
        process.posterior(x, x_t, s, at),
        mean(len(x), seed).reverse(process, x_t, s, at).exp(),
        mean(len(x), seed).clean(process, x_t, at).exp(),
        process.marginal(x, at),
    ):
        assert (probs >= 0).all()
        assert torch.allclose(probs.sum(-1), torch.ones(len(x), dtype=torch.float64), atol=1e-6)


@FAST
@given(NAMES, TIMES, SEEDS)
def test_the_terms_of_the_bound_are_not_negative(names: tuple[str, str], t: float, seed: int) -> None:
    process = build(*names, VOCAB)
    x, x_t, at = positions(process, t, seed)
    prediction = mean(len(x), seed)
    assert (process.integrand(prediction, x, x_t, at) >= -1e-7).all()
    assert (process.kl(prediction, x, x_t, at * 0.8, at) >= -1e-7).all()
    assert (process.noise_kl(x) >= -1e-12).all()
    if process.reverse == "marginal":
        score = ScorePrediction(torch.randn(len(x), process.states, dtype=torch.float64))
        assert (process.integrand(score, x, x_t, at) >= -1e-7).all()


class Wild:
    """Any prediction at all, the same for the same input."""

    def __init__(self, process: Process, score: bool, dtype: torch.dtype = torch.float32):
        self.width = process.states if score else process.vocab
        self.score, self.dtype = score, dtype

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        angle = (x_t.sum(-1, keepdim=True) + torch.arange(x_t.shape[1]))[..., None] * torch.arange(1, self.width + 1)
        values = (torch.sin(angle.to(self.dtype)) + t[:, None, None]).to(self.dtype)
        values = values if where is None else values[where]
        return ScorePrediction(values) if self.score else MeanPrediction.from_logits(values)


SAMPLERS = st.sampled_from([Ancestral(7), Ancestral(7, "cosine"), EulerLeaping(7), TweedieLeaping(7), FirstHitting()])


@FAST
@given(NAMES, SAMPLERS, SEEDS, st.booleans())
def test_given_positions_never_change_and_seeds_repeat(names, sampler, seed: int, score: bool) -> None:
    process = build(*names, VOCAB)
    if (isinstance(sampler, FirstHitting) and names[0] != "masked") or names == ("masked", "per-token"):
        sampler = Ancestral(5)
    score = score and not sampler.mean_only
    generator = torch.Generator().manual_seed(seed)
    known = torch.randint(-1, VOCAB, (3, 6), generator=generator)
    drawn = [
        sample(process, Wild(process, score), batch=3, length=6, sampler=sampler, given=known, seed=seed) for _ in range(2)
    ]
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0][known >= 0], known[known >= 0])
    assert drawn[0].dtype == torch.long and drawn[0].shape == (3, 6)
    assert (drawn[0] >= 0).all() and (drawn[0] < VOCAB).all()


@FAST
@given(NAMES, st.integers(1, 5), st.integers(1, 7), st.sampled_from([torch.float32, torch.float64]), st.booleans(), SEEDS)
def test_shapes_and_dtypes(names, batch: int, length: int, dtype: torch.dtype, score: bool, seed: int) -> None:
    process = build(*names, VOCAB)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(VOCAB, (batch, length), generator=generator)
    t = torch.rand(batch, generator=generator)
    noisy = process.corrupt(x, t, generator)
    assert noisy.shape == x.shape and noisy.dtype == torch.long
    assert (noisy >= 0).all() and (noisy < process.states).all()
    assert process.prior((batch, length), generator).shape == (batch, length)
    nats = Elbo(process)(Wild(process, score and process.reverse == "marginal", dtype), x, generator)
    assert nats.shape == (batch,) and nats.is_floating_point() and torch.isfinite(nats).all()
    if names != ("masked", "per-token"):
        assert process.schedule.alpha(t).dtype == t.dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_has_the_dtype_of_the_prediction(dtype: torch.dtype) -> None:
    for name in ("masked", "uniform", "uniform plug-in"):
        for schedule in ("linear", "log-linear", "geometric"):
            process = build(name, schedule, VOCAB)
            x = torch.zeros(3, 5, dtype=torch.long)
            assert Elbo(process)(Wild(process, False, dtype), x, torch.Generator().manual_seed(0)).dtype == dtype


def test_an_unmasked_token_is_carried_over_whatever_the_network_says() -> None:
    process = Masked(VOCAB, SCHEDULES["linear"]())
    x_t = torch.tensor([0, 1, 2, 3])
    t = torch.full((4,), 0.5, dtype=torch.float64)
    prediction = mean(4, 0)
    assert torch.equal(prediction.clean(process, x_t, t).exp(), torch.eye(4, dtype=torch.float64))
    assert torch.equal(prediction.reverse(process, x_t, t / 2, t).exp()[:, :4], torch.eye(4, dtype=torch.float64))
    assert (process.integrand(prediction, x_t, x_t, t) == 0).all()
