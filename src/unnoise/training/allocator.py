"""Memory that one step frees is kept for the next."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Tell glibc to keep what is freed, where it is the C library.

    The tensors of a step are freed and asked for again at the next. Large ones go back to the system in between and come again
    as new pages, each of which is cleared: at a vocabulary of 8,192 that took a fifth of a step. This is for batches of one
    shape; those of many would leave gaps of every size.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another C library has none
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, LARGEST)
