"""Gaussian diffusion in T steps on pixel values or token embeddings: the tables of β_t and the process (arXiv:2006.11239).

With α_t = 1 − β_t and ᾱ_t = Π_{i≤t} α_i:

    q(x_t | x_{t−1}) = N(√α_t x_{t−1}, β_t I)              q(x_t | x_0) = N(√ᾱ_t x_0, (1 − ᾱ_t) I)
    q(x_{t−1} | x_t, x_0) = N(μ̃_t, β̃_t I)                 β̃_t = β_t (1 − ᾱ_{t−1})/(1 − ᾱ_t)
    μ̃_t = [√ᾱ_{t−1} β_t x_0 + √α_t (1 − ᾱ_{t−1}) x_t]/(1 − ᾱ_t) = (x_t − β_t/√(1 − ᾱ_t)·ε)/√α_t

The model is p(x_{t−1} | x_t) = N(μ_θ(x_t, t), σ_t² I) for t ≥ 2, σ_t² = β_t or β̃_t. p(x_0 | x_1) assigns each token the
probability of the bin around its level, or of its embedding among all embeddings.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.families.gaussian import GaussianNoise, rows
from unnoise.process.process_base import gather

LARGEST = 0.999  # largest β_t; the last steps of the cosine and square-root tables would otherwise leave no signal


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

    Embeddings of different tokens are far apart, and a little noise does not hide them, so the first step adds more noise.
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


Target = Literal["eps", "x0", "mean"]
Variance = Literal["beta", "posterior"]
Embed = Literal["values", "fixed", "learned"]


class Ddpm(GaussianNoise):
    """Gaussian noise in T steps on the values of pixels or on the embeddings of tokens. States z: [B, L, D] float64.

    Step i = 1…T is the time t = i/T.

    betas: β_1 … β_T, any sequence of numbers in (0, 1); DDPM's linear table with T = 1000 by default.
    target: the quantity that a denoiser returns: eps (ε), x0 (x_0) or mean (μ̃_t).
    variance: σ_t² of the reverse step, posterior (β̃_t) or beta (β_t). β̃_t is optimal for tokens, whose vectors are single
        points. With β_t the bound exceeds the entropy by Σ ½(r − 1 − log r), r = β̃_t/β_t, for each number, for every T.
    embed: values (token k is the number −1 + 2k/(K − 1), D = 1, for pixels), or fixed or learned vectors of length √D.
    width: D of embeddings.
    """

    betas: Tensor
    alpha_bar: Tensor
    one_minus_alpha_bar: Tensor
    levels: Tensor

    def __init__(
        self,
        vocab: int,
        betas: Tensor | np.ndarray | Sequence[float] | None = None,
        target: Target = "eps",
        variance: Variance = "posterior",
        embed: Embed = "values",
        width: int = 16,
    ):
        super().__init__(vocab)
        for name, value, known in (("target", target, Target), ("variance", variance, Variance), ("embed", embed, Embed)):
            if value not in get_args(known):
                raise ValueError(f"the {name} of ddpm is {' or '.join(get_args(known))}, found {value!r}")
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise ValueError(f"embeddings need a width of at least one number, found {width!r}")
        self.target, self.variance, self.embed = target, variance, embed
        self.width = 1 if embed == "values" else width
        table = linear_betas() if betas is None else checked_betas(betas)
        log_signal = torch.cat([table.new_zeros(1), torch.log1p(-table).cumsum(0)])
        self.register_buffer("betas", table, persistent=False)
        self.register_buffer("alpha_bar", log_signal.exp(), persistent=False)  # ᾱ_0 = 1, …, ᾱ_T
        self.register_buffer("one_minus_alpha_bar", -torch.expm1(log_signal), persistent=False)
        levels = torch.linspace(-1, 1, max(vocab, 2), dtype=torch.float64)[:vocab, None]
        self.register_buffer("levels", levels, persistent=False)
        self.embedding: nn.Parameter | None
        self.register_parameter("embedding", None)
        if embed != "values":
            drawn = torch.randn(vocab, width, generator=torch.Generator().manual_seed(0))
            self.embedding = nn.Parameter(drawn, requires_grad=embed == "learned")

    @property
    def steps(self) -> int:
        """T."""
        return len(self.betas)

    @property
    def frequencies(self) -> Tensor:
        """Frequencies of the sines and cosines of a value: (K − 1)π·2^{−j}, j = 0, 1, … down to about π: [F] float64.

        The first frequency has the distance between two levels as its period.
        """
        count = math.ceil(math.log2(max(self.vocab - 1, 2))) + 1
        return (self.vocab - 1) * math.pi * 0.5 ** torch.arange(count, dtype=torch.float64, device=self.device)

    @property
    def inputs(self) -> int:
        return self.width + 1 + (2 * len(self.frequencies) if self.embed == "values" else 0)

    def observe(self, z: Tensor) -> Tensor:
        """Return the input of a network: z, a one, and the sines and cosines of a value (arXiv:2107.00630): [B, L, inputs].

        The one preserves the scale of z when the network normalizes its input; the waves separate neighbouring levels.
        """
        parts = [z, torch.ones_like(z[..., :1])]
        if self.embed == "values":
            phase = z * self.frequencies.to(z.dtype)
            parts += [phase.sin(), phase.cos()]
        return torch.cat(parts, -1).to(torch.get_default_dtype())

    def table(self) -> Tensor:
        if self.embedding is None:
            return self.levels
        return nn.functional.normalize(self.embedding.double(), dim=-1) * self.width**0.5

    def step_of(self, t: Tensor) -> Tensor:
        """Return the index of the step that is nearest to a time, i = t·T: [B] → [B] long, 0…T."""
        return (t.double() * self.steps).round().long().clamp(0, self.steps)

    def time_of(self, step: Tensor) -> Tensor:
        """Return t = i/T: [B] long → [B] float64."""
        return step.double() / self.steps

    def signal(self, t: Tensor) -> Tensor:
        return self.alpha_bar[self.step_of(t)]

    def noise(self, t: Tensor) -> Tensor:
        return self.one_minus_alpha_bar[self.step_of(t)]

    # ---- targets -----------------------------------------------------------------------------------------------------

    def wanted(self, z_0: Tensor, z: Tensor, step: Tensor) -> Tensor:
        """Return the target ε, x_0 or μ̃_t at x_t = z: [B, L, D], [B] → [B, L, D]."""
        t = self.time_of(step)
        if self.target == "x0":
            return z_0
        if self.target == "eps":
            return (z - rows(self.signal(t).sqrt(), z) * z_0) / rows(self.noise(t).sqrt(), z)
        return self.posterior(z, z_0, self.time_of(step - 1), t)[0]

    def clean(self, value: Tensor, z: Tensor, step: Tensor, clip: bool = True) -> Tensor:
        """Convert a denoiser's prediction at x_t = z to x̂_0, the inverse of `wanted`: [B, L, D], [B] → [B, L, D].

        clip: clip pixel values to [−1, 1], which never moves them away from x_0.
        """
        t, value = self.time_of(step), value.to(z.dtype)
        if self.target == "x0":
            found = value
        elif self.target == "eps":
            found = (z - rows(self.noise(t).sqrt(), z) * value) / rows(self.signal(t).sqrt(), z)
        else:
            of_data, of_state, _ = self.posterior_coefficients(self.time_of(step - 1), t)
            found = (value - rows(of_state, z) * z) / rows(of_data, z)
        return found.clamp(-1, 1) if clip and self.embed == "values" else found

    # ---- the reverse step --------------------------------------------------------------------------------------------

    def reverse_variance(self, s: Tensor, t: Tensor, variance: Variance | None = None) -> Tensor:
        """Return σ² of p(x_s | x_t), 1 − ᾱ_t/ᾱ_s (β_t for neighbours) or its posterior share (β̃_t): [B], [B] → [B]."""
        if (variance or self.variance) == "beta":
            return self.step(s, t)[1]
        return self.posterior_coefficients(s, t)[2]

    def step_kl(self, z_0: Tensor, clean: Tensor, step: Tensor) -> Tensor:
        """Return L_{t−1} = KL(q(x_{t−1} | x_t, x_0) ‖ p(x_{t−1} | x_t)) of the steps t ≥ 2, summed over the sequence: [B].

        ‖μ̃_t − μ_θ‖²/(2σ_t²) + n/2·(r − 1 − log r) with r = β̃_t/σ_t² and n = L·D numbers; z_0, x̂_0: [B, L, D].
        """
        s, t = self.time_of(step - 1), self.time_of(step)
        of_data, _, posterior = self.posterior_coefficients(s, t)
        variance = self.reverse_variance(s, t)
        ratio = posterior / variance
        squares = (z_0 - clean).square().sum((-1, -2))
        return of_data.square() * squares / (2 * variance) + clean[0].numel() / 2 * (ratio - 1 - ratio.log())

    @property
    def decoder_variance(self) -> Tensor:
        """σ_1² of p(x_0 | x_1): β_1, or β̃_2 with the posterior variance, because β̃_1 = 0."""
        if self.variance == "beta" or self.steps == 1:
            return self.betas[0]
        return self.betas[1] * self.one_minus_alpha_bar[1] / self.one_minus_alpha_bar[2]

    def decoded(self, clean: Tensor) -> Tensor:
        """Return log p(x_0 = k | x_1) for every token from x̂_0 = μ_θ(x_1, 1): [B, L, D] → [B, L, K]."""
        if self.embed == "values":
            return self.bin_log_probability(clean, self.levels[:, 0])
        table, variance = self.table(), self.decoder_variance
        logits = (clean @ table.T - table.square().sum(-1) / 2) / variance  # −‖x̂_0 − E_k‖²/(2σ_1²) up to a constant
        return torch.log_softmax(logits if self.excluded is None else logits.masked_fill(self.excluded, -torch.inf), -1)

    def decoded_token(self, clean: Tensor, x: Tensor) -> Tensor:
        """Return log p(x_0 = x | x_1) from x̂_0: [B, L, D], [B, L] → [B, L]."""
        if self.embed == "values":
            return self.bin_log_probability(clean, self.levels[x])[..., 0]
        return gather(self.decoded(clean), x)

    def bin_log_probability(self, mean: Tensor, level: Tensor) -> Tensor:
        """Return log ∫ N(v; mean, σ_1²) dv over the bin of a level, h = 1/(K − 1) to both sides (the discretized decoder).

        The first bin begins at −∞, and the last ends at +∞. The two arguments are broadcast against each other.
        """
        sigma, half = self.decoder_variance.sqrt(), 1 / max(self.vocab - 1, 1)
        low = torch.where(level <= -1, -torch.inf, (level - half - mean) / sigma)
        high = torch.where(level >= 1, torch.inf, (level + half - mean) / sigma)
        flipped = low > 0  # in the lower tail differences of Φ keep their digits
        low, high = torch.where(flipped, -high, low), torch.where(flipped, -low, high)
        upper = torch.special.log_ndtr(high)
        return upper + torch.log(-torch.expm1(torch.special.log_ndtr(low) - upper))
