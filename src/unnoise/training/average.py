"""The exponential moving average of weights (EMA)."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    """ŵ ← decay·ŵ + (1 − decay)·w after each step."""

    def __init__(self, module: nn.Module, decay: float):
        self.module, self.decay = module, decay
        self.weights = {name: weight.detach().clone() for name, weight in module.named_parameters()}

    def update(self) -> None:
        """After a step."""
        for name, weight in self.module.named_parameters():
            self.weights[name].lerp_(weight.detach(), 1 - self.decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The module with its averaged weights, for as long as this lasts."""
        kept = {name: weight.detach().clone() for name, weight in self.module.named_parameters()}
        try:
            put_parameters(self.module, self.weights)
            yield
        finally:
            put_parameters(self.module, kept)


@torch.no_grad()
def put_parameters(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copy values into a module's parameters by name."""
    for name, weight in module.named_parameters():
        weight.copy_(values[name])
