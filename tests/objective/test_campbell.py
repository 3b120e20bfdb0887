"""Campbell et al.'s form of the bound: the same mean as ours by enumeration, and a larger variance."""

import pytest
import torch

from cases import build
from toy import Perturbed, Random, Toy, texts
from unnoise import CampbellElbo, Elbo

TOY = Toy(3, 2, seed=0)
pytestmark = pytest.mark.usefixtures("double")
CASES = [("masked", "linear", "mean"), ("masked", "cosine", "score"), ("uniform", "linear", "mean")]
CASES += [("uniform plug-in", "log-linear", "mean"), ("uniform", "cosine", "score"), ("banded", "linear", "mean")]


@pytest.mark.parametrize(("process", "schedule", "kind"), CASES)
@torch.no_grad()
def test_summed_over_every_jump_it_is_our_integrand(process: str, schedule: str, kind: str) -> None:
    made = build(process, schedule, 3)
    denoiser = Random(TOY, made, kind)
    ours, theirs = Elbo(made), CampbellElbo(made)
    states = texts(made.states, 2)
    for at in (0.2, 0.7):
        for x in TOY.x[[0, 4, 7]]:
            t = torch.full((len(states),), at)
            clean = x.expand(len(states), 2)
            q = made.marginal(clean, t[:, None].expand(clean.shape)).gather(-1, states[..., None])[..., 0].prod(-1)
            rates = theirs.exit_rates(states, t)
            chance = rates / rates.sum((1, 2), keepdim=True).clamp_min(1e-300)
            mean = torch.zeros(())
            for place in range(2):
                for state in range(made.states):
                    jumped = states.clone()
                    jumped[:, place] = state
                    possible = chance[:, place, state] > 0
                    value = theirs.at_jump(denoiser, clean, states, torch.where(possible[:, None], jumped, states), t)
                    mean = mean + (q * chance[:, place, state] * value.masked_fill(~possible, 0.0)).sum()
            stuck = rates.sum((1, 2)) == 0  # all masks: nothing to jump to
            if stuck.any():
                mean = mean + (q * stuck * theirs.at_jump(denoiser, clean, states, states, t)).sum()
            wanted = (q * ours.at(denoiser, clean, states, t)).sum()
            assert float(mean) == pytest.approx(float(wanted), abs=1e-9)


@pytest.mark.parametrize(("process", "ratio"), [("masked", 1.5), ("uniform", 0.0)])
@torch.no_grad()
def test_drawn_it_has_the_same_mean_and_for_masks_more_variance(process: str, ratio: float) -> None:
    """Under uniform noise the constant, which is not drawn, takes more variance away than the jump adds."""
    made, kind = build(process, "linear", 3), "mean"
    denoiser = Perturbed(TOY, made, kind)
    x = TOY.x[torch.multinomial(TOY.p, 4000, replacement=True, generator=torch.Generator().manual_seed(0))]
    draws = {}
    for name, bound in (("ours", Elbo(made, power=2.0)), ("campbell", CampbellElbo(made, power=2.0))):
        draws[name] = torch.cat([bound(denoiser, x, torch.Generator().manual_seed(i)) for i in range(10)])
    error = (sum(float(values.var()) for values in draws.values()) / 40_000) ** 0.5
    assert abs(float(draws["ours"].mean() - draws["campbell"].mean())) < 4 * error
    assert float(draws["campbell"].var()) > ratio * float(draws["ours"].var())
