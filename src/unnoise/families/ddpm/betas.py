"""Tables of β_1 … β_T, the variances of the noise that each of the T steps of Gaussian diffusion adds: [T] float64.

Any sequence of numbers in (0, 1) is a table too: `Ddpm(vocab, betas=array)`.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

LARGEST = 0.999  # of the cosine and square-root tables, whose last steps would otherwise leave no signal at all


def linear_betas(steps: int = 1000) -> Tensor:
    """Return β_t in a straight line from 10⁻⁴·c to 0.02·c with c = 1000/T (DDPM, arXiv:2006.11239, where T = 1000).

    The factor c keeps ᾱ_T near 4·10⁻⁵ for other T (arXiv:2102.09672). No β_t exceeds 0.999.
    """
    scale = 1000 / check_steps(steps)
    return torch.linspace(1e-4 * scale, 0.02 * scale, steps, dtype=torch.float64).clamp_max(LARGEST)


def cosine_betas(steps: int = 1000) -> Tensor:
    """Return β_t = 1 − ᾱ_t/ᾱ_{t−1} ≤ 0.999 with ᾱ_t ∝ cos²(π/2·(t/T + 0.008)/1.008) (arXiv:2102.09672)."""
    return betas_of_signal(lambda t: torch.cos(math.pi / 2 * (t + 0.008) / 1.008).square(), steps)


def sqrt_betas(steps: int = 1000) -> Tensor:
    """Return β_t = 1 − ᾱ_t/ᾱ_{t−1} ≤ 0.999 with ᾱ_t = 1 − √(t/T + 10⁻⁴), for embeddings (Diffusion-LM, arXiv:2205.14217).

    Embeddings of different tokens are far apart, so that little noise hides nothing: here the first step adds more of it.
    """
    return betas_of_signal(lambda t: 1 - (t + 1e-4).sqrt().clamp_max(1.0), steps)


def betas_of_signal(signal: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """Return β_t = 1 − ᾱ(t/T)/ᾱ((t−1)/T), at most 0.999, of a signal ᾱ that falls on [0, 1]."""
    alpha_bar = signal(torch.arange(check_steps(steps) + 1, dtype=torch.float64) / steps)
    return (1 - alpha_bar[1:] / alpha_bar[:-1]).clamp_max(LARGEST)


SCHEDULES: dict[str, Callable[[int], Tensor]] = {"linear": linear_betas, "cosine": cosine_betas, "sqrt": sqrt_betas}


def check_steps(steps: int) -> int:
    """Return the number of steps, or raise ValueError unless it is a whole number from 1 to 100,000."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 100_000:
        raise ValueError(f"a table of β_t needs a whole number of steps from 1 to 100,000, found {steps!r}")
    return steps


def checked_betas(betas: Tensor | np.ndarray | Sequence[float]) -> Tensor:
    """Return a table of β_t as float64 [T], or raise ValueError unless each lies in (0, 1)."""
    try:
        table = torch.as_tensor(np.asarray(betas, dtype=np.float64)).clone()
    except (TypeError, ValueError) as error:
        raise ValueError(f"betas must be a sequence of numbers, found {type(betas).__name__}") from error
    if table.dim() != 1:
        raise ValueError(f"betas must be one number for each step, [T], found the shape {list(table.shape)}")
    check_steps(len(table))
    if not bool(((table > 0) & (table < 1)).all()):
        wrong = int((~((table > 0) & (table < 1))).nonzero()[0])
        raise ValueError(f"each β_t must lie between 0 and 1, found β_{wrong + 1} = {float(table[wrong]):g}")
    return table
