"""The dense oracle: a process that uses only the formulas of the base class."""

from torch import Tensor

from unnoise.process.base import Process


class Dense(Process):
    """Another process, of which only the matrices and the boundary are used."""

    def __init__(self, process: Process):
        super().__init__(process.vocab, process.states, process.schedule, process.reverse)
        self.process = process
        self.mean_until = process.mean_until

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        return self.process.transition(s, t)

    def rate(self, t: Tensor) -> Tensor:
        return self.process.rate(t)

    def stationary(self) -> Tensor:
        return self.process.stationary()

    def active(self, x_t: Tensor) -> Tensor:
        return self.process.active(x_t)

    @property
    def residual_signal(self) -> float:
        return self.process.residual_signal

    def noise_kl(self, x: Tensor) -> Tensor:
        return self.process.noise_kl(x)
