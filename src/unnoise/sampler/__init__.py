"""Samplers for token processes."""

from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.leaping import EulerLeaping, PredictorCorrector, TweedieLeaping
from unnoise.sampler.metropolis import Metropolis
from unnoise.sampler.sampler_base import Frame, Sampler
from unnoise.sampler.sampling import sample, sample_frames
from unnoise.sampler.unmasking import Confidence, EntropyBounded, FirstHitting, Remasking

__all__ = [
    "Ancestral",
    "Confidence",
    "EntropyBounded",
    "EulerLeaping",
    "FirstHitting",
    "Frame",
    "Metropolis",
    "PredictorCorrector",
    "Remasking",
    "Sampler",
    "TweedieLeaping",
    "sample",
    "sample_frames",
]
