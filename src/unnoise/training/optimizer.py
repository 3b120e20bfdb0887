"""Muon for the matrices of the blocks, Adam for everything else, in one optimiser.

Muon (Keller Jordan, 2024) replaces the momentum of a matrix by its nearest orthogonal one, by five Newton–Schulz iterations.
torch.optim.Muon runs them in bfloat16, which crawls on CPUs without it; here they run in the dtype of the weights.
"""

from collections.abc import Callable, Iterable
from typing import overload

import torch
from torch import Tensor, nn


def orthogonal(matrix: Tensor, iterations: int = 5) -> Tensor:
    """About U·Vᵀ of matrix = U·S·Vᵀ (singular values between 0.7 and 1.2): [n, m] → [n, m].

    X ← aX + (bA + cA²)X with A = XXᵀ, from X = matrix/‖matrix‖.
    """
    x = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Two groups: the block matrices with Nesterov momentum and orthogonalised updates, the others with Adam.

    `rate` scales both learning rates from step to step (warm-up and decay).
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        matrix_lr: float = 0.02,
        other_lr: float = 0.003,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
    ):
        groups = [
            {"params": list(matrices), "lr": matrix_lr, "orthogonal": True},
            {"params": list(others), "lr": other_lr, "orthogonal": False},
        ]
        super().__init__([group for group in groups if group["params"]], {"weight_decay": weight_decay})
        self.momentum, self.betas = momentum, betas
        self.rate = 1.0

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update with learning rates lr·rate; closure: computes the loss and its gradients once more, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr = group["lr"] * self.rate
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                weight.mul_(1 - lr * group["weight_decay"])
                state = self.state[weight]
                if not state:
                    state["first"] = torch.zeros_like(weight)
                    if not group["orthogonal"]:
                        state["second"] = torch.zeros_like(weight)
                    state["count"] = torch.zeros(())
                state["count"] += 1
                update = self._muon(weight.grad, state) if group["orthogonal"] else self._adam(weight.grad, state)
                weight.add_(update, alpha=-lr)
        return loss

    def _muon(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        momentum = min(self.momentum, 0.85 + float(state["count"]) * 3e-4)  # a short memory while the loss still falls fast
        state["first"].lerp_(gradient, 1 - momentum)
        update = orthogonal(gradient.lerp(state["first"], momentum))
        return update * max(1.0, gradient.shape[0] / gradient.shape[1]) ** 0.5

    def _adam(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        fast, slow = self.betas
        count = float(state["count"])
        state["first"].lerp_(gradient, 1 - fast)
        state["second"].lerp_(gradient.square(), 1 - slow)
        mean, square = state["first"] / (1 - fast**count), state["second"] / (1 - slow**count)
        return mean / (square.sqrt() + 1e-8)


def split(module: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Names and weights for Muon (matrices of linear layers, but not the output head) and for Adam (the rest)."""
    matrices, others = {}, {}
    linear = {
        id(layer.weight) for name, layer in module.named_modules() if isinstance(layer, nn.Linear) and not name.endswith("head")
    }
    for name, weight in module.named_parameters():
        (matrices if id(weight) in linear else others)[name] = weight
    return matrices, others
