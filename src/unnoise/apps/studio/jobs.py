"""Jobs that take turns, and their responses: one JSON object, or a stream of messages.

Every job is a generator, and a few threads advance all jobs step by step. A long job does not block a short one, and a
cancelled job ends at its next step. The event loop does all bookkeeping; a worker only runs one step of one job at a time.
"""

import asyncio
import json
import logging
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Any

import torch
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

MOST_UNREAD = 16  # messages that a job may be ahead of its client
LEAST_SHARE = 4  # minimum number of concurrent jobs for one client

Message = dict[str, Any]
Steps = Generator[Message | None, None, None]  # None: a step without a message


class BadRequest(Exception):
    """A refused request: a sentence, the HTTP status, the name of the wrong field, and OpenAI's error code if there is one."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> Message:
        """Return the error as OpenAI's clients expect it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class QueueFull(BadRequest):
    """The queue has its maximum number of jobs."""


class ShareTaken(BadRequest):
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
            self._jobs.turns.put(self)

    def stop(self) -> None:
        """End the job at its next step."""
        self._stopped = True
        self._continue()

    def _continue(self) -> None:
        if self._parked:
            self._parked = False
            self._jobs.turns.put(self)

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
        self.turns: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run_steps, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def start(self, steps: Steps, client: str = "") -> Job:
        """Start a job for a client, or raise QueueFull or ShareTaken."""
        if self.under_way >= self.most:
            raise QueueFull("The studio is busy with other requests; try again in a moment.", 503)
        if self._by_client[client] >= self.share:
            raise ShareTaken(f"Too many requests at once: one client may have {self.share} requests at a time.", 429)
        self.under_way += 1
        self._by_client[client] += 1
        job = Job(self, steps, client)
        self.turns.put(job)
        return job

    def finished(self, job: Job) -> None:
        """Release the place of a job that has ended."""
        self.under_way -= 1
        self._by_client[job.client] -= 1
        self._by_client += Counter()  # drops clients without jobs

    def close(self) -> None:
        """Stop the workers."""
        for _ in self._threads:
            self.turns.put(None)

    def _run_steps(self) -> None:
        torch.get_num_threads()  # fix the number for this thread before other code changes it temporarily
        while (job := self.turns.get()) is not None:
            job.step()


def as_bad_request(error: Exception) -> BadRequest:
    """Return the sentence and the HTTP status for any error; unexpected errors are logged."""
    if isinstance(error, BadRequest):
        return error
    if isinstance(error, HTTPException):
        sentences = {404: "There is nothing at this address.", 405: "This address does not take such a request."}
        return BadRequest(sentences.get(error.status_code, error.detail), error.status_code)
    if isinstance(error, ValueError):
        text = str(error)
        return BadRequest(text[:1].upper() + text[1:].rstrip(".") + ".", 400)
    log.error("a request failed", exc_info=error)
    return BadRequest("Something went wrong in the studio; its log has the details.", 500)


def error_response(error: Exception) -> JSONResponse:
    """Return an error as a response."""
    refused = as_bad_request(error)
    return JSONResponse(refused.body(), refused.status)


def encoded(message: Message) -> str:
    """Return a message as compact JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


class JobStream(StreamingResponse):
    """A stream of a job's messages; the job ends when the client leaves."""

    def __init__(self, job: Job, content: AsyncIterator[str], media_type: str):
        super().__init__(content, media_type=media_type)
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.stop()


async def begun(job: Job) -> AsyncIterator[Message]:
    """Wait for a job's first message and return all messages.

    An error before the first message is raised, so that it becomes the HTTP status. A later one becomes the last message.
    """
    messages = aiter(job)
    try:
        first = await anext(messages, None)
    except BaseException:
        job.stop()
        raise

    async def with_first() -> AsyncIterator[Message]:
        try:
            if first is not None:
                yield first
            async for message in messages:
                yield message
        except Exception as error:
            yield as_bad_request(error).body()

    return with_first()


async def all_messages(request: Request, job: Job) -> list[Message]:
    """Return every message of a job, or raise ClientDisconnect if the client leaves first."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def collected() -> list[Message]:
        return [message async for message in job]

    leaving, working = asyncio.ensure_future(disconnected()), asyncio.ensure_future(collected())
    try:
        await asyncio.wait((leaving, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        job.stop()
        leaving.cancel()
        working.cancel()


async def _on_error(request: Request, error: Exception) -> Response:
    return Response(status_code=499) if isinstance(error, ClientDisconnect) else error_response(error)


EXCEPTION_HANDLERS = dict.fromkeys((BadRequest, ValueError, HTTPException, ClientDisconnect, Exception), _on_error)
