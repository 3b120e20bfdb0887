"""Jobs in turns: every job is a generator, and a few threads give each job under way one step after another.

So a long job never holds up a short one, and a job that nobody waits for any more ends at its next step. All counting is done
in the event loop; a worker only runs one step of one job at a time.
"""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Any

import torch

MOST_UNREAD = 16  # messages a job may be ahead of its reader
LEAST_SHARE = 4  # jobs that one client may have, however few there may be

Message = dict[str, Any]
Steps = Generator[Message | None, None, None]  # None: a step without a message


class QueueFull(Exception):
    """As many jobs are under way as the queue takes."""


class ShareTaken(Exception):
    """One client has as many jobs under way as one may have."""


class Job:
    """A generator under way: an asynchronous iterator over its messages, from the event loop in which it was made."""

    def __init__(self, jobs: "JobQueue", steps: Steps, client: str):
        self._jobs, self._steps, self.client = jobs, steps, client
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[Message | Exception | None] = asyncio.Queue()
        self._stopped = self._parked = False

    def step(self) -> None:
        """One step, in a worker's thread."""
        message: Message | None = None
        end: Exception | None = None
        try:
            if self._stopped:
                self._steps.close()
            with torch.no_grad():
                message = next(self._steps)
        except Exception as error:  # StopIteration is the usual end
            end = error
        with suppress(RuntimeError):  # the loop is gone: so is the reader
            self._loop.call_soon_threadsafe(self._receive, message, end)

    def _receive(self, message: Message | None, end: Exception | None) -> None:
        if end is not None:
            self._jobs.finished(self)
            self._messages.put_nowait(None if isinstance(end, StopIteration) else end)
            return
        if message is not None:
            self._messages.put_nowait(message)
        self._parked = self._messages.qsize() >= MOST_UNREAD and not self._stopped
        if not self._parked:
            self._jobs.give_turn(self)

    def stop(self) -> None:
        """Nobody waits any more: the job ends at its next step."""
        self._stopped = True
        self._continue()

    def _continue(self) -> None:
        if self._parked:
            self._parked = False
            self._jobs.give_turn(self)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self._messages.get()) is not None:
            self._continue()
            if isinstance(message, Exception):
                raise message
            yield message


class JobQueue:
    """A pool of `workers` threads and at most `most` jobs under way, `share` of them for one client."""

    def __init__(self, workers: int = 2, most: int = 64):
        self.most, self.under_way = most, 0
        self.share = min(most, max(LEAST_SHARE, most // 2))
        self._by_client: Counter[str] = Counter()
        self._turns: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run_steps, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def start(self, steps: Steps, client: str = "") -> Job:
        """Begin a job, or raise QueueFull or ShareTaken; client: for whom, by any name."""
        if self.under_way >= self.most:
            raise QueueFull
        if self._by_client[client] >= self.share:
            raise ShareTaken(f"one client may have {self.share} requests under way")
        self.under_way += 1
        self._by_client[client] += 1
        job = Job(self, steps, client)
        self.give_turn(job)
        return job

    def give_turn(self, job: Job) -> None:
        """Give a job its next turn."""
        self._turns.put(job)

    def finished(self, job: Job) -> None:
        """A job has ended."""
        self.under_way -= 1
        self._by_client[job.client] -= 1
        self._by_client += Counter()  # forgets those at zero

    def close(self) -> None:
        """Let the workers end."""
        for _ in self._threads:
            self._turns.put(None)

    def _run_steps(self) -> None:
        torch.get_num_threads()  # settles how many this thread has, before other work changes that for a while
        while (job := self._turns.get()) is not None:
            job.step()
