"""Loss of a batch as one module, as DistributedDataParallel needs it."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from unnoise.model.model import Model
from unnoise.network.parameterization import Parameterization
from unnoise.objective import Objective
from unnoise.rng import RowGenerator, uniform

UNLABELLED_SHARE = 0.1  # fraction of labels hidden from the network, for classifier-free guidance


class BatchLoss(nn.Module):
    """Nats of each sequence under an objective: x [B, L], label [B] or None → [B].

    dtype: autocast dtype of the network's products, or None.
    dropout: dropout rate of the network's branches.
    learned: the network and the objective, which hold the parameters.
    """

    def __init__(self, model: Model, objective: Objective, dtype: torch.dtype | None = None, dropout: float = 0.0):
        super().__init__()
        self.model, self.objective, self.dtype, self.dropout = model, objective, dtype, dropout
        self.learned = nn.ModuleDict({"network": model.network, "objective": objective})

    def forward(self, x: Tensor, label: Tensor | None, generator: RowGenerator) -> Tensor:
        denoiser = self._conditioned(label, generator)
        with nullcontext() if self.dtype is None else torch.autocast(x.device.type, self.dtype):
            return self.objective(denoiser.with_dropout(self.dropout, generator) if self.dropout else denoiser, x, generator)

    def _conditioned(self, label: Tensor | None, generator: RowGenerator) -> Parameterization:
        """Return the denoiser conditioned on the labels of the batch, with a tenth of them hidden."""
        count = len(self.model.labels)
        if label is None or not count:
            return self.model.denoiser
        known = uniform(label.shape, label.device, generator) >= UNLABELLED_SHARE
        return self.model.denoiser.condition(torch.where(known, label, count))


def product_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the autocast dtype for a precision, or None. `auto` is bfloat16 on CUDA only: it is slow on most CPUs."""
    wanted = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if wanted else None
