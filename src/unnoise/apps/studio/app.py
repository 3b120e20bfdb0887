"""The studio as a web application: its routes, its models and its job queue."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unnoise.apps.studio import views
from unnoise.apps.studio.completions import complete, completion_body, completion_events, requested_stream
from unnoise.apps.studio.jobs import EXCEPTION_HANDLERS, Job, JobQueue, JobStream, Steps, all_messages, begun, encoded
from unnoise.apps.studio.models import Models, description, unknown_model
from unnoise.apps.studio.request import RequestFields, read_fields
from unnoise.apps.studio.server import EVERYWHERE, TOKEN, AccessCheck, check_host, find_address, server_config

PAGE = {"/": ("page.html", "text/html"), "/page.css": ("page.css", "text/css"), "/page.js": ("page.js", "text/javascript")}
STREAMED = {
    "chain": views.chain,
    "images": views.images,
    "infill": views.infill,
    "correct": views.correct,
    "compare": views.compare,
    "side_by_side": views.side_by_side,
    "back": views.back,
}
ANSWERED = {
    "candidates": views.candidates,
    "blank": views.blank,
    "schedule": views.schedule,
    "replay": views.replay,
    "noise": views.noise,
}

View = Callable[[Models, RequestFields], Steps]
Handler = Callable[[Request], Awaitable[Response]]


class StudioRoutes:
    """The request handlers."""

    def __init__(self, models: Models, jobs: JobQueue):
        self.models, self.jobs = models, jobs

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            *(Route(path, _file(name, kind), name=name) for path, (name, kind) in PAGE.items()),
            Route("/api/models", self.list_models),
            Route("/api/models/{name}", self.describe_model),
            *(Route(f"/api/{name}", self.streamed(view), methods=["POST"]) for name, view in STREAMED.items()),
            *(Route(f"/api/{name}", self.answered(view), methods=["POST"]) for name, view in ANSWERED.items()),
            Route("/v1/models", self.list_as_openai),
            Route("/v1/models/{name}", self.list_as_openai),
            Route("/v1/completions", self.completions, methods=["POST"]),
        ]

    def start(self, request: Request, steps: Steps) -> Job:
        """Start a job for the client of a request, identified by its address."""
        return self.jobs.start(steps, request.client.host if request.client else "")

    async def list_models(self, request: Request) -> Response:
        """List the models and name the default."""
        return JSONResponse({"models": self.models.list(), "default": self.models.default})

    async def describe_model(self, request: Request) -> Response:
        """Load a model and describe it."""
        name = request.path_params["name"]

        def describe() -> Steps:
            yield description(name, self.models.open(name))

        return JSONResponse((await all_messages(request, self.start(request, describe())))[-1])

    def streamed(self, view: View) -> Handler:
        """Return a handler that streams the messages of a view as JSON lines."""

        async def handle(request: Request) -> Response:
            job = self.start(request, view(self.models, await read_fields(request)))
            messages = await begun(job)
            return JobStream(job, (f"{encoded(message)}\n" async for message in messages), "application/x-ndjson")

        return handle

    def answered(self, view: View) -> Handler:
        """Return a handler that sends the last message of a view."""

        async def handle(request: Request) -> Response:
            job = self.start(request, view(self.models, await read_fields(request)))
            return JSONResponse((await all_messages(request, job))[-1])

        return handle

    async def list_as_openai(self, request: Request) -> Response:
        """List the text models, or describe one of them, as OpenAI's clients expect it."""
        shared = {"object": "model", "created": 0, "owned_by": "unnoise"}
        listed = {name: {"id": name} | shared for name in self.models.text_names}
        if (name := request.path_params.get("name")) is None:
            return JSONResponse({"object": "list", "data": list(listed.values())})
        if name not in listed:
            raise unknown_model(name, "for text here")
        return JSONResponse(listed[name])

    async def completions(self, request: Request) -> Response:
        """Complete a prompt, or fill in between prompt and suffix, as OpenAI's clients expect it."""
        fields = await read_fields(request)
        stream, with_usage = requested_stream(fields)
        job = self.start(request, complete(self.models, fields, stream))
        if stream:
            return JobStream(job, completion_events(await begun(job), with_usage), "text/event-stream")
        return JSONResponse(completion_body(await all_messages(request, job)))


def _file(name: str, kind: str) -> Handler:
    content = resources.files("unnoise.apps.studio").joinpath(name).read_bytes()

    async def handle(request: Request) -> Response:
        return Response(content, media_type=kind)

    return handle


def make_app(
    models: Iterable[str | Path],
    host: str = "127.0.0.1",
    device: str = "cpu",
    workers: int = 2,
    *,
    most: int = 64,
    token: str | None = None,
) -> Starlette:
    """Return the studio with the models in these folders; the last one is the default.

    host: the address that it listens to, besides localhost.
    workers: number of computing threads.
    most: maximum number of concurrent requests; one client gets half of them.
    token: access token that clients must send, if any.
    """
    check_host(host)
    if token is not None and not TOKEN.fullmatch(token):
        raise ValueError("a token has 8 to 200 letters, digits, or characters of - . _ ~")
    jobs = JobQueue(workers, most)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        jobs.close()

    app = Starlette(
        routes=StudioRoutes(Models(models, device), jobs).routes(), exception_handlers=EXCEPTION_HANDLERS, lifespan=lifespan
    )
    app.state.jobs = jobs
    app.add_middleware(AccessCheck, host=host, token=token)
    return app


def serve(
    models: Iterable[str | Path], host: str = "127.0.0.1", port: int = 8000, device: str = "cpu", token: str | None = None
) -> None:
    """Run the studio at http://host:port until interrupted; port 0 is any free port.

    token: access token of clients. If other machines can reach the host, the default is a random token, which is printed.
    """
    address = find_address(host)
    if token is None and not address.is_loopback:
        token = secrets.token_urlsafe(24)
    app = make_app(models, address.host, device, token=token)
    listener = address.listen(port)
    print(f"unnoise studio: {address.url(listener.getsockname()[1], token)}", flush=True)
    if address.host in EVERYWHERE:
        print(f"From another machine, replace {address.host} by this machine's IP address.", flush=True)
    uvicorn.Server(server_config(app)).run(sockets=[listener])
