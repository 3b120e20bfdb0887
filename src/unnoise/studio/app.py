"""The studio as a web application: routes, what is let in, and how results and mistakes are told."""

import asyncio
import ipaddress
import json
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unnoise.studio import work
from unnoise.studio.desk import Busy, Desk, Job, Line, Work
from unnoise.studio.fields import Fields, Refused
from unnoise.studio.shelf import Shelf

BODY = 200_000  # bytes of a request
PATIENCE = 10.0  # seconds in which a request must have arrived
LOCAL = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
PAGE = {"/": ("page.html", "text/html"), "/page.css": ("page.css", "text/css"), "/page.js": ("page.js", "text/javascript")}
VIEWS = {
    "chain": work.chain,
    "infill": work.infill,
    "correct": work.correct,
    "compare": work.compare,
}
QUESTIONS = {"candidates": work.candidates, "blank": work.blank, "schedule": work.schedule, "replay": work.replay}

log = logging.getLogger(__name__)
Task = Callable[[Shelf, Fields], Work]
Handler = Callable[[Request], Awaitable[Response]]


# ---- what is let in -----------------------------------------------------------------------------------------------------


class Door:
    """Lets in only requests for this machine by its own name, and none that another site's page has sent.

    A page that has its name point to this machine (DNS rebinding) still says that name in the Host header. Where the studio is
    open to the network, any literal address is its own: rebinding needs a name.
    """

    def __init__(self, app: ASGIApp, host: str):
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, pass on, and put the headers on the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.is_here(host):
            await trouble("This studio answers only under the address at which it was started.", 403)(scope, receive, told)
        elif (origin is not None and origin.partition("://")[2] != host) or (
            scope["method"] != "GET" and headers.get("sec-fetch-site") == "cross-site"
        ):
            await trouble("Another site's page cannot use this studio.", 403)(scope, receive, told)
        else:
            await self.app(scope, receive, told)

    def is_here(self, host: str) -> bool:
        """Whether a Host header names this machine."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in (*LOCAL, self.host.lower()):
            return True
        return self.host in EVERYWHERE and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def fields_of(request: Request) -> Fields:
    """The JSON object of a request, or Refused."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise Refused("The request must be JSON (content-type: application/json).", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > BODY:
                    raise Refused(f"The request is larger than {BODY} bytes.", 413)
        return Fields(json.loads(body))
    except TimeoutError as error:
        raise Refused("The request did not arrive in time.", 408) from error
    except (ValueError, RecursionError) as error:
        raise Refused("The request is not valid JSON.") from error


# ---- how things are told ------------------------------------------------------------------------------------------------


def trouble(message: str, status: int) -> JSONResponse:
    """A mistake as one sentence."""
    return JSONResponse({"error": {"message": message}}, status)


def sentence(error: Exception) -> tuple[str, int]:
    """What went wrong, as a person is told, and the HTTP status."""
    if isinstance(error, Refused):
        return str(error), error.status
    if isinstance(error, Busy):
        return "The studio is busy with other requests; try again in a moment.", 503
    if isinstance(error, ValueError):
        text = str(error)
        return text[:1].upper() + text[1:].rstrip(".") + ".", 400
    log.error("a request failed", exc_info=error)
    return "Something went wrong in the studio; its log has the details.", 500


def encoded(line: Line) -> str:
    """A line as JSON."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


class Told(StreamingResponse):
    """A job's lines as they come; the job ends when the reader leaves."""

    def __init__(self, job: Job, lines: AsyncIterator[str], media_type: str):
        super().__init__(lines, media_type=media_type)
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell, then stop the job."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.stop()


async def with_first(lines: AsyncIterator[Line], first: Line | None) -> AsyncIterator[Line]:
    """The lines, the first of which was already read; a mistake on the way becomes the last line."""
    try:
        if first is not None:
            yield first
        async for line in lines:
            yield line
    except Exception as error:
        yield {"error": {"message": sentence(error)[0]}}


async def all_lines(request: Request, job: Job) -> list[Line]:
    """Every line of a job, unless the client leaves before its end."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def collected() -> list[Line]:
        return [line async for line in job]

    leaving, working = asyncio.ensure_future(left()), asyncio.ensure_future(collected())
    try:
        await asyncio.wait((leaving, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        job.stop()
        leaving.cancel()
        working.cancel()


# ---- the routes ---------------------------------------------------------------------------------------------------------


class Studio:
    """The handlers, over a shelf of models and a desk."""

    def __init__(self, shelf: Shelf, desk: Desk):
        self.shelf, self.desk = shelf, desk

    def routes(self) -> list[Route]:
        """Everything that can be asked for."""
        return [
            *(Route(path, _file(name, kind), name=name) for path, (name, kind) in PAGE.items()),
            Route("/api/models", self.models),
            Route("/api/models/{name}", self.about),
            *(Route(f"/api/{name}", self.streamed(task), methods=["POST"]) for name, task in VIEWS.items()),
            *(Route(f"/api/{name}", self.answered(task), methods=["POST"]) for name, task in QUESTIONS.items()),
            Route("/v1/models", self.listed),
            Route("/v1/completions", self.completions, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        """The models of this studio, and which is meant by default."""
        return JSONResponse({"models": self.shelf.listed(), "default": self.shelf.default})

    async def about(self, request: Request) -> Response:
        """One model, loaded."""
        fields = Fields({"model": request.path_params["name"]})

        def look() -> Work:
            yield work.opened(self.shelf, fields).about()

        return JSONResponse((await all_lines(request, self.desk.start(look())))[-1])

    def streamed(self, task: Task) -> Handler:
        """A task whose lines are told as they come, one JSON object a line."""

        async def handle(request: Request) -> Response:
            job = self.desk.start(task(self.shelf, await fields_of(request)))
            lines = await _begun(job)
            return Told(job, (f"{encoded(line)}\n" async for line in lines), "application/x-ndjson")

        return handle

    def answered(self, task: Task) -> Handler:
        """A task with one answer."""

        async def handle(request: Request) -> Response:
            job = self.desk.start(task(self.shelf, await fields_of(request)))
            return JSONResponse((await all_lines(request, job))[-1])

        return handle

    async def listed(self, request: Request) -> Response:
        """The models as OpenAI's clients expect them."""
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "unnoise"} for name in self.shelf.names]
        return JSONResponse({"object": "list", "data": data})

    async def completions(self, request: Request) -> Response:
        """Text after a prompt, or between prompt and suffix, as OpenAI's clients expect it."""
        fields = await fields_of(request)
        stream = fields.flag("stream")
        job = self.desk.start(work.complete(self.shelf, fields))
        head = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time())}
        if stream:
            lines = await _begun(job)
            return Told(job, _events(head, lines), "text/event-stream")
        lines = await all_lines(request, job)
        written = sum(line["tokens"] for line in lines)
        usage = {"prompt_tokens": lines[0]["given"], "completion_tokens": written, "total_tokens": lines[0]["given"] + written}
        choices = [_choice(line) for line in lines]
        return JSONResponse(head | {"model": lines[0]["model"], "choices": choices, "usage": usage})


def _choice(line: Line) -> dict[str, Any]:
    return {"index": line["index"], "text": line["text"], "finish_reason": line["finish_reason"], "logprobs": None}


async def _events(head: dict[str, Any], lines: AsyncIterator[Line]) -> AsyncIterator[str]:
    """Server-sent events: a diffusion model has no first word before its last, so each choice comes as a whole."""
    async for line in lines:
        content = line if "error" in line else head | {"model": line["model"], "choices": [_choice(line)]}
        yield f"data: {encoded(content)}\n\n"
    yield "data: [DONE]\n\n"


async def _begun(job: Job) -> AsyncIterator[Line]:
    """A job's lines, once the first is there: what is refused before that is told by the status."""
    lines = aiter(job)
    try:
        first = await anext(lines, None)
    except BaseException:
        job.stop()
        raise
    return with_first(lines, first)


def _file(name: str, kind: str) -> Handler:
    content = resources.files("unnoise.studio").joinpath(name).read_bytes()

    async def handle(request: Request) -> Response:
        return Response(content, media_type=kind)

    return handle


async def _mistake(request: Request, error: Exception) -> Response:
    return trouble(*sentence(error))


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "There is nothing at this address.", 405: "This address does not take such a request."}
    return trouble(sentences.get(error.status_code, error.detail), error.status_code)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


def make_app(
    models: Iterable[str | Path], host: str = "127.0.0.1", device: str = "cpu", workers: int = 2, most: int = 32
) -> Starlette:
    """The studio over the models in these folders, the last of them the default.

    host: the address it is bound to, besides localhost; workers: threads that compute; most: requests under way, beyond which
    one is told to try again.
    """
    desk = Desk(workers, most)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        desk.close()

    app = Starlette(
        routes=Studio(Shelf(models, device), desk).routes(),
        exception_handlers={
            HTTPException: _not_found,
            ClientDisconnect: _gone,
            Refused: _mistake,
            Busy: _mistake,
            ValueError: _mistake,
            Exception: _mistake,
        },
        lifespan=life,
    )
    app.state.desk = desk
    app.add_middleware(Door, host=host)
    return app


def serve(models: Iterable[str | Path], host: str = "127.0.0.1", port: int = 8000, device: str = "cpu") -> None:
    """Open the studio at http://host:port until it is interrupted; port 0 is any free one."""
    app = make_app(models, host, device)
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise ValueError(f"the studio cannot listen at {host}, port {port}: {error}") from error
    print(f"unnoise studio: http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])
