"""What GCE's metadata server says to the nodes, with the local cluster's own answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent.workbench.local.metadata_server import answer
from agent.workbench.local.spec import Place


def serve_places(address: tuple[str, int], place_of: Callable[[str], Place | None]) -> None:
    """`place_of` an address is where its node stands: the node's own address, or that of a pod on it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            head = "\r\n".join([self.requestline, *(f"{name}: {value}" for name, value in self.headers.items())])
            self.wfile.write(answer(head, place_of(self.client_address[0]), "ok"))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metadata", daemon=True).start()
