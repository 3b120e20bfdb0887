"""Work in several processes (collective operations of torch.distributed) and in several threads of one process.

Outside `process_group` there is one process, and the collective operations have no effect. Inside it all processes must call
them in the same order.
"""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
Part = TypeVar("Part")
TOKENS_AT_ONCE = 2048
NUMBERS_AT_ONCE = 2**26  # maximum number of predicted values in memory
_together = ContextVar("together", default=False)  # inside of `process_group`


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _together.get() else 1


def rank() -> int:
    """Return the rank of this process. Rank 0 writes files and messages."""
    return dist.get_rank() if world() > 1 else 0


def launched() -> int:
    """Return the number of processes started by torchrun, from its environment variable."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Open the process group of torchrun inside the `with` block, if there is more than one process."""
    mine = launched() > 1 and not dist.is_initialized()
    if mine:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    before = _together.set(dist.is_initialized())
    try:
        yield
        if mine:
            dist.barrier()  # keep the group open until all processes have finished
    finally:
        _together.reset(before)
        if mine:
            gc.collect()  # release objects that hold the group
            dist.destroy_process_group()


def rank_rows(count: int) -> Tensor:
    """Return this process's part of the numbers 0…count − 1, split evenly and in order: [n] long."""
    return torch.arange(count).tensor_split(world())[rank()]


def broadcast_number(value: float, device: torch.device) -> float:
    """Return process 0's value of a number on which all processes must agree, such as the time."""
    return all_reduce(value if rank() == 0 else 0.0, device)


def all_reduce(value: float, device: torch.device) -> float:
    """Return the sum of a number over all processes, in float64."""
    if world() == 1:
        return value
    found = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(found)
    return float(found)


def gathered(rows: Tensor) -> Tensor:
    """Concatenate the rows of all processes in order: [n, …] of each → [Σ n, …]."""
    if world() == 1:
        return rows
    parts: list[Tensor | None] = [None] * world()
    dist.all_gather_object(parts, rows.cpu())
    return torch.cat([part for part in parts if part is not None]).to(rows.device)


def map_ranks(count: int, act: Callable[[int], T]) -> list[T]:
    """Compute act(0) … act(count − 1), split over the processes, and return all results in order in each process.

    An error in one process is raised in all, so that none of them waits forever.
    """
    if world() == 1:
        return [act(i) for i in range(count)]
    mine: list[T] | Exception
    try:
        mine = [act(i) for i in rank_rows(count).tolist()]
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
    """Wait for all processes."""
    if world() > 1:
        dist.barrier()


def broadcast_result(act: Callable[[], T]) -> T:
    """Compute a result in process 0 and return it in all processes; its error is raised in all of them."""
    return map_ranks(1, lambda _: act())[0]


def new_group() -> dist.ProcessGroup | None:
    """Return another gloo group of all processes for work that runs alongside training, or None for a single process."""
    group = dist.new_group(backend="gloo") if world() > 1 else None
    assert not isinstance(group, int)
    return group


def rows_at_once(tokens: int, most: int, device: torch.device, vocab: int = 1) -> int:
    """Return the number of sequences per network call, for sequences of `tokens` tokens and outputs of size `vocab`.

    On a CPU, 2,048 tokens per call are as fast as more, or faster, because they fit into its caches; on other devices the
    result is `most`. It does not depend on the number of threads or processes, so any number of them computes the same bits.
    """
    if device.type != "cpu":
        return most
    return max(1, min(most, TOKENS_AT_ONCE // tokens, NUMBERS_AT_ONCE // (tokens * vocab)))


def calls_at_once(call: Callable[[Part], T], parts: Sequence[Part], device: torch.device) -> Iterator[T]:
    """Yield call(part) for each part, in order and without gradients. On a CPU each of torch's threads runs one call.

    Matrix products of 2,048 tokens are so small that two threads sharing one product wait for each other half of the time.
    """
    without_gradients = torch.no_grad()(call)  # gradients are off in the calling thread only
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(parts) == 1:
        yield from map(without_gradients, parts)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(without_gradients, parts)
    finally:
        torch.set_num_threads(threads)  # for threads that start later
