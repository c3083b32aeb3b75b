"""What GCE's metadata server says to a node, and the ways in which it can fail.

`answer` is pure; `serve_metadata` joins it to the supervisor's loop.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from http import HTTPStatus

from agent.machine.loop import READ, Loop
from agent.machine.unix_socket import take_connections
from agent.workbench.local.spec import Place

_ATTRIBUTES = "/computeMetadata/v1/instance/attributes/"
_LIMIT = 65536
_PAGE = "<!DOCTYPE html>\n<html lang=en>\n<title>Error {code}</title>\n<p><b>{code}.</b> {reason}\n</html>\n"


def attributes(place: Place) -> dict[str, str]:
    """The instance attributes of a node that stands at `place`."""
    cluster, block, sub_block, host = place
    topology = {"cluster": cluster, "block": block, "subBlock": sub_block, "host": host}
    return {
        "physical_host": f"/{cluster}/{block}/{host}",
        "physical_host_topology": json.dumps(topology),
    }


def _response(code: int, kind: str, body: str, flavor: bool = True) -> bytes:
    reason = HTTPStatus(code).phrase
    head = [
        f"HTTP/1.1 {code} {reason}",
        *(["Metadata-Flavor: Google"] if flavor else []),
        f"Content-Type: {kind}",
        f"Content-Length: {len(body.encode())}",
        "Server: Metadata Server for VM",
        "Connection: close",
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


def _page(code: int, flavor: bool = True) -> bytes:
    body = _PAGE.format(code=code, reason=HTTPStatus(code).phrase)
    return _response(code, "text/html; charset=UTF-8", body, flavor)


def answer(request: str, place: Place | None, mode: str) -> bytes:
    """The whole response to a request's head, from a node at `place` (None: not one of the nodes)."""
    line, *headers = request.split("\r\n")
    words = line.split(" ")
    if len(words) != 3:
        return _page(400)
    if mode == "html":
        return _page(200, flavor=False)
    if mode in ("404", "503"):
        return _page(int(mode))
    named = dict(header.partition(":")[::2] for header in headers)
    flavor = next((value for name, value in named.items() if name.lower() == "metadata-flavor"), "")
    if flavor.strip() != "Google":
        return _page(403)
    path = words[1].partition("?")[0]
    known = attributes(place) if place else {}
    value = known.get(path[len(_ATTRIBUTES) :]) if path.startswith(_ATTRIBUTES) else None
    if value is None:
        return _page(404)
    return _response(200, "application/text", value, flavor=mode != "no-header")


def serve_metadata(
    loop: Loop, address: str, place_of: Callable[[str], Place | None], mode_of: Callable[[str], str]
) -> None:
    """Answer on `address`:80 from within the supervisor's loop; a node is known by its address."""
    listener = socket.create_server((address, 80), backlog=4096)
    listener.setblocking(False)

    def opened(connection: socket.socket) -> None:
        connection.setblocking(False)
        received = bytearray()
        loop.watch(connection.fileno(), READ, lambda: read(connection, received))

    def read(connection: socket.socket, received: bytearray) -> None:
        try:
            piece = connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        received += piece
        if piece and not (b"\r\n\r\n" in received or len(received) > _LIMIT):
            return
        with contextlib.suppress(OSError):
            client = connection.getpeername()[0]
            mode = mode_of(client)
            if piece and mode == "stall":
                return
            if piece:
                head = received.partition(b"\r\n\r\n")[0].decode("latin-1")
                connection.send(answer(head, place_of(client), mode))
        loop.forget(connection.fileno())
        connection.close()

    take_connections(loop, listener, opened)
