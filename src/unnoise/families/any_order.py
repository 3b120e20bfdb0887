"""The any-order autoregressive model (ARDM, arXiv:2110.02037): tokens are revealed one at a time, in a random order.

−log p(x) ≤ L·E_{k ~ U{1…L}} E_{k random positions hidden} (1/k) Σ_{hidden} −log μ(x^i | the rest). The number of hidden tokens
is drawn instead of a time; in expectation that is the masked bound of continuous time, with less variance.
"""

from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.base import Objective, sum_rows
from unnoise.objective.times import stratified
from unnoise.process.base import Process
from unnoise.process.masked import Masked
from unnoise.process.state import position_times
from unnoise.rng import Generator, uniform


class AnyOrder(Objective):
    """L/k·Σ over k hidden positions of −log μ(x^i | x^{visible}), k uniform in 1…L and stratified over the batch: [B].

    A bound on −log p of every time-free masked mean. The denoiser is given t = k/L.
    """

    process: Masked

    def __init__(self, process: Process):
        super().__init__()
        if not isinstance(process, Masked) or process.per_token:
            raise ValueError("AnyOrder needs a Masked process with one schedule for all tokens")
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        batch, length = x.shape
        count = (stratified(batch, x.device, generator) * length).long() + 1
        order = uniform(x.shape, x.device, generator).argsort(1).argsort(1)
        return self.at(denoiser, x, order < count[:, None])

    def at(self, denoiser: Denoiser, x: Tensor, hidden: Tensor) -> Tensor:
        """Compute the value for given masked positions: x [B, L], hidden [B, L] bool → [B]."""
        count = hidden.sum(1)
        t = count.double() / x.shape[1]
        x_t = x.masked_fill(hidden, self.process.mask)
        prediction = predict(denoiser, self.process, x_t, t, hidden)
        nats = self.process.surprise(prediction, x[hidden], x_t[hidden], position_times(t, x)[hidden])
        return x.shape[1] / count.to(nats.dtype) * sum_rows(nats, hidden)
