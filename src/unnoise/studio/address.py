"""The address at which the studio listens: a host that can be found, and whether only this machine reaches it."""

import ipaddress
import socket
from typing import NamedTuple


class Address(NamedTuple):
    """A host as it was named, and the IP address that it stands for."""

    host: str
    ip: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return ipaddress.ip_address(self.ip).is_loopback

    def url(self, port: int, token: str | None = None) -> str:
        """What to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}/?token={token}" if token else f"http://{host}:{port}"

    def listen(self, port: int) -> socket.socket:
        """A socket that listens there; port 0 is any free one."""
        family = socket.AF_INET6 if ":" in self.ip else socket.AF_INET
        try:
            return socket.create_server((self.ip, port), family=family)
        except (OSError, OverflowError) as error:
            raise ValueError(f"the studio cannot listen at {self.host}, port {port}: {error}") from error


def find_address(host: str) -> Address:
    """The address of a host, of IPv4 where there is one; ValueError if the host is empty or cannot be found."""
    check_host(host)
    try:
        found = socket.getaddrinfo(host.strip(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"the host {host!r} cannot be found: {error}") from error
    ip = str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])
    everywhere = ipaddress.ip_address(ip).is_unspecified
    return Address(ip if everywhere else host.strip(), ip)


def check_host(host: str) -> None:
    """ValueError if the host is empty, which an operating system takes for every network."""
    if not host.strip():
        raise ValueError("the host is empty: 127.0.0.1 is this machine alone, 0.0.0.0 all networks that it is in")
