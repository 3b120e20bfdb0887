"""Parallel training with DistributedDataParallel or FSDP2 (`fully_shard`), and memory settings of a run.

With DDP every process has a copy of weights, gradients and moments, and gradients are averaged. With FSDP2 each process has 1/n
of all three: the weights of a block are gathered before it computes and freed afterwards, and gradients are reduce-scattered.
The modules of torch for FSDP2 take a second to import, so they are imported only where they are used.
"""

import contextlib
import ctypes
import functools
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from unnoise import distributed
from unnoise.model.model import Model
from unnoise.objective import Objective
from unnoise.rng import RowGenerator, uniform
from unnoise.training.training_options import TrainingOptions

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # constants of glibc's malloc.h
DEFAULTS = {M_TRIM_THRESHOLD: 128 * 1024, M_MMAP_MAX: 65_536}
KEEP = {M_TRIM_THRESHOLD: 2**31 - 1, M_MMAP_MAX: 0}
STEPS = 100  # steps between two calls of malloc_trim
UNLABELLED_SHARE = 0.1  # fraction of labels hidden from the network, for classifier-free guidance


@contextlib.contextmanager
def retained_memory(device: torch.device) -> Iterator[None]:
    """Let glibc keep freed memory instead of returning it to the system, for the duration of the context.

    The tensors of a step are freed and allocated again in the next step. By default glibc returns large ones to the system,
    which must clear their pages again: with a vocabulary of 8,192 this takes a fifth of a step (benchmarks/allocator.py).
    """
    library = glibc() if device.type == "cpu" else None
    if library is None:
        yield
        return
    for parameter, value in KEEP.items():
        library.mallopt(parameter, value)
    try:
        yield
    finally:
        for parameter, value in DEFAULTS.items():
            library.mallopt(parameter, value)
        library.malloc_trim(0)


def trim_memory(step: int, device: torch.device) -> None:
    """Return unused memory to the system every hundred steps, since batches of many shapes fragment it."""
    if device.type == "cpu" and step % STEPS == 0 and (library := glibc()) is not None:
        library.malloc_trim(0)


@lru_cache
def glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


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
        denoiser, count = self.model.denoiser, len(self.model.labels)
        if label is not None and count:  # hide a tenth of the labels
            known = uniform(label.shape, label.device, generator) >= UNLABELLED_SHARE
            denoiser = denoiser.condition(torch.where(known, label, count))
        with nullcontext() if self.dtype is None else torch.autocast(x.device.type, self.dtype):
            return self.objective(denoiser.with_dropout(self.dropout, generator) if self.dropout else denoiser, x, generator)


def product_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Return the autocast dtype for a precision, or None. `auto` is bfloat16 on CUDA only: it is slow on most CPUs."""
    wanted = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if wanted else None


def check_shares(options: TrainingOptions) -> None:
    """Raise ValueError unless the processes can share a batch."""
    processes = distributed.world()
    if processes > options.batch:
        raise ValueError(f"{processes} processes cannot share a batch of {options.batch} sequences")
    if options.shard and options.batch % processes:
        raise ValueError(
            f"with --shard, --batch must be a multiple of the number of processes ({processes}), found {options.batch}"
        )


def over_processes(loss: BatchLoss, shard: bool, dtype: torch.dtype | None) -> nn.Module:
    """Return the loss as a module that averages gradients over processes. dtype: dtype of the network's products, or None."""
    if distributed.world() == 1:
        return loss
    if shard:
        shard_network(loss.model.network, dtype)
        return loss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer versions of torch rename the option
        return DistributedDataParallel(loss, broadcast_buffers=False)


def shard_network(network: nn.Module, dtype: torch.dtype | None = None, mesh: Any = None) -> None:
    """Shard the weights of a network, each block by itself, then the rest. Gradients are reduced in float32.

    mesh: device mesh (default: all processes).
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(dtype, torch.float32, torch.float32 if dtype else None, cast_forward_inputs=False)
    for block in blocks(network):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, mp_policy=policy)


def shard_of(tensor: Tensor) -> "DTensor | None":
    """Return the tensor if it is sharded over processes, else None."""
    if distributed.world() == 1:
        return None
    from torch.distributed.tensor import DTensor

    return tensor if isinstance(tensor, DTensor) else None


def sharded_modules(network: nn.Module) -> "list[FSDPModule]":
    """Return the sharded parts of a network, itself first."""
    if distributed.world() == 1:
        return []
    from torch.distributed.fsdp import FSDPModule

    return [part for part in network.modules() if isinstance(part, FSDPModule)]


def blocks(network: nn.Module) -> list[nn.Module]:
    """Return the blocks of a network, the members of its ModuleLists."""
    return [block for part in network.children() if isinstance(part, nn.ModuleList) for block in part]


class RecomputedBlocks:
    """Activation checkpointing: while active, each block keeps only its input and runs again in the backward pass."""

    def __init__(self, network: nn.Module):
        self.blocks = [(block, functools.partial(checkpoint, block.forward, use_reentrant=False)) for block in blocks(network)]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Recompute blocks for the duration of the context."""
        for block, forward in self.blocks:
            block.forward = forward
        try:
            yield
        finally:
            for block, _ in self.blocks:
                del block.forward  # the instance attribute, which hid the method of the class


@contextlib.contextmanager
def deterministic_kernels(wanted: bool) -> Iterator[None]:
    """Restrict torch to deterministic kernels for the duration of the context, if wanted."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def without_averaging(loss: nn.Module, last: bool) -> Iterator[None]:
    """Accumulate gradients locally, without averaging over processes, in all parts of a batch except the last."""
    if isinstance(loss, DistributedDataParallel) and not last:
        with loss.no_sync():
            yield
        return
    for part in sharded_modules(loss):
        part.set_requires_gradient_sync(last, recurse=False)
    yield


def average_unsharded(module: nn.Module) -> None:
    """Average the gradients of the unsharded weights of a sharded run, such as a learned schedule's."""
    for weight in module.parameters():
        if weight.grad is not None and shard_of(weight) is None:
            dist.all_reduce(weight.grad)
            weight.grad /= distributed.world()


@contextlib.contextmanager
def gathered_weights(network: nn.Module) -> Iterator[None]:
    """Keep the whole network in every process for the duration of the context."""
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
    """Return the tensors with every sharded one gathered. All processes must call this."""
    return {name: tensor if (shard := shard_of(tensor)) is None else shard.full_tensor() for name, tensor in tensors.items()}


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor, which is all of it unless it is sharded."""
    shard = shard_of(tensor)
    return tensor if shard is None else shard.to_local()


def clip_gradients(module: nn.Module, most: float) -> float:
    """Clip the norm of the gradients, over all weights and processes, and return the norm before clipping."""
    gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
    kinds = [[one for one in gradients if (shard_of(one) is not None) is sharded] for sharded in (True, False)]
    norms = whole({str(i): nn.utils.get_total_norm(kind) for i, kind in enumerate(kinds) if kind})
    norm = torch.stack(list(norms.values())).norm()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        local(gradient).mul_(factor)
    return float(norm)
