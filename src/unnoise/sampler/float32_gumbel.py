"""Drawing as several papers' code did, with Gumbel noise in float32: an artefact, kept to reproduce their figures.

Each step draws a token, or the mask again, as argmax of p_y / (10⁻¹⁰ − log(u_y + 10⁻¹⁰)) with float32 uniforms u = k·2⁻²⁴. Rare
tokens need a u nearer to 1 than 1 − 2⁻²⁴ and come out too seldom, so that texts are less varied than the model and look better
than they are (docs/precision.md). No sampler draws so by default.
"""

from dataclasses import dataclass

from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator, uniform
from unnoise.sampler.base import GridSampler
from unnoise.sampler.masked import MaskedSampler

LEVELS = 2**24  # values that a float32 uniform number has
TINY = 1e-10


@dataclass(frozen=True)
class Float32Gumbel(MaskedSampler, GridSampler):
    """The ancestral sampler of masked noise, each position drawn over all tokens and the mask by float32 Gumbel noise."""

    @property
    def keeps_distribution(self) -> bool:
        return False

    @property
    def distribution(self) -> str:
        return "does not keep the model's distribution: float32 Gumbel noise loses rare tokens, an artefact"

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        where = denoiser.process.active(x) & free
        if not bool(where.any()):
            return x
        prediction = denoiser.predict(x, t, where)
        x_t, at = x[where], t[:, None].expand(x.shape)[where]
        if s is None:
            log_p = prediction.clean(denoiser.process, x_t, at)
        else:
            log_p = prediction.reverse(denoiser.process, x_t, s[:, None].expand(x.shape)[where], at)
        places = where[..., None].expand(*where.shape, log_p.shape[-1])
        u = uniform(places.shape, x.device, generator, places).view(log_p.shape)
        return x.masked_scatter(where, gumbel_argmax(log_p.exp(), u))


def gumbel_argmax(probs: Tensor, u: Tensor) -> Tensor:
    """argmax_y p_y / (10⁻¹⁰ − log(u_y + 10⁻¹⁰)) in float32, u rounded down to a multiple of 2⁻²⁴: [n, S] → [n] long."""
    coarse = ((u * LEVELS).floor() / LEVELS).float()
    return (probs.float() / (TINY - (coarse + TINY).log())).argmax(-1)
