"""How many texts go through a network together, and how many such calls at once."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")

TOKENS = 2048
NUMBERS = 2**26  # of predictions that are held at once


def rows_at_once(tokens: int, most: int, device: torch.device, vocab: int = 1) -> int:
    """How many texts to put through a network in one call that reads so many tokens of each, and predicts at them all one of
    `vocab`.

    On a CPU 2,048 tokens at once are as quick as more are, and often quicker, as they stay in its caches; elsewhere `most`. It
    does not depend on how many threads or processes there are, so that any number of them computes the same bits.
    """
    return max(1, min(most, TOKENS // tokens, NUMBERS // (tokens * vocab))) if device.type == "cpu" else most


def calls_at_once(call: Callable[[Part], Result], parts: Sequence[Part], device: torch.device) -> Iterator[Result]:
    """call(part) of each part, in order and without gradients; on a CPU as many at once as torch has threads, each with one.

    The products of 2,048 tokens are so small that two threads which share each of them wait for each other half of the time.
    """
    without_gradients = torch.no_grad()(call)  # of the thread that calls it
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(parts) == 1:
        yield from map(without_gradients, parts)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(without_gradients, parts)
    finally:
        torch.set_num_threads(threads)  # also for threads that begin later
