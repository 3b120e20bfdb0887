"""Training over several processes by PyTorch's own engines: DistributedDataParallel, or FSDP2 (`fully_shard`) with shards.

With DDP every process has a copy of weights, gradients and moments, and gradients are averaged. With shards each has 1/n of
all three: a block's weights are gathered before it computes and let go after, and gradients are averaged as they are shared out
(reduce-scatter).
"""

import contextlib
import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from unnoise import distributed
from unnoise.training.loss import BatchLoss


def over_processes(loss: BatchLoss, shard: bool, dtype: torch.dtype | None) -> nn.Module:
    """The loss with gradients that are averaged over all processes; itself where there is one. dtype: of the products."""
    if distributed.world() == 1:
        return loss
    if shard:
        shard_network(loss.model.network, dtype)
        return loss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the option has another name in newer versions of torch
        return DistributedDataParallel(loss, broadcast_buffers=False)


def shard_network(network: nn.Module, dtype: torch.dtype | None = None, mesh: Any = None) -> None:
    """Share out a network's weights, block by block, then what is left. Sums of gradients are float32.

    Blocks are the members of its ModuleLists. mesh: of the processes; all of them by default.
    """
    policy = MixedPrecisionPolicy(dtype, torch.float32, torch.float32 if dtype else None, cast_forward_inputs=False)
    for block in blocks(network):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, mp_policy=policy)


def blocks(network: nn.Module) -> list[nn.Module]:
    """The members of a network's ModuleLists."""
    return [block for part in network.children() if isinstance(part, nn.ModuleList) for block in part]


def recompute_blocks(network: nn.Module) -> None:
    """Let each block keep only its input for the backward pass, and compute the rest again there."""
    for block in blocks(network):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


@contextlib.contextmanager
def without_averaging(loss: nn.Module, last: bool) -> Iterator[None]:
    """For all parts of a batch but the last: gradients are added up before they are averaged."""
    if isinstance(loss, DistributedDataParallel) and not last:
        with loss.no_sync():
            yield
        return
    network = loss.model.network if isinstance(loss, BatchLoss) else None
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(last)
    yield


def average_unsharded(module: nn.Module) -> None:
    """Average the gradients of weights that are not shared out beside others that are, such as a learned schedule's."""
    for weight in module.parameters():
        if weight.grad is not None and not isinstance(weight, DTensor):
            dist.all_reduce(weight.grad)
            weight.grad /= distributed.world()


@contextlib.contextmanager
def gathered_weights(network: nn.Module) -> Iterator[None]:
    """The whole network in every process for as long as this lasts, so that each may call it as often as it likes."""
    if not isinstance(network, FSDPModule):
        yield
        return
    parts = [part for part in network.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(part is not network, recurse=False)


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same with every shared-out tensor whole; all processes must ask for it."""
    return {name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors.items()}


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor; the tensor itself where it is not shared out."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def clip_gradients(module: nn.Module, most: float) -> float:
    """Scale the gradients so that their norm, over all weights and processes, is at most this; returns the norm before."""
    gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
    squares = [_squared_norm([one for one in gradients if isinstance(one, DTensor) is sharded]) for sharded in (True, False)]
    norm = (squares[0] + squares[1]).sqrt()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        local(gradient).mul_(factor)
    return float(norm)


def _squared_norm(gradients: Iterable[Tensor]) -> Tensor:
    norm = nn.utils.get_total_norm(list(gradients))
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).square()
