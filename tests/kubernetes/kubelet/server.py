"""The HTTPS server of a node, which the API server asks for `kubectl logs` and `kubectl exec`."""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.kubelet import logs
from tests.kubernetes.kubelet.execution import ACCEPTED, PROTOCOL, Channels, serve
from tests.kubernetes.kubelet.pod import PodWorker


class Keys(NamedTuple):
    """Files: the server's certificate and key, and who may sign clients'."""

    certificate: Path
    key: Path
    authority: Path


Find = Callable[[str, str], PodWorker | None]
"""The pod of a namespace and name, if it is on the node."""


class NodeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], keys: Keys, find: Find) -> None:
        super().__init__(address, Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys.certificate, keys.key)
        context.load_verify_locations(keys.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.find = find

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="node server", daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: NodeServer

    def do_GET(self) -> None:
        self.close_connection = True
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        if len(parts) != 4 or parts[0] not in ("containerLogs", "exec"):
            self.send_error(404)
            return
        action, namespace, pod, container = parts
        worker = self.server.find(namespace, pod)
        if not worker or container not in worker.states:
            self.send_error(404, f"container {container} of pod {namespace}/{pod} is not on this node")
        elif action == "exec":
            self._execute(worker, container, parse_qs(url.query))
        else:
            self._log(worker, container, {key: values[-1] for key, values in parse_qs(url.query).items()})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _log(self, worker: PodWorker, container: str, query: dict[str, str]) -> None:
        path = worker.log_of(container)
        if query.get("previous") == "true" or not path.exists():
            self.send_error(400, f'container "{container}" in pod "{worker.pod["metadata"]["name"]}" has not started')
            return
        tail = int(query["tailLines"]) if "tailLines" in query else None
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in logs.read(path, tail, query.get("follow") == "true", lambda: container not in worker.running):
            if piece:  # an empty one would be the last
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _execute(self, worker: PodWorker, container: str, query: dict[str, list[str]]) -> None:
        running = worker.running.get(container)
        if not running:
            self.send_error(400, f"container {container} does not run")
            return
        if PROTOCOL not in self.headers.get("Sec-WebSocket-Protocol", ""):
            self.send_error(400, f"only {PROTOCOL} is spoken here")
            return
        key = self.headers["Sec-WebSocket-Key"] + ACCEPTED
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", PROTOCOL)
        self.end_headers()
        self.wfile.flush()
        wanted = {name for name in ("input", "output", "error", "tty") if query.get(name, [""])[-1] in ("1", "true")}
        serve(Channels(self.connection), running.container, query["command"], wanted)
