"""The studio: a local page to sample, fill in, correct and compare, and a completions endpoint (extra `studio`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.applications import Starlette


def make_app(models: Iterable[str | Path], host: str = "127.0.0.1", **options: Any) -> "Starlette":
    """Return the studio with the models in these folders; see `unnoise.apps.studio.app.make_app`."""
    from unnoise.apps.studio import app

    return app.make_app(models, host, **options)


def serve(models: Iterable[str | Path], host: str = "127.0.0.1", **options: Any) -> None:
    """Run the studio until it is interrupted; see `unnoise.apps.studio.app.serve`."""
    from unnoise.apps.studio import app

    app.serve(models, host, **options)
