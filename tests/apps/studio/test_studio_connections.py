"""Clients that do not behave: who do not read, who ask for too much at once, and who never finish asking."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from studio_server import listening, raw, soon_idle, tiny
from unnoise.apps.studio import make_app
from unnoise.apps.studio.server import TimedProtocol

LONG = {"steps": 1024, "sampler": "metropolis"}  # more messages than a small buffer takes


class Hasty(TimedProtocol):
    seconds_to_ask = 0.4
    seconds_to_read = 0.4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("mdlm", tmp_path_factory.mktemp("models"))


@pytest.fixture
def app(folder: Path) -> Any:
    return make_app([folder], most=8)


@pytest.fixture
def address(app: Any) -> Iterator[str]:
    with listening(app, Hasty, send_buffer=4096) as address:
        yield address


def unread(address: str, seed: int) -> socket.socket:
    """Start a stream and do not read it."""
    connection = raw(address, "/api/chain", LONG | {"seed": seed}, receive_buffer=4096)
    assert connection.recv(20).startswith(b"HTTP/1.1 200")
    return connection


def whole(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def closed_after(connection: socket.socket) -> float:
    """Seconds until the other side closes."""
    start = time.monotonic()
    connection.settimeout(5)
    while connection.recv(65536):
        pass
    return time.monotonic() - start


def test_readers_who_do_not_read_give_up_their_places(app: Any, address: str) -> None:
    held = [unread(address, seed) for seed in range(app.state.jobs.share)]
    assert app.state.jobs.under_way == len(held)
    soon_idle(app)
    assert b'"text":' in whole(raw(address, "/api/chain", {"steps": 4}))
    assert not any(whole(connection).endswith(b"\r\n0\r\n\r\n") for connection in held)  # cut off before the end


def test_an_answer_that_is_short_but_unread_is_cut_off_too(app: Any, address: str) -> None:
    """Keep the connection, but no place in the queue, for a finished answer that nobody reads."""
    with raw(address, "/api/replay", {"steps": 1024}, receive_buffer=4096) as connection:
        assert connection.recv(20).startswith(b"HTTP/1.1 200")
        soon_idle(app)
        time.sleep(1.2)
        assert not whole(connection).endswith(b"}")


def test_a_slow_reader_is_served(address: str) -> None:
    with raw(address, "/api/replay", {"steps": 300}, receive_buffer=4096) as connection:
        received = b""
        while part := connection.recv(40_000):
            received += part
            time.sleep(0.03)
    assert received.endswith(b"}") and len(received) > 100_000


def test_one_client_does_not_take_all_places(folder: Path) -> None:
    app = make_app([folder], most=8)
    with listening(app, send_buffer=4096) as address:
        held = [unread(address, seed) for seed in range(4)]
        refused = whole(raw(address, "/api/chain", LONG))
        assert refused.startswith(b"HTTP/1.1 429") and b"Too many requests at once" in refused
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0), timeout=10) as other:
            request = (
                f"GET /api/models/mdlm HTTP/1.1\r\nhost: {address}\r\nx-forwarded-for: 127.0.0.1\r\nconnection: close\r\n\r\n"
            )
            other.sendall(request.encode())
            assert other.recv(20).startswith(b"HTTP/1.1 200")
        for connection in held:
            connection.close()
        soon_idle(app)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "])
def test_half_a_request_does_not_stay(address: str, sent: bytes) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(sent)
        assert 0.2 < closed_after(connection) < 2


def test_headers_that_come_byte_by_byte_do_not_stay(address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection, pytest.raises(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(60):
            connection.sendall(b"x")
            time.sleep(0.05)


def test_a_second_request_on_the_same_connection_has_its_time_too(address: str) -> None:
    host, port = address.split(":")
    request = f"GET /api/models HTTP/1.1\r\nhost: {address}\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as connection:
        for _ in range(3):
            connection.sendall(request)
            received = b""
            while not received.endswith(b"}"):
                received += connection.recv(65536)
            assert received.startswith(b"HTTP/1.1 200")
            time.sleep(0.2)
        connection.sendall(request[:20])
        assert closed_after(connection) < 2


def test_a_long_answer_takes_longer_than_a_request_may(app: Any, address: str) -> None:
    """Read slowly, so that it is still being written after three times as long, however fast the machine is."""
    connection = raw(address, "/api/chain", LONG, receive_buffer=4096)
    start, received = time.monotonic(), b""
    while time.monotonic() - start < 3 * Hasty.seconds_to_ask:
        received += connection.recv(512)
        time.sleep(0.02)
    assert app.state.jobs.under_way == 1
    received += whole(connection)
    assert received.endswith(b"\r\n0\r\n\r\n") and b'"seconds":' in received[-100:]
    soon_idle(app)
