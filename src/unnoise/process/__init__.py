"""Forward noise: one file for each process, the dense oracle in `base`."""

from unnoise.process.base import Process
from unnoise.process.canvas import Canvas
from unnoise.process.markov import Markov
from unnoise.process.masked import Masked
from unnoise.process.uniform import Uniform

__all__ = ["Canvas", "Markov", "Masked", "Process", "Uniform"]
