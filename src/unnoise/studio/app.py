"""The studio as a web application: its routes over the models and the queue of jobs."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unnoise.studio import views
from unnoise.studio.access import AccessCheck
from unnoise.studio.chain import requested_model
from unnoise.studio.completions import complete, completion_body, completion_events
from unnoise.studio.jobs import JobQueue, Steps
from unnoise.studio.models import Models
from unnoise.studio.request import RequestFields, read_fields
from unnoise.studio.responses import EXCEPTION_HANDLERS, JobStream, all_messages, begun, encoded

PAGE = {"/": ("page.html", "text/html"), "/page.css": ("page.css", "text/css"), "/page.js": ("page.js", "text/javascript")}
STREAMED = {"chain": views.chain, "infill": views.infill, "correct": views.correct, "compare": views.compare}
ANSWERED = {"candidates": views.candidates, "blank": views.blank, "schedule": views.schedule, "replay": views.replay}

View = Callable[[Models, RequestFields], Steps]
Handler = Callable[[Request], Awaitable[Response]]


class StudioRoutes:
    """The handlers."""

    def __init__(self, models: Models, jobs: JobQueue):
        self.models, self.jobs = models, jobs

    def routes(self) -> list[Route]:
        """Everything that can be asked for."""
        return [
            *(Route(path, _file(name, kind), name=name) for path, (name, kind) in PAGE.items()),
            Route("/api/models", self.list_models),
            Route("/api/models/{name}", self.describe_model),
            *(Route(f"/api/{name}", self.streamed(view), methods=["POST"]) for name, view in STREAMED.items()),
            *(Route(f"/api/{name}", self.answered(view), methods=["POST"]) for name, view in ANSWERED.items()),
            Route("/v1/models", self.list_as_openai),
            Route("/v1/completions", self.completions, methods=["POST"]),
        ]

    async def list_models(self, request: Request) -> Response:
        """The models of this studio, and which is meant by default."""
        return JSONResponse({"models": self.models.list(), "default": self.models.default})

    async def describe_model(self, request: Request) -> Response:
        """One model, loaded."""
        fields = RequestFields({"model": request.path_params["name"]})

        def look() -> Steps:
            yield requested_model(self.models, fields).description()

        return JSONResponse((await all_messages(request, self.jobs.start(look())))[-1])

    def streamed(self, view: View) -> Handler:
        """A view whose messages are sent as they come, one JSON object a line."""

        async def handle(request: Request) -> Response:
            job = self.jobs.start(view(self.models, await read_fields(request)))
            messages = await begun(job)
            return JobStream(job, (f"{encoded(message)}\n" async for message in messages), "application/x-ndjson")

        return handle

    def answered(self, view: View) -> Handler:
        """A view with one answer."""

        async def handle(request: Request) -> Response:
            job = self.jobs.start(view(self.models, await read_fields(request)))
            return JSONResponse((await all_messages(request, job))[-1])

        return handle

    async def list_as_openai(self, request: Request) -> Response:
        """The models as OpenAI's clients expect them."""
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "unnoise"} for name in self.models.names]
        return JSONResponse({"object": "list", "data": data})

    async def completions(self, request: Request) -> Response:
        """Text after a prompt, or between prompt and suffix, as OpenAI's clients expect it."""
        fields = await read_fields(request)
        stream = fields.flag("stream")
        job = self.jobs.start(complete(self.models, fields))
        if stream:
            return JobStream(job, completion_events(await begun(job)), "text/event-stream")
        return JSONResponse(completion_body(await all_messages(request, job)))


def _file(name: str, kind: str) -> Handler:
    content = resources.files("unnoise.studio").joinpath(name).read_bytes()

    async def handle(request: Request) -> Response:
        return Response(content, media_type=kind)

    return handle


def make_app(
    models: Iterable[str | Path], host: str = "127.0.0.1", device: str = "cpu", workers: int = 2, most: int = 32
) -> Starlette:
    """The studio over the models in these folders, the last of them the default.

    host: the address it is bound to, besides localhost. workers: threads that compute. most: requests under way, beyond which
    one is asked to try again.
    """
    jobs = JobQueue(workers, most)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        jobs.close()

    app = Starlette(
        routes=StudioRoutes(Models(models, device), jobs).routes(),
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=lifespan,
    )
    app.state.jobs = jobs
    app.add_middleware(AccessCheck, host=host)
    return app
