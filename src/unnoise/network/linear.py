"""Products with weights that may be kept in less precision than is computed in, as where they lie memory-mapped on the disk."""

from torch import Tensor, nn
from torch.nn import functional as F

RAISED = 2**22  # numbers that are raised at once


class Linear(nn.Linear):
    """xWᵀ + b in the precision of x: [*, in] → [*, out]. The network that it belongs to draws its weights, once."""

    def reset_parameters(self) -> None:
        return

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """xWᵀ + b in the precision of x; a weight of less is raised to it, some rows at a time, so that it takes no more memory."""
    if weight.dtype.itemsize >= x.dtype.itemsize:
        return F.linear(x, weight, bias)
    y = x.new_empty(*x.shape[:-1], len(weight))
    rows = max(1, RAISED // weight.shape[1])
    for first in range(0, len(weight), rows):
        some = slice(first, first + rows)
        y[..., some] = F.linear(x, weight[some].to(x.dtype), None if bias is None else bias[some].to(x.dtype))
    return y
