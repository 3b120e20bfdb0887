"""The address of the studio: host name lookup, and whether other machines can reach it."""

import ipaddress
import socket
from typing import NamedTuple


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
