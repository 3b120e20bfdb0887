"""Access to the studio: by host and origin, and with a token if other machines can reach it."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.testclient import TestClient

from studio_server import client_of, tiny
from unnoise.apps.studio import make_app, serve, server
from unnoise.apps.studio.server import find_address
from unnoise.cli.main import main

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("mdlm", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def client(folder: Path) -> TestClient:
    return client_of(make_app([folder]))


@pytest.fixture
def guarded(folder: Path) -> TestClient:
    """Return a client of a studio that requires a token."""
    return TestClient(make_app([folder], host="0.0.0.0", token=TOKEN), base_url="http://192.168.0.5:8000")


# ---- host and origin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "192.168.0.5"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": ""}, 403),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 200),  # a link on another site may lead here
        ({"origin": "http://127.0.0.1"}, 200),
    ],
)
def test_only_this_machine_by_its_own_name(client: TestClient, headers: dict[str, str], status: int) -> None:
    assert client.get("/api/models", headers=headers).status_code == status


def test_another_sites_page_cannot_ask(client: TestClient) -> None:
    answer = client.post("/api/blank", json={"text": "a"}, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403 and "Another site" in answer.json()["error"]["message"]


def test_open_to_the_network_any_address_is_its_own_but_no_name(folder: Path) -> None:
    client = TestClient(make_app([folder], host="0.0.0.0"), base_url="http://192.168.0.5:8000")
    assert client.get("/api/models").status_code == 200
    assert client.get("/api/models", headers={"host": "evil.example"}).status_code == 403


# ---- the address ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", "  "])
def test_an_empty_host_is_refused(folder: Path, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="the host is empty"):
        serve([folder], host, port=0)
    with pytest.raises(ValueError, match="the host is empty"):
        make_app([folder], host)
    assert main(["studio", "--model", str(folder), "--host", host, "--port", "0"]) == 2
    assert "the host is empty" in capsys.readouterr().err


def test_a_host_that_cannot_be_found_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(server.socket, "getaddrinfo", unknown)
    with pytest.raises(ValueError, match=r"the host .nowhere\.example. cannot be found: .*not known"):
        serve([folder], "nowhere.example", port=0)


def test_which_hosts_only_this_machine_reaches() -> None:
    assert all(find_address(host).is_loopback for host in ("127.0.0.1", "localhost", "127.8.9.10", "::1"))
    assert not any(find_address(host).is_loopback for host in ("0.0.0.0", "0", "::", "192.168.0.5"))
    assert find_address("0").host == "0.0.0.0" and find_address(" localhost ").host == "localhost"
    assert find_address("::1").url(80, "secret") == "http://[::1]:80/?token=secret"


# ---- the token ------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_served(guarded: TestClient) -> None:
    for path in ("/", "/page.js", "/api/models", "/v1/models", "/?token=", "/?token=wrong", f"/api/models?token={TOKEN}"):
        answer = guarded.get(path)
        assert answer.status_code == 401 and "needs its token" in answer.json()["error"]["message"]
        assert answer.headers["www-authenticate"] == "Bearer" and "set-cookie" not in answer.headers
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    for sent in ("Bearer wrong", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00e9".encode("latin-1")):
        assert guarded.get("/api/models", headers={"authorization": sent}).status_code == 401
    assert guarded.post("/api/chain", json={}).status_code == 401


def test_the_address_with_the_token_sets_a_cookie(guarded: TestClient) -> None:
    opened = guarded.get(f"/?token={TOKEN}")
    assert opened.status_code == 200 and "<!doctype html>" in opened.text
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(opened.headers["set-cookie"].split("; "))
    assert guarded.get("/api/models").status_code == 200
    assert guarded.post("/api/blank", json={"text": "a"}).status_code == 200


def test_the_token_in_a_header(guarded: TestClient) -> None:
    for path in ("/api/models", "/v1/models"):
        assert guarded.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    evil = {"authorization": f"Bearer {TOKEN}", "host": "evil.example"}
    assert guarded.get("/v1/models", headers=evil).status_code == 403


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collect what `serve` would run, without running it."""
    configured: list[Any] = []

    class NotRun:
        def __init__(self, config: Any):
            configured.append(config)

        def run(self, sockets: list[socket.socket]) -> None:
            for one in sockets:
                one.close()

    monkeypatch.setattr(server.uvicorn, "Server", NotRun)
    yield configured


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_alone_needs_no_token(
    folder: Path, host: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    serve([folder], host, port=0)
    assert re.fullmatch(rf"unnoise studio: http://{re.escape(host)}:\d+\n", capsys.readouterr().out)
    assert client_of(started[0].app).get("/api/models").status_code == 200


def test_beyond_this_machine_a_token_is_made_and_printed_once(
    folder: Path, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    serve([folder], "0.0.0.0", port=0)
    serve([folder], "0.0.0.0", port=0)
    tokens = re.findall(r"http://0.0.0.0:\d+/\?token=([\w-]+)", capsys.readouterr().out)
    assert len(set(tokens)) == 2 and all(len(token) >= 32 for token in tokens)
    client = client_of(started[0].app)
    assert client.get("/api/models").status_code == 401
    assert client.get("/api/models", headers={"authorization": f"Bearer {tokens[1]}"}).status_code == 401
    assert client.get("/api/models", headers={"authorization": f"Bearer {tokens[0]}"}).status_code == 200


def test_a_token_of_ones_own(folder: Path, started: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", "--model", str(folder), "--port", "0", "--token", TOKEN]) == 0
    assert f"/?token={TOKEN}\n" in capsys.readouterr().out
    assert client_of(started[0].app).get("/api/models").status_code == 401
    for short in ("", "secret", "with spaces", "quote;quote"):
        with pytest.raises(ValueError, match="a token has 8 to 200 letters"):
            serve([folder], port=0, token=short)
        with pytest.raises(ValueError, match="a token has 8 to 200 letters"):
            make_app([folder], token=short)
