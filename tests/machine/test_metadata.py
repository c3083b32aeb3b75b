"""The metadata server's answers, good and bad, from a real server on this machine."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from agent.machine.metadata import ATTRIBUTES, MOST_BYTES, locate

TOPOLOGY, PHYSICAL = ATTRIBUTES
PREFIX = "/computeMetadata/v1/instance/attributes/"
PLACE = json.dumps({"cluster": "c", "block": "b", "subBlock": "s", "host": "h"})
GOOGLE = "Metadata-Flavor: Google"
PATIENT = 30.0  # for servers that do answer, on a machine that is busy


def reply(body: str, status: int = 200, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.0 {status} Words", *(headers or (GOOGLE,)), "", body]).encode()


class Server:
    """Answers each attribute with the next of its replies, the last one again and again; then it ends the connection,
    or holds it."""

    def __init__(self, *, holds: bool = False, address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self._holds = holds
        self._held: list[socket.socket] = []
        self.replies: dict[str, list[bytes]] = {name: [reply("", 404)] for name in ATTRIBUTES}
        self.asked: list[str] = []
        port = self._listener.getsockname()[1]
        self.host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    @contextmanager
    def serving(self) -> Iterator[Server]:
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
            thread.join()
            for end in (self._listener, *self._held):
                end.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            request = connection.recv(65536).decode()
            name = re.match(rf"GET {PREFIX}(\w+) HTTP/1.1\r\n(?s:.*)^{GOOGLE}\r\n", request, re.MULTILINE)
            assert name, request
            self.asked.append(name[1])
            replies = self.replies[name[1]]
            with suppress(OSError):  # the client has had enough of a huge body
                connection.sendall(replies.pop(0) if len(replies) > 1 else replies[0])
            if self._holds:
                self._held.append(connection)
            else:
                connection.close()

    def counts(self) -> list[int]:
        return [self.asked.count(name) for name in ATTRIBUTES]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().serving() as server:
        yield server


def test_one_of_both_is_enough(server: Server) -> None:
    server.replies[PHYSICAL] = [reply("/c/r/h")]
    assert locate(server.host, seconds=PATIENT) == ({PHYSICAL: "/c/r/h"}, "")
    assert server.counts() == [1, 1]


def test_only_what_is_open_is_asked_again(server: Server) -> None:
    server.replies = {TOPOLOGY: [reply("", 503), reply("", 503), reply(PLACE)], PHYSICAL: [reply("/c")]}
    assert locate(server.host, seconds=PATIENT) == ({TOPOLOGY: PLACE, PHYSICAL: "/c"}, "")
    assert server.counts() == [3, 1]


HEAD = b"HTTP/1.1 200 OK\r\nMETADATA-FLAVOR:Google\r\ncontent-length: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "why", "tries"),
    [
        pytest.param(reply("", 404), "does not have the attributes", 1, id="404"),
        pytest.param(reply("", 503), "it answered 503", 2, id="503"),
        pytest.param(reply("", 302, GOOGLE, "Location: /elsewhere"), "it answered 302", 2, id="redirect"),
        pytest.param(reply(PLACE, 200, "Metadata-Flavor: Other"), "not a metadata server", 1, id="header"),
        pytest.param(reply("x" * (MOST_BYTES + 1)), "more than 4096 bytes", 1, id="long"),
        pytest.param(reply("x" * 5_000_000), "more than 4096 bytes", 1, id="huge"),
        pytest.param(reply(""), "is empty", 1, id="empty"),
        pytest.param(reply(" \n"), "is empty", 1, id="blank"),
        pytest.param(HEAD + b"/", "its answer broke off", 2, id="half a body"),
        pytest.param(HEAD[:20], "not a metadata server", 1, id="half a head"),
        pytest.param(b"", "does not speak HTTP", 2, id="nothing"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak HTTP", 2, id="ssh"),
    ],
)
def test_what_is_no_answer(answer: bytes, why: str, tries: int, server: Server) -> None:
    """What may get better is asked again."""
    server.replies = {name: [answer] for name in ATTRIBUTES}
    found = locate(server.host, tries=2, seconds=PATIENT)
    assert found.answers == {}
    assert why in found.warning and server.host in found.warning
    assert server.counts() == [tries, tries]


CHUNKED = HEAD.replace(b"content-length: 2", b"Transfer-Encoding: chunked") + b"2\r\n/c\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "text", "holds", "address"),
    [
        pytest.param(HEAD.replace(b"2\r", b"two\r") + b"/c", "/c", False, "127.0.0.1", id="a length that is no number"),
        pytest.param(HEAD + b"/c", "/c", True, "127.0.0.1", id="a connection that stays open"),
        pytest.param(CHUNKED, "/c", True, "127.0.0.1", id="chunks"),
        pytest.param(HEAD + b"\xff\n", "\ufffd", False, "127.0.0.1", id="bytes that are no text"),
        pytest.param(HEAD + b"/c", "/c", False, "::1", id="IPv6"),
    ],
)
def test_what_is_an_answer(answer: bytes, text: str, holds: bool, address: str) -> None:
    with Server(holds=holds, address=address).serving() as server:
        server.replies = {name: [answer] for name in ATTRIBUTES}
        assert locate(server.host, tries=1, seconds=PATIENT).answers == dict.fromkeys(ATTRIBUTES, text)


def test_a_proxy_is_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.replies[PHYSICAL] = [reply("/c")]
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert locate(server.host, seconds=PATIENT).answers == {PHYSICAL: "/c"}


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        found = locate(host, tries=2, seconds=0.2)
    assert (found.answers, found.warning) == (
        {},
        f"no place from the metadata server {host}: no answer within 0.2 s",
    )


def drip(server: socket.socket, stop: threading.Event, head: bytes) -> None:
    """A byte now and then for ever: never silent, never done."""
    connections = []
    server.settimeout(0.02)
    while not stop.wait(0.02):
        try:
            connections.append(server.accept()[0])
            connections[-1].sendall(head)
        except OSError:
            pass
        for connection in connections:
            try:
                connection.sendall(b"x")
            except OSError:
                pass
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("head", [b"", b"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\n\r\n"], ids=["head", "body"])
def test_a_server_that_drips_is_given_up(head: bytes) -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server, stop, head))
        thread.start()
        found = locate(f"127.0.0.1:{server.getsockname()[1]}", tries=1, seconds=0.3)
        stop.set()
        thread.join()
    assert found.answers == {}
    assert "no answer within 0.3 s" in found.warning


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "127.0.0.1:99999", "no-such-host.invalid", "a..b", "a" * 70, "", "x:y", "a b"]
)
def test_no_server_at_all_is_a_warning(host: str) -> None:
    found = locate(host, tries=1)
    assert found.answers == {}
    assert found.warning.startswith(f"no place from the metadata server {host}: ")
