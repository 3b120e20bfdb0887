"""The exponential moving average of weights (EMA), by torch's AveragedModel."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class WeightAverage:
    """ŵ ← d·ŵ + (1 − d)·w after each step, d = min(decay, (1 + n)/(10 + n)) after n steps.

    The warm-up lets the average forget the initial weights. Without it, and with a decay of 0.9999, they would still be nine
    tenths of the average after a thousand steps.
    """

    def __init__(self, module: nn.Module, decay: float):
        self.module = module
        self.live = nn.ParameterList(module.parameters())  # possibly sharded
        copies = nn.ParameterList(nn.Parameter(weight.detach().clone()) for weight in self.live)
        self.averaged = AveragedModel(copies, avg_fn=lambda mean, now, n: mean.lerp(now, 1 - warmed(decay, int(n))))

    @property
    def weights(self) -> dict[str, Tensor]:
        """Averaged weights by name."""
        names = [name for name, _ in self.module.named_parameters()]
        return {name: weight.detach() for name, weight in zip(names, self.averaged.module.parameters(), strict=True)}

    def update(self) -> None:
        """Update the average after a step."""
        self.averaged.update_parameters(self.live)

    def restore(self, steps: int) -> None:
        """Resume with `weights`, which hold the average after `steps` steps."""
        self.averaged.n_averaged.fill_(steps)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averaged weights into the module for the duration of the context."""
        kept = {name: weight.detach().clone() for name, weight in self.module.named_parameters()}
        try:
            put_parameters(self.module, self.weights)
            yield
        finally:
            put_parameters(self.module, kept)


def warmed(decay: float, steps: int) -> float:
    """Return the decay after a number of steps."""
    return min(decay, (1 + steps) / (10 + steps))


@torch.no_grad()
def put_parameters(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copy values into the parameters of a module, by name."""
    for name, weight in module.named_parameters():
        weight.copy_(values[name])
