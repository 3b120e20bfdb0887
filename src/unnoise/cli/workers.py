"""Several processes on one machine, started by torch."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Literal


def chosen_workers(asked: int | Literal["auto"], most: int, quiet: bool) -> int:
    """How many processes to start; `auto` is one for each core, where there are several, and at most `most`."""
    if asked == "auto":
        count = max(1, min(cores(), most))
        if not quiet and "RANK" not in os.environ:
            print(f"{count} processes × {max(1, cores() // count)} threads on {cores()} cores", file=sys.stderr)
        return count
    if asked < 1:
        raise ValueError(f"--workers must be ≥ 1 or auto, found {asked}")
    return asked


def run_in_processes(count: int, act: Callable[[], int]) -> int:
    """Do the same in so many processes that work together, one thread each: 0, or the exit code of the first that failed."""
    kept = dict(os.environ)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // count)))
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    from torch.multiprocessing.spawn import ProcessExitedException, spawn

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # they are interrupted too, and save
    try:
        spawn(_worker, (act,), count)
        return 0
    except ProcessExitedException as ended:
        if ended.exit_code >= 0:
            return ended.exit_code
        print(f"unnoise: a process was killed (signal {-ended.exit_code}), so all have ended", file=sys.stderr)
        return 128 - ended.exit_code
    finally:
        signal.signal(signal.SIGINT, before)
        os.environ.clear()
        os.environ |= kept


def _worker(number: int, act: Callable[[], int]) -> None:
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from unnoise.cli.main import exit_code

    sys.exit(exit_code(act))


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def free_port() -> int:
    """A port on this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
