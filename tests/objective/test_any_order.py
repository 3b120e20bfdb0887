"""The any-order bound is the masked bound; by enumeration."""

import itertools

import pytest
import torch

from bounds import integral
from toy import Exact, Random, Toy
from unnoise import AnyOrder, Elbo, Linear, Masked, PerToken, Uniform

TOY = Toy(4, 3, seed=1)


pytestmark = pytest.mark.usefixtures("double")


def enumerated(objective: AnyOrder, denoiser) -> torch.Tensor:
    """E over k and over the choice of hidden positions, for every text: [N]."""
    total = torch.zeros(len(TOY.x))
    for k in range(1, TOY.length + 1):
        choices = list(itertools.combinations(range(TOY.length), k))
        for choice in choices:
            hidden = torch.zeros_like(TOY.x, dtype=torch.bool)
            hidden[:, list(choice)] = True
            total += objective.at(denoiser, TOY.x, hidden) / len(choices) / TOY.length
    return total


def test_it_equals_the_masked_bound() -> None:
    process = Masked(4, Linear())
    for seed in range(3):
        denoiser = Random(TOY, process, seed=seed, time=0.0)
        any_order = float((TOY.p * enumerated(AnyOrder(process), denoiser)).sum())
        assert abs(any_order - integral(TOY, process, Elbo(process), denoiser)) < 1e-6


def test_it_is_the_entropy_for_the_exact_prediction() -> None:
    process = Masked(4, Linear())
    assert abs(float((TOY.p * enumerated(AnyOrder(process), Exact(TOY, process, "mean"))).sum()) - TOY.entropy) < 1e-9


def test_it_lies_above_the_likelihood_of_every_text() -> None:
    process = Masked(4, Linear())
    denoiser = Random(TOY, process, time=0.0)
    p = torch.zeros(len(TOY.x))
    orders = list(itertools.permutations(range(TOY.length)))
    for order in orders:
        canvas, log_p = torch.full_like(TOY.x, 4), torch.zeros(len(TOY.x))
        for i in order:
            log_p += denoiser(canvas, torch.zeros(len(canvas))).values[:, i].gather(1, TOY.x[:, i : i + 1])[:, 0]
            canvas[:, i] = TOY.x[:, i]
        p += log_p.exp() / len(orders)
    assert (enumerated(AnyOrder(process), denoiser) >= -p.log() - 1e-9).all()


def test_a_draw_is_unbiased_and_has_less_variance_than_the_bound_over_time() -> None:
    process = Masked(4, Linear())
    denoiser = Random(TOY, process, time=0.0)
    truth = float((TOY.p * enumerated(AnyOrder(process), denoiser)).sum())
    spreads = []
    for objective in (AnyOrder(process), Elbo(process)):
        generator = torch.Generator().manual_seed(0)
        means = torch.stack(
            [
                objective(denoiser, TOY.x[torch.multinomial(TOY.p, 200, True, generator=generator)], generator).mean()
                for _ in range(400)
            ]
        )
        assert abs(float(means.mean()) - truth) < 4 * float(means.std()) / 20
        spreads.append(float(means.std()))
    assert spreads[0] < spreads[1]


def test_mistakes() -> None:
    for process in (Uniform(4, Linear()), Masked(4, PerToken(4))):
        with pytest.raises(ValueError, match="needs a Masked process with one schedule"):
            AnyOrder(process)  # pyright: ignore[reportArgumentType]
