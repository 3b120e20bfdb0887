"""Work in turns: every job is a generator, and a few threads give each job under way one step after another.

So a long job never holds up a short one, and a job that nobody waits for any more ends at its next step. All counting is done
in the event loop; a worker only runs one step of one job at a time.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Any

import torch

AHEAD = 16  # lines a job may be ahead of its reader

Line = dict[str, Any]
Work = Generator[Line | None, None, None]  # None: a step with nothing to tell


class Busy(Exception):
    """As many jobs are under way as the desk takes."""


class Job:
    """Some work under way: an asynchronous iterator over its lines, from the loop in which it was made."""

    def __init__(self, desk: "Desk", work: Work):
        self._desk, self._work = desk, work
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[Line | Exception | None] = asyncio.Queue()
        self._stopped = self._parked = False

    def step(self) -> None:
        """One step, in a worker's thread."""
        line: Line | None = None
        end: Exception | None = None
        try:
            if self._stopped:
                self._work.close()
            with torch.no_grad():
                line = next(self._work)
        except Exception as error:  # StopIteration is the usual end
            end = error
        with suppress(RuntimeError):  # the loop is gone: so is the reader
            self._loop.call_soon_threadsafe(self._take, line, end)

    def _take(self, line: Line | None, end: Exception | None) -> None:
        if end is not None:
            self._desk.leave()
            self._lines.put_nowait(None if isinstance(end, StopIteration) else end)
            return
        if line is not None:
            self._lines.put_nowait(line)
        self._parked = self._lines.qsize() >= AHEAD and not self._stopped
        if not self._parked:
            self._desk.queue(self)

    def stop(self) -> None:
        """Nobody waits any more: the work ends at its next step."""
        self._stopped = True
        self._go_on()

    def _go_on(self) -> None:
        if self._parked:
            self._parked = False
            self._desk.queue(self)

    async def __aiter__(self) -> AsyncIterator[Line]:
        while (line := await self._lines.get()) is not None:
            self._go_on()
            if isinstance(line, Exception):
                raise line
            yield line


class Desk:
    """A pool of `workers` threads and at most `most` jobs under way."""

    def __init__(self, workers: int = 2, most: int = 32):
        self.most, self.under_way = most, 0
        self._turns: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def start(self, work: Work) -> Job:
        """Take on some work, or Busy."""
        if self.under_way >= self.most:
            raise Busy
        self.under_way += 1
        job = Job(self, work)
        self.queue(job)
        return job

    def queue(self, job: Job) -> None:
        """Give a job its next turn."""
        self._turns.put(job)

    def leave(self) -> None:
        """A job has ended."""
        self.under_way -= 1

    def close(self) -> None:
        """Let the workers end."""
        for _ in self._threads:
            self._turns.put(None)

    def _serve(self) -> None:
        while (job := self._turns.get()) is not None:
            job.step()
