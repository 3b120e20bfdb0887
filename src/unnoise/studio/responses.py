"""How results and mistakes are sent: one answer, or a stream of messages; a mistake is one sentence."""

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


def error_body(message: str, status: int, param: str | None = None, code: str | None = None) -> Message:
    """A mistake as OpenAI's clients read it: one sentence, and the field that is at fault."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(message: str, status: int, param: str | None = None, code: str | None = None) -> JSONResponse:
    """The same as an answer."""
    return JSONResponse(error_body(message, status, param, code), status)


def error_parts(error: Exception) -> tuple[str, int, str | None, str | None]:
    """What went wrong, for a person; the HTTP status, the field and the code."""
    if isinstance(error, BadRequest):
        return str(error), error.status, error.param, error.code
    return *_sentence(error), None, None


def _sentence(error: Exception) -> tuple[str, int]:
    if isinstance(error, QueueFull):
        return "The studio is busy with other requests; try again in a moment.", 503
    if isinstance(error, ShareTaken):
        return f"Too many requests at once: {error}.", 429
    if isinstance(error, ValueError):
        text = str(error)
        return text[:1].upper() + text[1:].rstrip(".") + ".", 400
    log.error("a request failed", exc_info=error)
    return "Something went wrong in the studio; its log has the details.", 500


def encoded(message: Message) -> str:
    """A message as JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


class JobStream(StreamingResponse):
    """A job's messages as they come; the job ends when the reader leaves."""

    def __init__(self, job: Job, content: AsyncIterator[str], media_type: str):
        super().__init__(content, media_type=media_type)
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, then stop the job."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.stop()


async def begun(job: Job) -> AsyncIterator[Message]:
    """A job's messages, once the first is there: what is refused before that is said by the status."""
    messages = aiter(job)
    try:
        first = await anext(messages, None)
    except BaseException:
        job.stop()
        raise
    return _with_first(messages, first)


async def _with_first(messages: AsyncIterator[Message], first: Message | None) -> AsyncIterator[Message]:
    """The messages, the first of which was already read; a mistake on the way becomes the last one."""
    try:
        if first is not None:
            yield first
        async for message in messages:
            yield message
    except Exception as error:
        yield error_body(*error_parts(error))


async def all_messages(request: Request, job: Job) -> list[Message]:
    """Every message of a job, unless the client leaves before its end."""

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


# ---- handlers of exceptions ----------------------------------------------------------------------------------------------


async def _on_mistake(request: Request, error: Exception) -> Response:
    return error_response(*error_parts(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "There is nothing at this address.", 405: "This address does not take such a request."}
    return error_response(sentences.get(error.status_code, error.detail), error.status_code)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


EXCEPTION_HANDLERS = {
    HTTPException: _on_http_exception,
    ClientDisconnect: _on_disconnect,
    BadRequest: _on_mistake,
    QueueFull: _on_mistake,
    ShareTaken: _on_mistake,
    ValueError: _on_mistake,
    Exception: _on_mistake,
}
