"""The learned shape of Gaussian noise: how γ(t) rises between its two ends."""

import torch
from torch import Tensor, nn


class NoiseShape(nn.Module):
    """A learned rising function g with g(0) = 0 and g(1) = 1, and its slope (Plaid, after VDM, arXiv:2107.00630).

    g = (f(t) − f(0))/(f(1) − f(0)), f(t) = t + Σ_k a_k·sigmoid(b_k t + c_k), a_k, b_k > 0.
    """

    def __init__(self, hidden: int = 32):
        super().__init__()
        self.height = nn.Parameter(torch.full((hidden,), -4.0))
        self.steepness = nn.Parameter(torch.linspace(1.0, 3.0, hidden))
        self.place = nn.Parameter(torch.linspace(1.0, -4.0, hidden))
        self.row_weight: Tensor | None = None

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """g(t) and g′(t): [B] → [B], [B]."""
        height, steepness = (nn.functional.softplus(value).to(t.dtype) for value in (self.height, self.steepness))
        ends = torch.tensor([0.0, 1.0], dtype=t.dtype, device=t.device)
        step = torch.sigmoid(steepness * torch.cat([t, ends])[:, None] + self.place.to(t.dtype))
        f = torch.cat([t, ends]) + step @ height
        slope = 1 + (step * (1 - step)) @ (height * steepness)
        found = (f[:-2] - f[-2]) / (f[-1] - f[-2]), slope[:-2] / (f[-1] - f[-2])
        for values in found:
            if values.requires_grad:
                values.register_hook(self._by_variance)
        return found

    def minimise_variance(self, nats: Tensor, scale: float) -> None:
        """Make the next gradient minimise E L², as 2 L·∇L of each row over a fixed scale; E L does not depend on g: [B]."""
        self.row_weight = 2 * nats.detach().double() / scale

    def _by_variance(self, gradient: Tensor) -> Tensor:
        same = self.row_weight is not None and self.row_weight.shape == gradient.shape
        return gradient * self.row_weight.to(gradient) if same and self.row_weight is not None else gradient
