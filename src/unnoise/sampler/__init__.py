"""Samplers for token processes."""

from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.base import Frame, Sampler, sample, sample_frames
from unnoise.sampler.confidence import Confidence
from unnoise.sampler.entropy_bound import EntropyBounded
from unnoise.sampler.first_hitting import FirstHitting
from unnoise.sampler.metropolis import Metropolis
from unnoise.sampler.predictor_corrector import PredictorCorrector
from unnoise.sampler.remasking import Remasking
from unnoise.sampler.tau_leaping import EulerLeaping, TweedieLeaping

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
