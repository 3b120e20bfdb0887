"""Who may use the studio: only requests for this machine by its own name, and none that another site's page has sent."""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unnoise.studio.responses import error_response

LOCAL = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class AccessCheck:
    """Middleware that checks the Host and Origin of a request, and puts security headers on the answer.

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

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        answer = self.app
        if not self.is_here(host):
            answer = error_response("This studio answers only under the address at which it was started.", 403)
        elif (origin is not None and origin.partition("://")[2] != host) or (
            scope["method"] != "GET" and headers.get("sec-fetch-site") == "cross-site"
        ):
            answer = error_response("Another site's page cannot use this studio.", 403)
        await answer(scope, receive, send_with_headers)

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
