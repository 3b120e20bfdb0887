"""Memory that one step frees is kept for the next, as far as it is used again."""

import ctypes
import platform
from functools import lru_cache

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
LARGEST = 2**31 - 1
STEPS = 100  # between two times that unused memory is given back


def keep_freed_memory(device: torch.device) -> None:
    """Tell glibc to keep what is freed, where it is the C library and the device is the CPU.

    The tensors of a step are freed and asked for again at the next. Large ones go back to the system in between and come again
    as new pages, each of which is cleared: at a vocabulary of 8,192 that takes a fifth of a step (benchmarks/allocator.py).
    """
    if device.type == "cpu" and (library := glibc()) is not None:
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, LARGEST)


def give_back_memory(step: int, device: torch.device) -> None:
    """Now and then give back what is kept and unused: batches of many shapes leave gaps of every size, which would add up."""
    if device.type == "cpu" and step % STEPS == 0 and (library := glibc()) is not None:
        library.malloc_trim(0)


@lru_cache
def glibc() -> ctypes.CDLL | None:
    """The C library, None where it is another one."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
