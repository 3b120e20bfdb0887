"""Several processes that train or measure together (torch.distributed): who this one is, its share, and sums over all of them.

Outside of `process_group` there is one process, and everything here does nothing. Inside it all processes must do the same
things in the same order.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
_together = ContextVar("together", default=False)  # inside of `process_group`


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if _together.get() else 1


def rank() -> int:
    """The number of this process; 0 writes files and speaks to the user."""
    return dist.get_rank() if world() > 1 else 0


def launched() -> int:
    """How many processes torchrun has started, by the environment that it sets."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """The group of the processes that torchrun has started, for as long as this lasts; nothing where there is one process."""
    mine = launched() > 1 and not dist.is_initialized()
    if mine:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    before = _together.set(dist.is_initialized())
    try:
        yield
        if mine:
            dist.barrier()  # nobody leaves while another still speaks
    finally:
        _together.reset(before)
        if mine:
            gc.collect()  # what still holds the group would end it too late
            dist.destroy_process_group()


def share(count: int) -> Tensor:
    """The numbers 0…count − 1 that fall to this process, in order and as evenly as can be: [n] long."""
    return torch.arange(count).tensor_split(world())[rank()]


def first_says(value: float, device: torch.device) -> float:
    """What process 0 has for a number on which all must agree, such as the time."""
    return total(value if rank() == 0 else 0.0, device)


def total(value: float, device: torch.device) -> float:
    """The sum of a number over all processes, in float64."""
    if world() == 1:
        return value
    found = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(found)
    return float(found)


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes, in their order: [n, …] of each → [Σ n, …]."""
    if world() == 1:
        return rows
    parts: list[Tensor | None] = [None] * world()
    dist.all_gather_object(parts, rows.cpu())
    return torch.cat([part for part in parts if part is not None]).to(rows.device)


def each(count: int, act: Callable[[int], T]) -> list[T]:
    """act(0) … act(count − 1), shared out over the processes: all results, in order, in each of them.

    An error in one process is raised in all, so that none waits for another.
    """
    if world() == 1:
        return [act(i) for i in range(count)]
    mine: list[T] | Exception
    try:
        mine = [act(i) for i in share(count).tolist()]
    except Exception as error:
        mine = error
    parts: list[list[T] | Exception | None] = [None] * world()
    dist.all_gather_object(parts, mine)
    found = []
    for part in parts:
        if isinstance(part, Exception):
            raise part
        found += part or []
    return found


def barrier() -> None:
    """Wait until all processes are here."""
    if world() > 1:
        dist.barrier()


def from_first(act: Callable[[], T]) -> T:
    """What process 0 finds, told to all; its error is raised by all."""
    return each(1, lambda _: act())[0]


def new_group() -> dist.ProcessGroup | None:
    """Another group of all processes, for what goes on beside training (on the CPU, by gloo); None where there is one."""
    group = dist.new_group(backend="gloo") if world() > 1 else None
    assert not isinstance(group, int)
    return group
