"""The combinations that make sense, named, for parametrised tests."""

from typing import Literal

import torch

from unnoise import (
    Cosine,
    CosineTable,
    Geometric,
    Linear,
    LogLinear,
    Markov,
    Masked,
    MaskedMarkov,
    Offset,
    PerToken,
    Polynomial,
    Process,
    Schedule,
    Uniform,
)

SCHEDULES = {
    "linear": Linear,
    "polynomial": lambda: Polynomial(1.7),
    "cosine": Cosine,
    "log-linear": lambda: LogLinear(1e-3),
    "unfinished": lambda: LogLinear(0.1),
    "geometric": lambda: Geometric(1e-4, 15.0),
    "cosine-table": lambda: CosineTable(50),
    "offset": lambda: Offset(Cosine(), 1e-3),
}


def per_token(vocab: int, seed: int = 3) -> PerToken:
    """Exponents between about 0.6 and 2.5."""
    schedule = PerToken(vocab).double()
    with torch.no_grad():
        schedule.theta.copy_(torch.empty(vocab).uniform_(-0.2, 2.4, generator=torch.Generator().manual_seed(seed)))
    return schedule


def lopsided(vocab: int, seed: int = 4) -> torch.Tensor:
    """Return a generator that is not reversible, so that it needs the matrix exponential: [K, K]."""
    rates = torch.rand(vocab, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.2
    rates.fill_diagonal_(0)
    q = rates - torch.diag(rates.sum(-1))
    return 1.5 * q / float(rates.sum(-1).min())


def banded(vocab: int, schedule: Schedule) -> Process:
    return Markov.banded(vocab, schedule, width=0.8)


def masked_banded(vocab: int, schedule: Schedule, reverse: Literal["marginal", "plug-in"] = "marginal") -> Process:
    """Masks, and neighbours that mix about as fast."""
    return MaskedMarkov(Markov.banded(vocab, LogLinear(0.2), width=0.8), schedule, reverse)


def nearest(vocab: int, schedule: Schedule) -> Process:
    points = torch.randn(vocab, 2, generator=torch.Generator().manual_seed(5))
    return Markov.nearest(points, schedule, neighbours=vocab - 1 if vocab < 4 else 2)


def birth_death(vocab: int, schedule: Schedule) -> Process:
    """Reversible, but with a stationary distribution that is not uniform."""
    q = torch.zeros(vocab, vocab, dtype=torch.float64)
    for i in range(vocab - 1):
        q[i, i + 1], q[i + 1, i] = 2.0, 1.0
    return Markov(q - torch.diag(q.sum(-1)), schedule)


# name → (process, the predictions that are exact for it)
PROCESSES = {
    "masked": (Masked, ["mean", "score"]),
    "uniform": (Uniform, ["mean", "score"]),
    "uniform plug-in": (lambda vocab, schedule: Uniform(vocab, schedule, reverse="plug-in"), ["leave-one-out"]),
    "banded": (banded, ["mean", "score"]),
    "nearest": (nearest, ["mean"]),
    "birth-death": (birth_death, ["mean", "score"]),
    "lopsided": (lambda vocab, schedule: Markov(lopsided(vocab), schedule), ["mean"]),
    "masked banded": (masked_banded, ["mean"]),
    "masked banded plug-in": (lambda vocab, schedule: masked_banded(vocab, schedule, "plug-in"), ["leave-one-out"]),
    "lopsided plug-in": (lambda vocab, schedule: Markov(lopsided(vocab), schedule, reverse="plug-in"), ["leave-one-out"]),
}

ENDLESS = ("log-linear", "geometric", "offset")  # schedules that never come to masks alone
# "unfinished" leaves so much signal at t = 1 that the exact prediction's bound is above the entropy: for estimators only
COMBINATIONS = [
    (process, schedule, kind)
    for process, (_, kinds) in PROCESSES.items()
    for schedule in SCHEDULES
    if schedule != "unfinished" and not (process.startswith("masked ") and schedule in ENDLESS)
    for kind in kinds
]
COMBINATIONS += [("masked", "per-token", "mean"), ("masked", "per-token", "score")]


def build(process: str, schedule: str, vocab: int) -> Process:
    made = per_token(vocab) if schedule == "per-token" else SCHEDULES[schedule]()
    return PROCESSES[process][0](vocab, made)
