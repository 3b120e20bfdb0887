"""Small models for the studio, and a studio that listens on a port."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import torch
import uvicorn
from starlette.testclient import TestClient

import unnoise
from unnoise.apps.spelling.words import FILE, Words
from unnoise.apps.studio.server import TimedProtocol, server_config

WORDS = "the cat sat on mat and dog log while bird sang in tree"


def tiny(method: str, folder: Path) -> Path:
    """Save a small model with random weights and a list of words."""
    model = unnoise.Model.build(method, width=16, depth=1, heads=2, length=24)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # a fresh network is undecided: every token as likely as the next
        for weight in model.network.head.parameters():
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    model.extra_files[FILE] = Words(dict.fromkeys(WORDS.split(), 10**9)).to_bytes()
    model.save(folder / method)
    return folder / method


def tiny_models(home: Path) -> list[Path]:
    """Save one model of each kind; the last is the default."""
    return [tiny(method, home) for method in ("ar", "flexmdm", "genmd4", "udlm", "mdlm")]


def client_of(app: Any) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@contextmanager
def listening(app: Any, protocol: type[TimedProtocol] = TimedProtocol, send_buffer: int | None = None) -> Iterator[str]:
    """Serve a studio on a free port and yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = uvicorn.Server(server_config(app, protocol, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def raw(address: str, path: str, body: dict[str, Any], receive_buffer: int | None = None) -> socket.socket:
    """Send a request through a plain socket, which may be closed at any moment or left unread."""
    host, port = address.split(":")
    content = json.dumps(body).encode()
    connection = socket.socket()
    connection.settimeout(30)
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((host, int(port)))
    head = f"POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return connection


def soon_idle(app: Any) -> None:
    """Wait until no job is running any more."""
    start = time.monotonic()
    while app.state.jobs.under_way and time.monotonic() - start < 5:
        time.sleep(0.02)
    assert app.state.jobs.under_way == 0
