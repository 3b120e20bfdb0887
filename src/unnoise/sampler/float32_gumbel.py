"""Sampling with float32 Gumbel noise as in the code of several papers, to reproduce their results.

Each step samples a token, or the mask, as argmax of p_y / (10⁻¹⁰ − log(u_y + 10⁻¹⁰)) with float32 uniforms u = k·2⁻²⁴. Rare
tokens need u > 1 − 2⁻²⁴ and appear too seldom, so samples are less diverse than the model and score better than they should
(docs/precision.md). No sampler uses this by default.
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
    """Ancestral sampling of masked noise with float32 Gumbel noise over all tokens and the mask."""

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
    """Compute argmax_y p_y / (10⁻¹⁰ − log(u_y + 10⁻¹⁰)) in float32, u rounded down to a multiple of 2⁻²⁴: [n, S] → [n] long."""
    coarse = ((u * LEVELS).floor() / LEVELS).float()
    return (probs.float() / (TINY - (coarse + TINY).log())).argmax(-1)
