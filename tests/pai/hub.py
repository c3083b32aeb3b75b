"""A server for what the pipelines fetch, models, files and git repositories, with the faults of real ones.

Its API is that of Hugging Face as far as `huggingface_hub` uses it to fetch a model, and plain files with ranges.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

REVISION = hashlib.sha1(b"the only revision of every model").hexdigest()
_CHUNK = 16 * 1024


class Seen(NamedTuple):
    """A request and how it was answered."""

    method: str
    path: str
    range: str
    token: str
    status: int


@dataclass
class Fault:
    """What goes wrong with the next `times` requests whose path has `path` in it."""

    path: str
    status: int = 0
    cut: int = -1
    """The connection ends after so many bytes of the content."""
    held: threading.Event | None = None
    """The end of the content does not come before this is set."""
    times: int = 1


@dataclass
class Hub:
    """What is served: `models` (name → directory), `files` (a directory, below /files/) and `git` (below /git/)."""

    models: Mapping[str, Path] = field(default_factory=dict)
    files: Path = Path()
    git: Path = Path()
    token: str = ""
    """Without it models are not shown; empty: they are for everyone."""
    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, method: str, path: str) -> Fault | None:
        """The first that applies, which is used up by it."""
        with self._lock:
            for fault in self.faults:
                if fault.path in path and fault.times > 0 and (fault.status or method != "HEAD"):
                    fault.times -= 1
                    return fault
        return None

    def content(self, path: str) -> tuple[Path, Mapping[str, str]] | None:
        """The file of a URL's path, and its own headers."""
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, rest = match.groups()
            if name in self.models and revision in (REVISION, "main"):
                return self.models[name] / rest, {"X-Repo-Commit": REVISION}
        if path.startswith("/files/"):
            return self.files / path.removeprefix("/files/"), {}
        return None

    def api(self, path: str) -> object:
        """The answer of the API; None: there is no such thing."""
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        if not match or match[1] not in self.models or match[3] not in (REVISION, "main", None):
            return None
        files = sorted(file for file in self.models[match[1]].rglob("*") if file.is_file())
        names = [file.relative_to(self.models[match[1]]).as_posix() for file in files]
        entries = [_entry(name, file.read_bytes()) for name, file in zip(names, files, strict=True)]
        if match[2] == "tree":
            return entries
        siblings = [{"rfilename": entry["path"], "size": entry["size"]} for entry in entries]
        return {"id": match[1], "sha": REVISION, "private": False, "siblings": siblings}


def _entry(name: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "file",
        "path": name,
        "size": len(content),
        "oid": hashlib.sha1(content).hexdigest(),
    }
    if name.endswith(".safetensors"):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        """Requests are in `seen`."""

    def do_GET(self) -> None:
        self.close_connection = True
        path = urlsplit(self.path).path
        fault = self.hub.fault(self.command, path)
        if fault and fault.status:
            self._answer(fault.status, b"not now", {"Retry-After": "1"})
        elif path.startswith("/git/"):
            self._git(path.removeprefix("/git"), fault)
        elif path.startswith("/files/"):
            self._content(path, fault)
        elif self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._answer(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        elif not path.startswith("/api/"):
            self._content(path, fault)
        elif (found := self.hub.api(path)) is None:
            self._answer(404, b'{"error": "not here"}', {"X-Error-Code": "RevisionNotFound"})
        else:
            self._answer(200, json.dumps(found).encode(), {})

    do_HEAD = do_POST = do_GET  # noqa: N815  # as http.server calls them

    def _content(self, path: str, fault: Fault | None) -> None:
        file, headers = self.hub.content(path) or (None, {})
        if file is None or not file.is_file():
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound" if file else "RepoNotFound"})
            return
        content = file.read_bytes()
        more = {**headers, "ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        if file.suffix == ".html":
            more["Content-Type"] = "text/html"
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            self._answer(200, content, more, fault)
            return
        first, last = int(match[1]), int(match[2] or len(content) - 1)
        if first >= len(content):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        more["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self._answer(206, content[first : last + 1], more, fault)

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        asked = {name: self.headers.get(name, "") for name in ("Range", "Authorization")}
        self.hub.seen.append(Seen(self.command, self.path, asked["Range"], asked["Authorization"], status))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send(content, fault)

    def _send(self, content: bytes, fault: Fault | None) -> None:
        cut = fault.cut if fault and fault.cut >= 0 else len(content)
        for at in range(0, cut, _CHUNK):
            if fault and fault.held and at + _CHUNK >= cut:
                fault.held.wait()
            self.wfile.write(content[at : min(at + _CHUNK, cut)])

    def _git(self, path: str, fault: Fault | None) -> None:
        """`git http-backend`, as a web server runs it."""
        query = urlsplit(self.path).query
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.hub.git),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "REMOTE_ADDR": "pod",
        }
        sent = self._body()
        made = subprocess.run(["git", "http-backend"], input=sent, env=env, capture_output=True).stdout
        head, _, body = made.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self._answer(int(headers.pop("Status", "200 ").split()[0]), body, headers, fault)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class _Quiet(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` waits for them

    def handle_error(self, *_: object) -> None:
        """Clients are killed in these tests, and go in the middle of an answer."""


@contextmanager
def serving(hub: Hub, listening: socket) -> Iterator[None]:
    """The hub on a listening socket, in threads of this process."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Quiet(listening.getsockname(), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        for fault in hub.faults:
            if fault.held:
                fault.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
