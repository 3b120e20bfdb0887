"""A queue of jobs that take turns: every job is a generator, and a few threads advance all jobs step by step.

A long job does not block a short one, and a cancelled job ends at its next step. The event loop does all bookkeeping; a worker
only runs one step of one job at a time.
"""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Any

import torch

MOST_UNREAD = 16  # messages that a job may be ahead of its client
LEAST_SHARE = 4  # minimum number of concurrent jobs for one client

Message = dict[str, Any]
Steps = Generator[Message | None, None, None]  # None: a step without a message


class QueueFull(Exception):
    """The queue has its maximum number of jobs."""


class ShareTaken(Exception):
    """A client has its maximum number of jobs."""


class Job:
    """A running generator, and an asynchronous iterator over its messages in the event loop that created it."""

    def __init__(self, jobs: "JobQueue", steps: Steps, client: str):
        self._jobs, self._steps, self.client = jobs, steps, client
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[Message | Exception | None] = asyncio.Queue()
        self._stopped = self._parked = False

    def step(self) -> None:
        """Run one step; called in a worker thread."""
        message: Message | None = None
        end: Exception | None = None
        try:
            if self._stopped:
                self._steps.close()
            with torch.no_grad():
                message = next(self._steps)
        except Exception as error:  # StopIteration is the usual end
            end = error
        with suppress(RuntimeError):  # the loop is closed, and so is the client's connection
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
        """End the job at its next step."""
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
    """A pool of `workers` threads for at most `most` concurrent jobs, `share` of them for one client."""

    def __init__(self, workers: int = 2, most: int = 64):
        self.most, self.under_way = most, 0
        self.share = min(most, max(LEAST_SHARE, most // 2))
        self._by_client: Counter[str] = Counter()
        self._turns: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run_steps, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def start(self, steps: Steps, client: str = "") -> Job:
        """Start a job for a client, or raise QueueFull or ShareTaken."""
        if self.under_way >= self.most:
            raise QueueFull
        if self._by_client[client] >= self.share:
            raise ShareTaken(f"one client may have {self.share} requests at a time")
        self.under_way += 1
        self._by_client[client] += 1
        job = Job(self, steps, client)
        self.give_turn(job)
        return job

    def give_turn(self, job: Job) -> None:
        """Queue the next step of a job."""
        self._turns.put(job)

    def finished(self, job: Job) -> None:
        """Release the place of a job that has ended."""
        self.under_way -= 1
        self._by_client[job.client] -= 1
        self._by_client += Counter()  # drops clients without jobs

    def close(self) -> None:
        """Stop the workers."""
        for _ in self._threads:
            self._turns.put(None)

    def _run_steps(self) -> None:
        torch.get_num_threads()  # fix the number for this thread before other code changes it temporarily
        while (job := self._turns.get()) is not None:
            job.step()
