"""Memory that one step frees is kept for the next, as far as it is used again."""

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
LARGEST = 2**31 - 1
STEPS = 100  # between two times that unused memory is given back


def keep_freed_memory() -> None:
    """Tell glibc to keep what is freed, where it is the C library.

    The tensors of a step are freed and asked for again at the next. Large ones go back to the system in between and come again
    as new pages, each of which is cleared: at a vocabulary of 8,192 that takes a fifth of a step (benchmarks/allocator.py).
    """
    if mallopt := _of_glibc("mallopt"):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, LARGEST)


def give_back_memory(step: int) -> None:
    """Now and then give back what is kept and unused: batches of many shapes leave gaps of every size, which would add up."""
    if step % STEPS == 0 and (trim := _of_glibc("malloc_trim")):
        trim(0)


@lru_cache
def _of_glibc(name: str) -> Callable[..., int] | None:
    """A function of glibc, None where another C library is used."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
