"""A server on this machine with as much of the Hugging Face Hub's interface as pushing and loading a run use."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"


class Hub(ThreadingHTTPServer):
    """files: the content of each repository, by its name and the path of the file. commit: the hash that it names."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.asked: list[str] = []
        self.commit: str | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path).strip("/")
        hub.asked.append(f"{self.command} {path}")
        parts = path.removeprefix("api/models/").split("/")
        name = "/".join(parts[:2])
        if name not in hub.files or (name in hub.private and TOKEN not in self.headers.get("Authorization", "")):
            self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            return
        files, rest = hub.files[name], parts[2:]
        sha = hub.commit or hashlib.sha1(json.dumps(sorted(files)).encode() + b"".join(files.values())).hexdigest()
        if rest[:1] == ["resolve"]:
            content = files.get("/".join(rest[2:]))
            if content is None:
                self._answer(b"", 404, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
            else:
                self._answer(content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=sha)
        elif rest[:1] == ["tree"]:
            self._answer([{"type": "file", "path": p, "size": len(c), "oid": _oid(c)} for p, c in files.items()])
        elif rest[:1] == ["revision"] and rest[1] not in ("main", sha):
            self._answer({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        else:
            about = {"id": name, "modelId": name, "sha": sha, "private": False, "tags": [], "downloads": 0, "likes": 0}
            self._answer(about | {"siblings": [{"rfilename": file} for file in files]})

    def do_POST(self) -> None:
        hub, path = self.server, urlsplit(self.path).path.strip("/")
        hub.asked.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if TOKEN not in self.headers.get("Authorization", ""):
            self._answer({"error": "Unauthorized"}, 401)
        elif path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            hub.files.setdefault(name, {})
            hub.private |= {name} if asked.get("private") or asked.get("visibility") == "private" else set()
            self._answer({"url": f"{hub.address}/{name}"})
        elif path.endswith("validate-yaml"):
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [file["path"] for file in json.loads(body)["files"]]
            self._answer({"files": [{"path": file, "uploadMode": "regular", "shouldIgnore": False} for file in files]})
        elif "/commit/" in path:
            name = "/".join(path.split("/")[2:4])
            files = hub.files[name]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._answer(
                {"commitUrl": f"{hub.address}/{name}/commit/{'0' * 40}", "commitOid": "0" * 40, "success": True}
            )
        else:
            self._answer({"error": path}, 404)


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A running server, which stops at the end of the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
