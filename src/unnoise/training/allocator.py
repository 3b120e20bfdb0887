"""Memory that one step frees is kept for the next, on a CPU with glibc."""

import contextlib
import ctypes
import platform
from collections.abc import Iterator
from functools import lru_cache

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
DEFAULTS = {M_TRIM_THRESHOLD: 128 * 1024, M_MMAP_MAX: 65_536}
KEEP = {M_TRIM_THRESHOLD: 2**31 - 1, M_MMAP_MAX: 0}
STEPS = 100  # steps between two calls of malloc_trim


@contextlib.contextmanager
def retained_memory(device: torch.device) -> Iterator[None]:
    """Let glibc keep freed memory, instead of returning it to the system, for as long as this lasts.

    The tensors of a step are freed and allocated again at the next. By default large ones return to the system in between and
    come back as new pages, each of which must be cleared: at a vocabulary of 8,192 that takes a fifth of a step
    (benchmarks/allocator.py).
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
    """Return unused memory to the system every hundred steps: batches of many shapes leave gaps that would add up."""
    if device.type == "cpu" and step % STEPS == 0 and (library := glibc()) is not None:
        library.malloc_trim(0)


@lru_cache
def glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
