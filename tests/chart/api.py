"""A Kubernetes API server of the tests' own, on loopback, for Helm's clients.

It keeps objects, and that is nearly all: there is no scheduler behind it, and no controller but for what objects of two
releases could quarrel over: a JobSet gets its Service, and what it is made of cannot be changed. What no test can have
here is the judgement of a real kube-apiserver; tests/chart/schemas.py has the schemas of one instead. Jobs end as soon
as they are made, in the way that the test says.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.chart.objects import Object, Place, Refused, Store, discovery, merged, place_of, selected


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is two small writes, and Helm asks many times
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        method = getattr(self, f"_{self.command.lower()}")
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        try:
            method(url.path, query, json.loads(body) if body else {})
        except Refused as refused:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(refused)}
            self._say({**status, "code": refused.code, "reason": refused.reason}, refused.code)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  # names of the library

    def _say(self, answer: Object, code: int = 200) -> None:
        text = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _get(self, path: str, query: dict[str, str], body: Object) -> None:
        if path == "/openapi/v2":  # asked for as protobuf, in which nothing is a document without models
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        known = discovery(path)
        if known is not None:
            self._say(known)
            return
        place, store = place_of(path), self.server.store
        if query.get("watch") in ("1", "true"):
            self._watch(place, query)
            return
        with store.changed:
            if place.name:
                self._say(store.get(place))
            else:
                items = [kept for at, kept in store.objects.items() if selected(at, kept, place, query)]
                metadata = {"resourceVersion": str(len(store.events))}
                self._say(
                    {"kind": f"{place.kind}List", "apiVersion": place.version, "metadata": metadata, "items": items}
                )

    def _watch(self, place: Place, query: dict[str, str]) -> None:
        """Say what happens, from the version asked for, until the server ends."""
        if "sendInitialEvents" in query:
            raise Refused(422, "Invalid", "list first, then watch")
        store, seen = self.server.store, int(query.get("resourceVersion") or 0)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while not store.closed:
            news = store.news(seen)
            seen += len(news)
            for what, at, kept in news:
                if selected(at, kept, place, query):
                    with suppress(OSError):  # it has seen enough
                        self.wfile.write(json.dumps({"type": what, "object": kept}).encode() + b"\n")

    def _post(self, path: str, query: dict[str, str], body: Object) -> None:
        kind, store = place_of(path), self.server.store
        place = Place(kind.version, kind.resource, kind.namespace, body["metadata"]["name"])
        with store.changed:
            if place in store.objects:
                raise Refused(409, "AlreadyExists", f"{place.resource} {place.name!r} already exists")
            self._say(store.put(place, body), 201)

    def _put(self, path: str, query: dict[str, str], body: Object) -> None:
        place, store = place_of(path), self.server.store
        with store.changed:
            store.get(place)
            self._say(store.put(place, body))

    def _patch(self, path: str, query: dict[str, str], body: Object) -> None:
        place, store = place_of(path), self.server.store
        applied = "apply-patch" in self.headers.get("Content-Type", "")  # which may make an object too
        with store.changed:
            old = store.objects.get(place, {}) if applied else store.get(place)
            self._say(store.put(place, merged(old, body)), 200 if old else 201)

    def _delete(self, path: str, query: dict[str, str], body: Object) -> None:
        store = self.server.store
        with store.changed:
            self._say(store.delete(place_of(path)))


class Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close() waits for them

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = Store()
        self._connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Also what clients keep open for later: Helm 4 does so for a minute and a half."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


@contextmanager
def running(directory: Path) -> Iterator[tuple[Store, Path]]:
    """A server, and the kubeconfig that leads to it."""
    server = Server()
    kubeconfig = directory / "kubeconfig"
    address = f"http://127.0.0.1:{server.server_address[1]}"
    named = {
        "clusters": [{"name": "tests", "cluster": {"server": address}}],
        "users": [{"name": "tests", "user": {}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
    }
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "tests", **named}))
    kubeconfig.chmod(0o600)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.store, kubeconfig
    finally:
        server.store.close()
        server.shutdown()
        thread.join()
        server.server_close()
