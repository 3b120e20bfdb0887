"""A mistake is answered with what was expected and what was found."""

import pytest
import torch
from torch import Tensor

import unnoise
from unnoise import (
    Ancestral,
    ConcreteScore,
    CrossEntropy,
    Elbo,
    EulerLeaping,
    FirstHitting,
    Hybrid,
    LeaveOneOut,
    Linear,
    LogLinear,
    Markov,
    Masked,
    MeanPrediction,
    PerToken,
    Schedule,
    ScorePrediction,
    TweedieLeaping,
    Uniform,
    sample,
)

MASKED = Masked(4, Linear())
X = torch.zeros(2, 3, dtype=torch.long)
T = torch.full((2,), 0.5)


def mean(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
    return MeanPrediction.from_logits(torch.zeros(*x_t.shape, 4))


def score(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> ScorePrediction:
    return ScorePrediction(torch.zeros(*x_t.shape, 5))


class Rising(Linear):
    def alpha(self, t: Tensor) -> Tensor:
        return t


class Negative(Linear):
    def alpha(self, t: Tensor) -> Tensor:
        return 1 - 2 * t


class Learned(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))


def draw(**changes: object) -> Tensor:
    arguments: dict = {"batch": 2, "length": 3, "sampler": Ancestral(4), "seed": 0} | changes
    denoiser = arguments.pop("denoiser", mean)
    return sample(arguments.pop("process", MASKED), denoiser, **arguments)


MISTAKES = {
    "token too large": (lambda: MASKED.corrupt(X + 4, T), r"tokens must lie in 0…3, found 4 to 4"),
    "token negative": (lambda: Elbo(MASKED)(mean, X - 1), r"tokens must lie in 0…3, found -1 to -1"),
    "tokens not whole": (lambda: MASKED.corrupt(X.float(), T), r"long tensor of shape \[B, L\], found torch.float32"),
    "tokens of one dimension": (lambda: Elbo(MASKED)(mean, X[0]), r"shape \[B, L\], found torch.int64 \[3\]"),
    "time above one": (lambda: MASKED.corrupt(X, T + 1), r"times must lie in \[0, 1\], found 1.5 to 1.5"),
    "time below zero": (lambda: MASKED.corrupt(X, T - 1), r"times must lie in \[0, 1\], found -0.5"),
    "time not a number": (lambda: MASKED.corrupt(X, T * torch.nan), r"times must lie in \[0, 1\]"),
    "as many times as texts": (lambda: MASKED.corrupt(X, torch.rand(3)), r"shape \[2\], one for each sequence"),
    "whole times": (lambda: MASKED.corrupt(X, torch.zeros(2, dtype=torch.long)), r"times must be a float tensor"),
    "given of the wrong shape": (lambda: draw(given=X[:, :2]), r"given must be a long tensor of shape \[2, 3\]"),
    "given of the wrong type": (lambda: draw(given=X.float()), r"found torch.float32 \[2, 3\]"),
    "given out of range": (lambda: draw(given=X + 4), r"tokens 0…3, or -1 where free, found 4 to 4"),
    "given below -1": (lambda: draw(given=X - 2), r"or -1 where free, found -2"),
    "no steps": (lambda: Ancestral(0), r"steps must be a whole number ≥ 1 .*, found 0"),
    "negative steps": (lambda: EulerLeaping(-3), r"found -3"),
    "half a step": (lambda: TweedieLeaping(2.5), r"found 2.5"),  # pyright: ignore[reportArgumentType]
    "a step that is no number": (lambda: Elbo(MASKED, steps=True), r"whole number of steps"),
    "a vocabulary that is no number": (lambda: Masked(4.0, Linear()), r"found vocab = 4.0"),  # pyright: ignore[reportArgumentType]
    "tokens in a list": (lambda: Elbo(MASKED)(mean, [[0]]), r"found list"),  # pyright: ignore[reportArgumentType]
    "a bare time": (lambda: MASKED.corrupt(X, 0.5), r"found float"),  # pyright: ignore[reportArgumentType]
    "given in a list": (lambda: draw(given=[[0]]), r"found list"),
    "a sampler's name": (lambda: draw(sampler="ancestral"), r"found 'ancestral'"),
    "leaving out a process": (lambda: LeaveOneOut(MASKED), r"needs an objective"),  # pyright: ignore[reportArgumentType]
    "whole log-probabilities": (
        lambda: draw(denoiser=lambda x_t, t, where=None: MeanPrediction(torch.zeros(*x_t.shape, 4, dtype=torch.long))),
        r"floating-point numbers",
    ),
    "a generator of NaN": (lambda: Markov(torch.full((2, 2), torch.nan), Linear()), r"finite numbers"),
    "a learned schedule and uniform noise": (lambda: Uniform(4, Learned()), r"needs a fixed schedule"),
    "an unknown grid": (lambda: Ancestral(4, "linear"), r'"uniform" or "cosine"'),  # pyright: ignore[reportArgumentType]
    "bound of no steps": (lambda: Elbo(MASKED, steps=0), r"steps ≥ 1, or None"),
    "steps and start": (lambda: Elbo(MASKED, steps=5, start=0.1), r"for continuous time"),
    "no batch": (lambda: draw(batch=0), r"batch must be ≥ 1, found 0"),
    "no length": (lambda: draw(length=0), r"length must be ≥ 1, found 0"),
    "an increasing schedule": (lambda: Masked(4, Rising()), r"must decrease from t = 0 to t = 1"),
    "a schedule below zero": (lambda: Masked(4, Negative()), r"must lie in \[0, 1\], found -1"),
    "no schedule": (lambda: Masked(4, "linear"), r"needs a Schedule such as Linear\(\), found str"),  # pyright: ignore[reportArgumentType]
    "a mean needed by ancestral": (lambda: draw(denoiser=score), r"Ancestral needs a denoiser that returns a MeanPrediction"),
    "a mean needed by first-hitting": (
        lambda: draw(denoiser=score, sampler=FirstHitting()),
        r"FirstHitting needs a denoiser that returns a MeanPrediction, found ScorePrediction",
    ),
    "first-hitting uniform noise": (
        lambda: draw(process=Uniform(4, Linear()), sampler=FirstHitting()),
        r"needs a Masked process",
    ),
    "first-hitting learned schedules": (
        lambda: draw(process=Masked(4, PerToken(4)), sampler=FirstHitting()),
        r"one schedule for all tokens",
    ),
    "temperature of a score": (
        lambda: draw(denoiser=score, sampler=EulerLeaping(3, temperature=0.5)),
        r"temperature and top_p shape a mean",
    ),
    "negative temperature": (lambda: Ancestral(4, temperature=-1.0), r"temperature must be 0, or lie between .*, found -1"),
    "top-p of zero": (lambda: Ancestral(4, top_p=0.0), r"top_p must lie in \(0, 1\], found 0"),
    "a bare tensor": (lambda: draw(denoiser=lambda x_t, t, where=None: torch.zeros(2, 3, 4)), r"found Tensor"),
    "too narrow a prediction": (
        lambda: draw(denoiser=lambda x_t, t, where=None: MeanPrediction(torch.zeros(*x_t.shape, 3))),
        r"must return a MeanPrediction of shape .* found \[\d, 3, 3\]",
    ),
    "a score without the mask": (
        lambda: Elbo(MASKED)(lambda x_t, t, where=None: ScorePrediction(torch.zeros(*x_t.shape, 4)), X),
        r"must return a ScorePrediction of shape",
    ),
    "an empty vocabulary": (lambda: Masked(0, Linear()), r"at least one token, found vocab = 0"),
    "another vocabulary's schedule": (lambda: Masked(4, PerToken(5)), r"needs PerToken\(4\), found PerToken\(5\)"),
    "learned schedules and uniform noise": (lambda: Uniform(4, PerToken(4)), r"PerToken is for Masked"),
    "learned schedules and Markov noise": (lambda: Markov(torch.zeros(2, 2), PerToken(2)), r"PerToken is for Masked"),
    "an unknown reverse": (lambda: Uniform(4, Linear(), reverse="mean"), r'"marginal" or "plug-in"'),  # pyright: ignore[reportArgumentType]
    "a generator that is not square": (lambda: Markov(torch.zeros(2, 3), Linear()), r"square matrix"),
    "a generator with negative rates": (
        lambda: Markov(torch.tensor([[1.0, -1.0], [1.0, -1.0]]), Linear()),
        r"must be ≥ 0, found a negative one",
    ),
    "a generator that leaks": (lambda: Markov(torch.tensor([[-1.0, 2.0], [1.0, -1.0]]), Linear()), r"must sum to zero"),
    "a generator that never mixes": (lambda: Markov(torch.zeros(3, 3), Linear()), r"never mix"),
    "neighbours that never mix": (
        lambda: Markov.nearest(torch.tensor([[0.0], [1.0], [50.0], [51.0]]), Linear(), neighbours=1),
        r"use more neighbours",
    ),
    "too many neighbours": (lambda: Markov.nearest(torch.randn(4, 2), Linear(), neighbours=4), r"1…3, found 4"),
    "embeddings of one dimension": (lambda: Markov.nearest(torch.randn(4), Linear()), r"shape \[K, D\]"),
    "a band of no width": (lambda: Markov.banded(4, Linear(), width=0.0), r"width > 0"),
    "a start at the end": (lambda: CrossEntropy(MASKED, start=1.0), r"start must lie in \[0, 1\)"),
    "a power of zero": (lambda: Elbo(MASKED, power=0.0), r"power must be > 0"),
    "a negative weight": (lambda: Hybrid(MASKED, 4, weight=-1.0), r"must be ≥ 0, found -1"),
    "squared scores from zero": (lambda: ConcreteScore(MASKED, start=-0.1), r"start must lie in"),
    "network-free uniform noise": (
        lambda: Elbo(Uniform(4, LogLinear()), network_free=True),
        r"needs a Masked process, found Uniform",
    ),
    "an unknown recipe": (lambda: unnoise.recipe("mdml-owt"), r"unknown recipe 'mdml-owt': did you mean 'mdlm-owt'\?"),
    "a recipe in no file": (lambda: unnoise.recipe("nowhere.py"), r"there is no file nowhere\.py"),
    "an unknown schedule of md4": (
        lambda: unnoise.method("md4:schedule=square"),
        r"linear, cosine or poly with an exponent, found 'square'",
    ),
    "an unknown optimizer": (lambda: unnoise.TrainingOptions(optimizer="sgd"), r"must be muon or adamw, found 'sgd'"),  # pyright: ignore[reportArgumentType]
    "an unknown method": (lambda: unnoise.method("mdml"), r"unknown method 'mdml': did you mean 'mdlm'\? use one of .*mdlm"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    call, words = MISTAKES[mistake]
    with pytest.raises(ValueError, match=words):
        call()


def test_a_schedule_of_ones_own_is_welcome() -> None:
    class Square(Schedule):
        """α(t) = (1 − t)²."""

        def alpha(self, t: Tensor) -> Tensor:
            return (1 - t) ** 2

        def alpha_prime(self, t: Tensor) -> Tensor:
            return -2 * (1 - t)

        def inverse(self, alpha: Tensor) -> Tensor:
            return 1 - alpha.sqrt()

    process = Masked(4, Square())
    assert torch.isfinite(Elbo(process)(mean, X)).all()
    assert sample(process, mean, batch=2, length=3, sampler=FirstHitting()).shape == (2, 3)
