"""The any-order autoregressive model (ARDM, arXiv:2110.02037): tokens are revealed one at a time, in a random order.

−log p(x) ≤ L·E_{k ~ U{1…L}} E_{k random positions hidden} (1/k) Σ_{hidden} −log μ(x^i | the rest). The number of hidden tokens
is drawn instead of a time; in expectation that is the masked bound of continuous time, with less variance.
"""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, ask
from unnoise.objective import Objective, stratified
from unnoise.process.base import Process, gather
from unnoise.process.masked import Masked


class AnyOrder(Objective):
    """L/k·Σ over k hidden positions of −log μ(x^i | x^{visible}), k uniform in 1…L and stratified over the batch: [B].

    A bound on −log p of every time-free masked mean. The denoiser is told t = k/L.
    """

    process: Masked

    def __init__(self, process: Process):
        super().__init__()
        if not isinstance(process, Masked) or process.per_token:
            raise ValueError("AnyOrder needs a Masked process with one schedule for all tokens")
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.process.check_tokens(x)
        batch, length = x.shape
        count = (stratified(batch, x.device, generator) * length).long() + 1
        order = torch.rand(x.shape, generator=generator, device=x.device).argsort(1).argsort(1)
        return self.at(denoiser, x, order < count[:, None])

    def at(self, denoiser: Denoiser, x: Tensor, hidden: Tensor) -> Tensor:
        """The value for one choice of hidden positions: x [B, L], hidden [B, L] bool → [B]."""
        count = hidden.sum(1)
        t = count.double() / x.shape[1]
        x_t = x.masked_fill(hidden, self.process.mask)
        prediction = ask(denoiser, self.process, x_t, t, hidden)
        rows = torch.arange(len(x), device=x.device)[:, None].expand(x.shape)[hidden]
        nats = -gather(prediction.clean(self.process, x_t[hidden], t[rows]), x[hidden])
        weight = x.shape[1] / count.to(nats.dtype)
        return weight * nats.new_zeros(len(x)).index_add(0, rows, nats)
