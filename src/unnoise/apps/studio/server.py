"""Time limits of a connection: for a request to arrive, and for the client to receive the response.

The web server of the studio.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable
from pathlib import Path

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from unnoise.apps.studio.access import EVERYWHERE, find_address
from unnoise.apps.studio.app import make_app

SECONDS_TO_ASK = 10.0  # from the connection or the last response to the end of the next headers
SECONDS_TO_READ = 20.0  # without a byte received by the client


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with two more limits.

    uvicorn closes a connection that stays silent after a response. It keeps one that sends its headers byte by byte, which is
    closed here, and one whose client stopped receiving, which is aborted here, so that its job ends.
    """

    seconds_to_ask = SECONDS_TO_ASK
    seconds_to_read = SECONDS_TO_READ
    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP; if it was the body of a request, end the job of that request."""
        with contextlib.suppress(h11.LocalProtocolError):  # the response has already begun
            super().send_400_response(msg)
        self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._asking, self._reading):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def _wait_for_request(self) -> None:
        """Start the timer unless it runs; stop it while a request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._asking is not None:
                self._asking.cancel()
                self._asking = None
        elif self._asking is None and not self.transport.is_closing():
            self._asking = self.loop.call_later(self.seconds_to_ask, self.transport.close)

    def _wait_for_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.seconds_to_read, self._check_reader, unread)

    def _check_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._wait_for_reader()
        else:
            self.transport.abort()


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
