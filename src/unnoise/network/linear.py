"""Linear layers whose weights may be stored in lower precision than the inputs, for example memory-mapped on disk."""

from torch import Tensor, nn
from torch.nn import functional as F

RAISED = 2**22  # weights that are converted at once
STD = 0.02  # of initial weights


class Linear(nn.Linear):
    """xWᵀ + b in the precision of x: [*, in] → [*, out]. Its weights are drawn by `initialise`, for the whole network."""

    def reset_parameters(self) -> None:
        return

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute xWᵀ + b in the precision of x. A weight of lower precision is converted a few rows at a time, to save memory."""
    if weight.dtype.itemsize >= x.dtype.itemsize:
        return F.linear(x, weight, bias)
    y = x.new_empty(*x.shape[:-1], len(weight))
    rows = max(1, RAISED // weight.shape[1])
    for first in range(0, len(weight), rows):
        some = slice(first, first + rows)
        y[..., some] = F.linear(x, weight[some].to(x.dtype), None if bias is None else bias[some].to(x.dtype))
    return y


def initialise(decoder: nn.Module) -> None:
    """Draw the weights of a decoder: matrices from N(0, 0.02²); branches, biases and a separate output head start at zero."""
    for name, weight in decoder.named_parameters():
        if weight.is_meta:
            return
        if name.endswith((".out.weight", ".down.weight", "head.weight", ".bias")):
            nn.init.zeros_(weight)
        elif weight.dim() == 2:
            nn.init.normal_(weight, std=STD)
