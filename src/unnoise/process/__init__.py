"""Forward processes, one file each, and the dense oracle."""

from unnoise.process.hybrid import HybridNoise, HybridSchedule
from unnoise.process.markov import Markov, MaskedMarkov
from unnoise.process.masked import Masked
from unnoise.process.process_base import Dense, Process
from unnoise.process.state import ProcessBase
from unnoise.process.uniform import Neighbourhood, Uniform

__all__ = [
    "Dense",
    "HybridNoise",
    "HybridSchedule",
    "Markov",
    "Masked",
    "MaskedMarkov",
    "Neighbourhood",
    "Process",
    "ProcessBase",
    "Uniform",
]
