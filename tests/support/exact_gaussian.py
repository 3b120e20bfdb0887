"""Gaussian diffusion of one token, with the exact posterior."""

import torch
from torch import Tensor

from unnoise import Gaussian, MeanPrediction

P = torch.tensor([0.55, 0.3, 0.15], dtype=torch.float64)


def gaussian(**options) -> Gaussian:
    torch.manual_seed(0)
    return Gaussian(3, width=2, gamma=(-4.0, 5.0), **options).double()


class ExactGaussian:
    """p(x_0 | z_t) ∝ p(x_0) q(z_t | x_0), by Bayes' rule; `error` bends it."""

    def __init__(self, process: Gaussian, error: float = 0.0):
        self.process, self.error = process, error

    def __call__(self, z: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        logits = self.process.log_likelihood(z, t.double()) + P.log() + self.error * torch.tensor([1.0, -1.0, 0.5])
        return MeanPrediction.from_logits(logits)
