"""Samplers, one idea a file."""

from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.base import Frame, Sampler, chain, sample
from unnoise.sampler.hitting import FirstHitting
from unnoise.sampler.leaping import EulerLeaping, TweedieLeaping
from unnoise.sampler.metropolis import Metropolis

__all__ = [
    "Ancestral",
    "EulerLeaping",
    "FirstHitting",
    "Frame",
    "Metropolis",
    "Sampler",
    "TweedieLeaping",
    "chain",
    "sample",
]
