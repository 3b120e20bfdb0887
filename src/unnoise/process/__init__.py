"""Forward processes, one file each, and the dense oracle."""

from unnoise.process.base import Process
from unnoise.process.dense import Dense
from unnoise.process.hybrid import HybridNoise, HybridSchedule
from unnoise.process.markov import Markov
from unnoise.process.masked import Masked
from unnoise.process.masked_markov import MaskedMarkov
from unnoise.process.neighbourhood import Neighbourhood
from unnoise.process.state import StateSpace
from unnoise.process.uniform import Uniform

__all__ = [
    "Dense",
    "HybridNoise",
    "HybridSchedule",
    "Markov",
    "Masked",
    "MaskedMarkov",
    "Neighbourhood",
    "Process",
    "StateSpace",
    "Uniform",
]
