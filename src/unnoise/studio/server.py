"""The web server of the studio."""

import secrets
from collections.abc import Iterable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from unnoise.studio.access import EVERYWHERE
from unnoise.studio.address import find_address
from unnoise.studio.app import make_app
from unnoise.studio.connection import TimedProtocol


def serve(
    models: Iterable[str | Path],
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "cpu",
    token: str | None = None,
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


def server_config(app: ASGIApp, protocol: type[TimedProtocol] = TimedProtocol, log_level: str = "warning") -> uvicorn.Config:
    """Return the uvicorn configuration: HTTP only, and clients are identified by connection, not by proxy headers."""
    return uvicorn.Config(app, http=protocol, ws="none", proxy_headers=False, log_level=log_level, timeout_graceful_shutdown=2)
