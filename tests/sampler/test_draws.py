"""Rare tokens are drawn as often as they should be, also over a thousand sampling steps."""

import torch

from unnoise import Ancestral, Masked, MeanPrediction, sample
from unnoise.rng import draw
from unnoise.schedule import Linear

VOCAB, TAIL = 50_000, 10_000


def zipf() -> torch.Tensor:
    weights = 1 / torch.arange(1, VOCAB + 1, dtype=torch.float64)
    return weights / weights.sum()


def test_a_draw_matches_its_probabilities() -> None:
    probs = torch.tensor([0.5, 0.0, 0.2, 0.3, 0.0], dtype=torch.float64)
    drawn = draw(probs.expand(200_000, 5), torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=5) / len(drawn)
    assert torch.allclose(share.double(), probs, atol=5e-3)
    assert share[1] == 0 and share[4] == 0
    unnormalized = draw(7 * probs.expand(10, 5), torch.Generator().manual_seed(0))
    assert torch.equal(unnormalized, draw(probs.expand(10, 5), torch.Generator().manual_seed(0)))


def test_a_certain_outcome_is_always_drawn() -> None:
    for k in range(4):
        certain = torch.eye(4)[k].expand(1000, 4)
        assert (draw(certain, torch.Generator().manual_seed(k)) == k).all()


def tail_share(tokens: torch.Tensor) -> tuple[float, float]:
    """Return the share of ranks > 10,000 and its distance from the truth in standard errors."""
    truth = float(zipf()[TAIL:].sum())
    share = float((tokens >= TAIL).double().mean())
    return share, (share - truth) / (truth * (1 - truth) / tokens.numel()) ** 0.5


def test_the_tail_of_a_zipf_vocabulary_survives_a_thousand_steps() -> None:
    log_probs = zipf().log().float()

    def denoiser(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> MeanPrediction:
        assert where is not None
        return MeanPrediction(log_probs.expand(int(where.sum()), VOCAB))

    x = sample(Masked(VOCAB, Linear()), denoiser, batch=8, length=1000, sampler=Ancestral(1000), seed=0)
    share, errors = tail_share(x)
    assert abs(errors) < 4, f"tail share {share:.4f}, {errors:.1f} standard errors off"


def gumbel_float32_law(probs: torch.Tensor, move: float, quantiles: int = 400) -> torch.Tensor:
    """Compute the law of argmax(log p + Gumbel noise) when the noise −log(−log u) is made from float32 uniforms u = k·2⁻²⁴.

    One sampling step: the mask stays with probability 1 − move, token y is drawn with probability move·p_y. Against the
    mask's noise g a token needs −log(−log u) > g − log(move·p_y); that is the share of the 2²⁴ values of u above
    exp(−exp(−that)), averaged here over the quantiles of g: [K] → [K], normalized.
    """
    levels = (torch.arange(quantiles, dtype=torch.float64) + 0.5) / quantiles
    wins = torch.zeros_like(probs)
    for g in -torch.log(-torch.log(levels)):
        threshold = torch.exp(-torch.exp(-(g - torch.log(move * probs))))
        wins += (2**24 - 1 - torch.floor(threshold * 2**24)) / 2**24
    return wins / wins.sum()


def test_the_float32_gumbel_trick_would_lose_it() -> None:
    """Check that the usual trick fails the tail test above."""
    law = gumbel_float32_law(zipf(), move=1e-3)
    truth = float(zipf()[TAIL:].sum())
    assert float(law[TAIL:].sum()) < 0.25 * truth
    drawn = draw(law.expand(8000, VOCAB), torch.Generator().manual_seed(0))
    share, errors = tail_share(drawn)
    assert errors < -4, f"tail share {share:.4f}, {errors:.1f} standard errors off"
    # the formula is the trick's law: simulated where it is cheap, a head of two tokens and a tail of 300 rare ones
    small = torch.cat([torch.tensor([0.6, 0.3]), torch.full((300,), 0.1 / 300)]).double()
    move = 0.02
    u = torch.rand(100_000, 303, generator=torch.Generator().manual_seed(1))
    noisy = torch.cat([small * move, torch.tensor([1 - move])]).log().float() - torch.log(-torch.log(u))
    token = noisy.argmax(-1)
    token = token[token < 302]
    tail = float(gumbel_float32_law(small, move, 4000)[2:].sum())
    assert abs(float((token >= 2).double().mean()) - tail) < 4 * (tail * (1 - tail) / len(token)) ** 0.5
