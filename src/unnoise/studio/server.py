"""Serving the studio at an address of this machine."""

import socket
from collections.abc import Iterable
from pathlib import Path

import uvicorn

from unnoise.studio.app import make_app


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
