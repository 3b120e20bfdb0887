"""Samplers, one idea a file."""

from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.base import Frame, Sampler, chain, sample
from unnoise.sampler.hitting import FirstHitting
from unnoise.sampler.leaping import EulerLeaping, TweedieLeaping

__all__ = ["Ancestral", "EulerLeaping", "FirstHitting", "Frame", "Sampler", "TweedieLeaping", "chain", "sample"]
