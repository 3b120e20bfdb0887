"""Training over several processes by PyTorch's own engines: DistributedDataParallel, or FSDP2 (`fully_shard`) with shards.

With DDP every process has a copy of weights, gradients and moments, and gradients are averaged. With shards each has 1/n of
all three: a block's weights are gathered before it computes and let go after, and gradients are averaged as they are shared out
(reduce-scatter). torch's modules for shards are imported where they are needed, as that takes a second.
"""

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from unnoise import distributed
from unnoise.training.loss import BatchLoss
from unnoise.training.options import TrainingOptions

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def check_shares(options: TrainingOptions) -> None:
    """ValueError unless the processes can share a batch."""
    processes = distributed.world()
    if processes > options.batch:
        raise ValueError(f"{processes} processes cannot share a batch of {options.batch} texts")
    if options.shard and options.batch % processes:
        raise ValueError(f"with --shard the batch must be a multiple of the {processes} processes, found {options.batch} texts")


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
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(dtype, torch.float32, torch.float32 if dtype else None, cast_forward_inputs=False)
    for block in blocks(network):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, mp_policy=policy)


def shard_of(tensor: Tensor) -> "DTensor | None":
    """The tensor, if it is shared out over the processes."""
    if distributed.world() == 1:
        return None
    from torch.distributed.tensor import DTensor

    return tensor if isinstance(tensor, DTensor) else None


def sharded_modules(network: nn.Module) -> "list[FSDPModule]":
    """The parts of a network whose weights are shared out, itself first; none where they are not."""
    if distributed.world() == 1:
        return []
    from torch.distributed.fsdp import FSDPModule

    return [part for part in network.modules() if isinstance(part, FSDPModule)]


def blocks(network: nn.Module) -> list[nn.Module]:
    """The members of a network's ModuleLists."""
    return [block for part in network.children() if isinstance(part, nn.ModuleList) for block in part]


class RecomputedBlocks:
    """Activation checkpointing: while it is active, each block keeps only its input and runs again in the backward pass."""

    def __init__(self, network: nn.Module):
        self.blocks = [(block, functools.partial(checkpoint, block.forward, use_reentrant=False)) for block in blocks(network)]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        for block, forward in self.blocks:
            block.forward = forward
        try:
            yield
        finally:
            for block, _ in self.blocks:
                del block.forward  # of the instance: the class's own method is back


@contextlib.contextmanager
def deterministic_kernels(wanted: bool) -> Iterator[None]:
    """Let torch use only deterministic kernels, if that is wanted."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def without_averaging(loss: nn.Module, last: bool) -> Iterator[None]:
    """For all parts of a batch but the last: gradients are added up before they are averaged."""
    if isinstance(loss, DistributedDataParallel) and not last:
        with loss.no_sync():
            yield
        return
    for part in sharded_modules(loss):
        part.set_requires_gradient_sync(last, recurse=False)
    yield


def average_unsharded(module: nn.Module) -> None:
    """Average the gradients of weights that are not shared out beside others that are, such as a learned schedule's."""
    for weight in module.parameters():
        if weight.grad is not None and shard_of(weight) is None:
            dist.all_reduce(weight.grad)
            weight.grad /= distributed.world()


@contextlib.contextmanager
def gathered_weights(network: nn.Module) -> Iterator[None]:
    """The whole network in every process for as long as this lasts, so that each may call it as often as it likes."""
    parts = sharded_modules(network)
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
    return {name: tensor if (shard := shard_of(tensor)) is None else shard.full_tensor() for name, tensor in tensors.items()}


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor; the tensor itself where it is not shared out."""
    shard = shard_of(tensor)
    return tensor if shard is None else shard.to_local()


def clip_gradients(module: nn.Module, most: float) -> float:
    """Scale the gradients so that their norm, over all weights and processes, is at most this; returns the norm before."""
    gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
    kinds = [[one for one in gradients if (shard_of(one) is not None) is sharded] for sharded in (True, False)]
    norms = whole({str(i): nn.utils.get_total_norm(kind) for i, kind in enumerate(kinds) if kind})
    norm = torch.stack(list(norms.values())).norm()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        local(gradient).mul_(factor)
    return float(norm)
