"""Processes of a command: several workers, started on this machine or by torchrun, and a graceful stop."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import resource_tracker
from types import FrameType
from typing import Annotated, Literal, TypeVar

from tyro.conf import arg

from unnoise.cli.command_base import device_named

T = TypeVar("T")
MANY = 1024  # number of tasks, if it is not known
GRACE = 10  # seconds for the other processes to exit after one has failed
Workers = Annotated[
    int | Literal["auto"],
    arg(help="Number of processes (auto: one for each core). torchrun may start them instead."),
]


def chosen_workers(asked: int | Literal["auto"], most: int, quiet: bool) -> int:
    """Return the number of processes. `auto` is one for each core, at most `most`, and is reported unless `quiet`."""
    if asked == "auto":
        count = max(1, min(cores(), most))
        if not quiet and "RANK" not in os.environ:
            print(f"{count} processes × {max(1, cores() // count)} threads on {cores()} cores", file=sys.stderr)
        return count
    if asked < 1:
        raise ValueError(f"--workers must be ≥ 1 or auto, found {asked}")
    return asked


def run_together(workers: int, device: str, compute: Callable[[str], T], show: Callable[[T], int]) -> int:
    """Compute in several processes, or in those of torchrun, print the result in the first, and return the exit code.

    The result is printed after all processes have finished, so none waits for one that cannot print.
    """
    if workers > 1 and "RANK" not in os.environ:  # RANK is set in each of several processes
        return run_in_processes(workers, partial(run_together, workers, device, compute, show))
    import torch

    from unnoise import distributed

    named = device_named(device)
    with distributed.process_group(torch.device(named)):
        found, first = compute(named), distributed.rank() == 0
    return show(found) if first else 0


def run_in_processes(count: int, act: Callable[[], int]) -> int:
    """Run a function in several processes and return 0, or the exit code of the first that failed.

    Ctrl-C interrupts the processes, and this one waits for them. The signal is blocked until a process can handle it.
    """
    kept = dict(os.environ)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // count)))
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    from torch.multiprocessing.spawn import ProcessExitedException, spawn

    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # torch logs the processes that it terminates
    resource_tracker.ensure_running()  # its process must not inherit the blocked signal
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        processes = spawn(_worker, (act,), count, join=False)
        assert processes is not None
        while not processes.join(grace_period=GRACE):
            pass
        return 0
    except ProcessExitedException as ended:
        if ended.exit_code >= 0:
            return ended.exit_code
        print(f"unnoise: a process was killed (signal {-ended.exit_code}), so all were stopped", file=sys.stderr)
        return 128 - ended.exit_code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        os.environ.clear()
        os.environ |= kept


def _worker(number: int, act: Callable[[], int]) -> None:
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from unnoise.cli.main import exit_code

    def interruptible() -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return act()

    sys.exit(exit_code(interruptible))


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on this system
        return os.cpu_count() or 1


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class StopRequest:
    """Flag set by the first Ctrl-C or SIGTERM, after which training finishes its step and saves. The second stops at once."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested

    def __enter__(self) -> "StopRequest":
        self.before = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\nstopping after this step …", file=sys.stderr)
