"""Samplers, one idea a file."""

from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.base import Frame, Sampler, chain, sample
from unnoise.sampler.confidence import Confidence, LeastEntropy, Margin
from unnoise.sampler.correcting import PredictorCorrector
from unnoise.sampler.entropy_bound import EntropyBounded
from unnoise.sampler.hitting import FirstHitting
from unnoise.sampler.leaping import EulerLeaping, TweedieLeaping
from unnoise.sampler.metropolis import Metropolis
from unnoise.sampler.remasking import Remasking

__all__ = [
    "Ancestral",
    "Confidence",
    "EntropyBounded",
    "EulerLeaping",
    "FirstHitting",
    "Frame",
    "LeastEntropy",
    "Margin",
    "Metropolis",
    "PredictorCorrector",
    "Remasking",
    "Sampler",
    "TweedieLeaping",
    "chain",
    "sample",
]
