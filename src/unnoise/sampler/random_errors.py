"""The posterior of a text with random errors under a masked model.

Masked noise never changes one token into another, so its own posterior keeps every unmasked token. Here the text y is taken
to come from another channel: each token x^i was kept with probability 1 − ε and else replaced by one of the K tokens at random,

    q(y^i | k) = (1 − ε)·1[y^i = k] + ε/K.

A masked model gives μ_i(k) = p(x^i = k | x^{≠i}) with position i masked, so the conditional of one token is known:

    p(x^i = k | x^{≠i}, y) ∝ μ_i(k)·q(y^i | k).

Drawing the positions one after another from it, again and again, is Gibbs sampling. Its limit is the exact posterior
p(x | y) ∝ p(x)·Π_i q(y^i | x^i) when μ is exact.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict_clean
from unnoise.process.masked import Masked
from unnoise.rng import Generator, draw


def log_channel(process: Masked, observed: Tensor, rate: float) -> Tensor:
    """Compute log q(y | k) for every token k: observed [*P], ε = rate → [*P, K] float64."""
    other = torch.full((*observed.shape, process.vocab), rate / process.vocab, dtype=torch.float64, device=observed.device)
    kept = torch.full((*observed.shape, 1), 1 - rate, dtype=torch.float64, device=observed.device)
    return other.scatter_add(-1, observed[..., None], kept).log()


def conditionals(denoiser: Denoiser, process: Masked, x: Tensor, observed: Tensor, where: Tensor, rate: float) -> Tensor:
    """Compute log p(x^i = k | x^{≠i}, y) at one position i of each row: x, observed [B, L], where [B, L] bool → [B, K] float64.

    A network that conditions on the time gets t = 1/L, at which one position in L is masked with a linear schedule. With one
    schedule per token a mask tells something about its token, and q(mask | k) is divided out.
    """
    masked = x.masked_fill(where, process.mask)
    t = torch.full((len(x),), 1 / x.shape[1], dtype=torch.float64, device=x.device)
    log_mean = predict_clean(denoiser, process, masked, t, where).double()
    if process.per_token:
        log_mean = log_mean - process.column(masked[where], None, t)[..., : process.vocab].log()
    return torch.log_softmax(log_mean + log_channel(process, observed[where], rate), -1)


def site_posteriors(denoiser: Denoiser, process: Masked, observed: Tensor, rate: float, rows: int) -> Iterator[Tensor]:
    """Yield log p(x^i = k | x^{≠i} = y^{≠i}, y^i) for i = 0…L−1, some positions at a time: observed [L] → [≤ rows, K] each.

    All other tokens are taken as they are in y, so this is exact where they have no errors, or do not matter.
    """
    each = torch.eye(len(observed), dtype=torch.bool, device=observed.device)
    for where in each.split(rows):
        texts = observed.expand(len(where), -1)
        yield conditionals(denoiser, process, texts, texts, where, rate)


def gibbs_sweeps(
    denoiser: Denoiser, process: Masked, observed: Tensor, rate: float, sweeps: int, generator: Generator
) -> Iterator[Tensor]:
    """Yield the state after each update of Gibbs sampling from p(x | y): observed [B, L] → [B, L], `sweeps`·L times.

    A sweep updates each position once, from left to right. The chain starts at y.
    """
    x = observed
    for _ in range(sweeps):
        for i in range(observed.shape[1]):
            where = torch.zeros_like(observed, dtype=torch.bool)
            where[:, i] = True
            log_p = conditionals(denoiser, process, x, observed, where, rate)
            x = x.masked_scatter(where, draw(log_p.exp(), generator, where))
            yield x
