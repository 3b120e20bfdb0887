"""Batch sizes and concurrent calls for inference."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")

TOKENS = 2048
NUMBERS = 2**26  # largest number of predicted values in memory


def rows_at_once(tokens: int, most: int, device: torch.device, vocab: int = 1) -> int:
    """Return the number of sequences per network call, for sequences of `tokens` tokens and outputs of size `vocab`.

    On a CPU, 2,048 tokens per call are as fast as more, or faster, because they fit into its caches; on other devices the
    result is `most`. It does not depend on the number of threads or processes, so any number of them computes the same bits.
    """
    return max(1, min(most, TOKENS // tokens, NUMBERS // (tokens * vocab))) if device.type == "cpu" else most


def calls_at_once(call: Callable[[Part], Result], parts: Sequence[Part], device: torch.device) -> Iterator[Result]:
    """Yield call(part) for each part, in order and without gradients. On a CPU each of torch's threads runs one call.

    Matrix products of 2,048 tokens are so small that two threads sharing one product wait for each other half of the time.
    """
    without_gradients = torch.no_grad()(call)  # in the calling thread
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(parts) == 1:
        yield from map(without_gradients, parts)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(without_gradients, parts)
    finally:
        torch.set_num_threads(threads)  # for threads that start later
