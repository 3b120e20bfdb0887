"""The loss of a batch as one module, so that torch can average its gradients over processes (DistributedDataParallel)."""

import contextlib
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from unnoise import distributed
from unnoise.model.model import Model
from unnoise.network.parameterization import Parameterization
from unnoise.objective import Objective
from unnoise.rng import RowGenerator, uniform

UNLABELLED_SHARE = 0.1  # of labels kept from the network, so that it can also do without (for guidance)


class BatchLoss(nn.Module):
    """Nats of each text by an objective: x [B, L], label [B] or None → [B]. learned: the network and the objective.

    dropout: share of the features that each branch of the network leaves out.
    """

    def __init__(self, model: Model, objective: Objective, dropout: float = 0.0):
        super().__init__()
        self.model, self.objective, self.dropout = model, objective, dropout
        self.learned = nn.ModuleDict({"network": model.network, "objective": objective})

    def forward(self, x: Tensor, label: Tensor | None, generator: RowGenerator) -> Tensor:
        with precision(x.device):
            denoiser = self._conditioned(label, generator)
            return self.objective(denoiser.with_dropout(self.dropout, generator) if self.dropout else denoiser, x, generator)

    def _conditioned(self, label: Tensor | None, generator: RowGenerator) -> Parameterization:
        """The denoiser with the labels of the batch, but for a tenth of them."""
        count = len(self.model.labels)
        if label is None or not count:
            return self.model.denoiser
        known = uniform(label.shape, label.device, generator) >= UNLABELLED_SHARE
        return self.model.denoiser.condition(torch.where(known, label, count))


def averaged_over_processes(loss: BatchLoss) -> nn.Module:
    """The same with gradients that are averaged over all processes; itself where there is one."""
    if distributed.world() == 1:
        return loss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the option has another name in newer versions of torch
        return DistributedDataParallel(loss, broadcast_buffers=False)


def without_averaging(loss: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
    """For all parts of a batch but the last: gradients are added up before they are averaged."""
    return loss.no_sync() if isinstance(loss, DistributedDataParallel) and not last else contextlib.nullcontext()


def precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 on CUDA; plain float32 elsewhere, where bfloat16 is slow."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()
