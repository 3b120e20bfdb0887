"""A hub on 127.0.0.1 that speaks what huggingface_hub needs to make a repository, commit files to it, and fetch them."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_" + "t" * 20


@dataclass
class Repository:
    """Its files, whether it is private, and the messages of its commits."""

    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    @property
    def sha(self) -> str:
        return hashlib.sha1(repr(sorted((name, hash_of(content)) for name, content in self.files.items())).encode()).hexdigest()


@dataclass
class Hub:
    """address: where it answers. repositories: by their id. asked: method and path of every request."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


def hash_of(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


@contextlib.contextmanager
def served() -> Iterator[Hub]:
    """Serve a hub within the context."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            return

        def answer(self, status: int, body: bytes | dict[str, Any] | list[Any] = b"", **headers: str) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), "Content-Type": "application/json", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            hub.asked.append(f"{self.command} {path}")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, {"error": "Invalid credentials in Authorization header"})
            elif path == "/api/whoami-v2":
                self.answer(200, {"type": "user", "name": "owner", "auth": {"type": "access_token"}})
            elif path == "/api/validate-yaml":
                self.answer(200, {"errors": [], "warnings": []})
            elif path == "/api/repos/create":
                self.create(json.loads(body))
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.*)?", path):
                self.about(hub.repositories.get(found[1]), found[1], found[2] or "", body)
            elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                self.file(hub.repositories.get(found[1]), found[2])
            else:
                self.answer(404, {"error": f"nothing at {path}"})

        do_GET = do_POST = do_HEAD = handle_any

        def create(self, asked: dict[str, Any]) -> None:
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            name = name if "/" in name else f"owner/{name}"
            if name in hub.repositories:
                self.answer(409, {"error": "You already created this model repo", "url": f"{hub.address}/{name}"})
                return
            private = bool(asked.get("private")) or asked.get("visibility") == "private"
            hub.repositories[name] = Repository(private)
            self.answer(200, {"url": f"{hub.address}/{name}", "name": name})

        def about(self, repository: Repository | None, name: str, what: str, body: bytes) -> None:
            if repository is None:
                self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            elif what.startswith("/preupload/"):
                files = [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in json.loads(body)["files"]
                ]
                self.answer(200, {"files": files})
            elif what.startswith("/commit/"):
                for line in map(json.loads, body.splitlines()):
                    value = line["value"]
                    if line["key"] == "header":
                        repository.messages.append(value["summary"])
                    elif line["key"] == "file":
                        repository.files[value["path"]] = base64.b64decode(value["content"])
                    else:
                        del repository.files[value["path"]]
                self.answer(200, {"commitUrl": f"{hub.address}/{name}/commit/{repository.sha}", "commitOid": repository.sha})
            elif what.startswith("/tree/"):
                listed = repository.files.items()
                self.answer(200, [{"type": "file", "path": p, "size": len(c), "oid": hash_of(c)} for p, c in listed])
            elif what == "" or what.startswith("/revision/"):
                siblings = [{"rfilename": path} for path in repository.files]
                self.answer(200, {"id": name, "sha": repository.sha, "private": repository.private, "siblings": siblings})
            else:
                self.answer(404, {"error": f"nothing at {what}"})

        def file(self, repository: Repository | None, path: str) -> None:
            if repository is None or path not in repository.files:
                self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
                return
            content = repository.files[path]
            headers = {"ETag": f'"{hash_of(content)}"', "X_Repo_Commit": repository.sha}
            self.answer(200, content, **headers)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
