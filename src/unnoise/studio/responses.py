"""Responses of the studio: one JSON object, or a stream of messages; an error is one sentence."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from unnoise.studio.jobs import Job, Message, QueueFull, ShareTaken
from unnoise.studio.request import BadRequest

log = logging.getLogger(__name__)


def as_bad_request(error: Exception) -> BadRequest:
    """Return the sentence and the HTTP status for any error; unexpected errors are logged."""
    if isinstance(error, BadRequest):
        return error
    if isinstance(error, QueueFull):
        return BadRequest("The studio is busy with other requests; try again in a moment.", 503)
    if isinstance(error, ShareTaken):
        return BadRequest(f"Too many requests at once: {error}.", 429)
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
    """Wait for a job's first message and return all messages; an earlier error becomes the HTTP status."""
    messages = aiter(job)
    try:
        first = await anext(messages, None)
    except BaseException:
        job.stop()
        raise
    return _with_first(messages, first)


async def _with_first(messages: AsyncIterator[Message], first: Message | None) -> AsyncIterator[Message]:
    """Yield the first message and all later ones; an error on the way becomes the last message."""
    try:
        if first is not None:
            yield first
        async for message in messages:
            yield message
    except Exception as error:
        yield as_bad_request(error).body()


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


# ---- exception handlers --------------------------------------------------------------------------------------------------


async def _on_mistake(request: Request, error: Exception) -> Response:
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "There is nothing at this address.", 405: "This address does not take such a request."}
    return error_response(BadRequest(sentences.get(error.status_code, error.detail), error.status_code))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client has left


EXCEPTION_HANDLERS = {
    **dict.fromkeys((BadRequest, QueueFull, ShareTaken, ValueError, Exception), _on_mistake),
    HTTPException: _on_http_exception,
    ClientDisconnect: _on_disconnect,
}
