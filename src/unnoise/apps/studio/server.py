"""The studio on the network: its address, who has access, and the time limits of connections.

Requests must name this machine, come from no other site, and carry the token if there is one.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import re
import socket
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import h11
import uvicorn
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from unnoise.apps.studio.jobs import BadRequest, error_response

SECONDS_TO_ASK = 10.0  # from the connection or the last response to the end of the next headers
SECONDS_TO_READ = 20.0  # without a byte received by the client
LOCAL = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,200}")  # fits into an address, a header and a cookie
NO_TOKEN = (
    "This studio needs its token: open the address with ?token=… that it printed at its start, "
    "or send the header “Authorization: Bearer …”."
)

# ---- the address ---------------------------------------------------------------------------------------------------------


class Address(NamedTuple):
    """A host as the user named it, and its IP address."""

    host: str
    ip: str

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        return ipaddress.ip_address(self.ip).is_loopback

    def url(self, port: int, token: str | None = None) -> str:
        """Return the URL to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}/?token={token}" if token else f"http://{host}:{port}"

    def listen(self, port: int) -> socket.socket:
        """Return a listening socket; port 0 is any free port."""
        family = socket.AF_INET6 if ":" in self.ip else socket.AF_INET
        try:
            return socket.create_server((self.ip, port), family=family)
        except (OSError, OverflowError) as error:
            raise ValueError(f"the studio cannot listen at {self.host}, port {port}: {error}") from error


def find_address(host: str) -> Address:
    """Return the address of a host, IPv4 if it has one; raise ValueError if the host is empty or unknown."""
    check_host(host)
    try:
        found = socket.getaddrinfo(host.strip(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"the host {host!r} cannot be found: {error}") from error
    ip = str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])
    everywhere = ipaddress.ip_address(ip).is_unspecified
    return Address(ip if everywhere else host.strip(), ip)


def check_host(host: str) -> None:
    """Raise ValueError if the host is empty, which operating systems take for all networks."""
    if not host.strip():
        raise ValueError("the host is empty: use 127.0.0.1 for this machine alone, or 0.0.0.0 for all its networks")


# ---- access --------------------------------------------------------------------------------------------------------------


class AccessCheck:
    """Middleware that checks the Host, the Origin and the token of a request, and adds security headers to the response.

    A site whose name is made to resolve to this machine (DNS rebinding) still sends its own name in the Host header. A studio
    that is open to the network accepts every literal address, because rebinding needs a name.

    The token is part of the page's address, which then sets a cookie, or it is in the Authorization header.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None = None):
        self.app, self.host, self.token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        server = scope.get("server")
        cookie = f"unnoise-{server[1] if server else 0}"  # browsers send the cookies of one port to all ports of a host
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else None
        added = dict(HEADERS)
        answer = self.app
        if not self.is_here(request.headers.get("host", "")):
            answer = error_response(BadRequest("This studio answers only under the address at which it was started.", 403))
        elif _from_another_site(request):
            answer = error_response(BadRequest("Another site's page cannot use this studio.", 403))
        elif self.token and self.is_token(_token_in_address(request)):
            added["set-cookie"] = f"{cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        elif self.token and not any(map(self.is_token, (bearer, request.cookies.get(cookie)))):
            answer = error_response(BadRequest(NO_TOKEN, 401, code="invalid_api_key"))
            added["www-authenticate"] = "Bearer"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in added.items()]
            await send(message)

        await answer(scope, receive, send_with_headers)

    def is_here(self, host: str) -> bool:
        """Return whether a Host header names this machine."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in (*LOCAL, self.host.lower()):
                return True
            ipaddress.ip_address(name)
        except ValueError:  # a name
            return False
        return self.host in EVERYWHERE

    def is_token(self, sent: str | None) -> bool:
        """Return whether `sent` equals the access token, compared in constant time."""
        return bool(sent and self.token) and hmac.compare_digest(str(sent).encode(), str(self.token).encode())


def _from_another_site(request: HTTPConnection) -> bool:
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        return True
    return request.scope["method"] != "GET" and request.headers.get("sec-fetch-site") == "cross-site"


def _token_in_address(request: HTTPConnection) -> str | None:
    if request.scope["path"] != "/":
        return None
    return next(iter(parse_qs(request.scope["query_string"].decode("latin-1")).get("token", [])), None)


# ---- connections ---------------------------------------------------------------------------------------------------------


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
        """Wait for the next request on the same connection."""
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


def server_config(app: ASGIApp, protocol: type[TimedProtocol] = TimedProtocol, log_level: str = "warning") -> uvicorn.Config:
    """Return the uvicorn configuration: HTTP only, and clients are identified by connection, not by proxy headers."""
    return uvicorn.Config(app, http=protocol, ws="none", proxy_headers=False, log_level=log_level, timeout_graceful_shutdown=2)
