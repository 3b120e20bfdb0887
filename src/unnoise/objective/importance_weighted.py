"""The importance-weighted bound: several orders of revealing a text, averaged as probabilities (IWAE, arXiv:1509.00519).

A masked model that ignores t reveals one token at a time in a uniformly random order o, so that

    p(x) = E_o w_o,   w_o = Π_k μ(x^{o_k} | x^{o_1}, …, x^{o_{k−1}}),   −log p(x) ≤ E −log (1/M) Σ_{m=1}^M w_{o_m}.

M = 1 is the bound of continuous time (ARDM, arXiv:2110.02037). It falls as M grows, and goes to −log p(x) itself. Each order
takes as many network calls as there are tokens.
"""

import math

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.base import Objective
from unnoise.process.base import Process
from unnoise.process.masked import Masked
from unnoise.rng import Generator, uniform

MOST_ORDERS = 1_000_000


class ImportanceWeighted(Objective):
    """−log (1/M) Σ_m Π_k μ(x^{o_k} | x^{o_{<k}}) with M random orders: [B].

    process: Masked, with one schedule for all tokens. orders: M. For denoisers that return a mean and ignore t.
    """

    process: Masked

    def __init__(self, process: Process, orders: int = 8):
        super().__init__()
        if not isinstance(process, Masked) or process.per_token:
            raise ValueError("the importance-weighted bound needs a Masked process with one schedule for all tokens")
        if isinstance(orders, bool) or not isinstance(orders, int) or not 1 <= orders <= MOST_ORDERS:
            raise ValueError(f"orders must be a whole number ≥ 1 (and ≤ {MOST_ORDERS:,}), found {orders!r}")
        self.process, self.orders = process, orders

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        ranks = [uniform(x.shape, x.device, generator).argsort(1).argsort(1) for _ in range(self.orders)]
        return self.at(denoiser, x, torch.stack(ranks))

    def at(self, denoiser: Denoiser, x: Tensor, ranks: Tensor) -> Tensor:
        """Compute the bound for given orders: x [B, L], ranks [M, B, L] in which positions are revealed → [B]."""
        weights = torch.stack([self.log_weight(denoiser, x, rank) for rank in ranks])  # [M, B, parts]
        return (math.log(len(ranks)) - weights.logsumexp(0)).sum(-1)

    def log_weight(self, denoiser: Denoiser, x: Tensor, rank: Tensor) -> Tensor:
        """Compute log w of one order for each part of a sequence (here one): [B, L] → [B, parts] float64."""
        total = x.new_zeros(len(x), 1, dtype=torch.float64)
        for k in range(x.shape[1]):
            x_t = x.masked_fill(rank >= k, self.process.mask)
            where = rank == k
            t = torch.full((len(x),), 1 - k / x.shape[1], dtype=torch.float64, device=x.device)
            prediction = predict(denoiser, self.process, x_t, t, where)
            total[:, 0] -= self.process.surprise(prediction, x[where], x_t[where], t).double()
        return total
