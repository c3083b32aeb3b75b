"""The metadata server's answers, good and bad, from a real server on this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.machine.metadata import ATTRIBUTES, MOST_BYTES, TRIES, locate

TOPOLOGY, PHYSICAL = ATTRIBUTES
PREFIX = "/computeMetadata/v1/instance/attributes/"
PLACE = json.dumps({"cluster": "c", "block": "b", "subBlock": "s", "host": "h"})
GOOGLE = {"Metadata-Flavor": "Google"}
PATIENT = 30.0  # for servers that do answer, on a machine that is busy


@dataclass
class Reply:
    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=lambda: GOOGLE)


class Metadata(ThreadingHTTPServer):
    """Answers each attribute with the next of its replies, the last one again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: dict[str, list[Reply]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.host = f"127.0.0.1:{self.server_address[1]}"

    def count(self, name: str) -> int:
        return sum(path == PREFIX + name for path, _ in self.asked)


class Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Metadata-Flavor")))
        replies = self.server.replies.get(self.path.removeprefix(PREFIX), [Reply(404)])
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(reply.body.encode())
        except OSError:
            pass  # the client has had enough of a huge body

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Metadata]:
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_both_attributes_are_asked_once_with_the_header(server: Metadata) -> None:
    server.replies = {TOPOLOGY: [Reply(body=PLACE)], PHYSICAL: [Reply(body="/c/r/h\n")]}
    found = locate(server.host, seconds=PATIENT)
    assert (found.answers, found.warning) == ({TOPOLOGY: PLACE, PHYSICAL: "/c/r/h"}, "")
    assert sorted(server.asked) == sorted((PREFIX + name, "Google") for name in ATTRIBUTES)


def test_one_of_both_is_enough(server: Metadata) -> None:
    server.replies = {PHYSICAL: [Reply(body="/c/r/h")]}
    found = locate(server.host, seconds=PATIENT)
    assert (found.answers, found.warning) == ({PHYSICAL: "/c/r/h"}, "")
    assert len(server.asked) == 2


def test_404_is_final(server: Metadata) -> None:
    found = locate(server.host, seconds=PATIENT)
    assert found.answers == {}
    assert "does not have the attributes" in found.warning
    assert [server.count(name) for name in ATTRIBUTES] == [1, 1]


def test_503_is_asked_again(server: Metadata) -> None:
    server.replies = {name: [Reply(503)] for name in ATTRIBUTES}
    found = locate(server.host, seconds=PATIENT)
    assert found.answers == {}
    assert "it answered 503" in found.warning
    assert [server.count(name) for name in ATTRIBUTES] == [TRIES, TRIES]


def test_only_what_is_open_is_asked_again(server: Metadata) -> None:
    server.replies = {TOPOLOGY: [Reply(503), Reply(503), Reply(body=PLACE)], PHYSICAL: [Reply(body="/c")]}
    found = locate(server.host, seconds=PATIENT)
    assert (found.answers, found.warning) == ({TOPOLOGY: PLACE, PHYSICAL: "/c"}, "")
    assert [server.count(name) for name in ATTRIBUTES] == [3, 1]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(body="<html>Log in</html>", headers={}), "not a metadata server"),
        (Reply(body=PLACE, headers={"Metadata-Flavor": "Other"}), "not a metadata server"),
        (Reply(body="x" * (MOST_BYTES + 1)), "more than 4096 bytes"),
        (Reply(body="x" * 5_000_000), "more than 4096 bytes"),
        (Reply(body=""), "is empty"),
        (Reply(body=" \n"), "is empty"),
    ],
    ids=["html", "header", "long", "huge", "empty", "blank"],
)
def test_what_is_no_answer_is_final_too(reply: Reply, why: str, server: Metadata) -> None:
    server.replies = {name: [reply] for name in ATTRIBUTES}
    found = locate(server.host, seconds=PATIENT)
    assert found.answers == {}
    assert why in found.warning
    assert server.host in found.warning
    assert [server.count(name) for name in ATTRIBUTES] == [1, 1]


def test_bytes_that_are_no_text_do_no_harm(server: Metadata) -> None:
    server.replies = {name: [Reply(body="é\udcff".encode("utf-8", "replace").decode())] for name in ATTRIBUTES}
    assert set(locate(server.host, seconds=PATIENT).answers) == set(ATTRIBUTES)


def test_a_redirect_is_not_followed(server: Metadata) -> None:
    redirect = Reply(302, headers={**GOOGLE, "Location": f"http://{server.host}/elsewhere"})
    server.replies = {name: [redirect] for name in ATTRIBUTES} | {"/elsewhere": [Reply(body=PLACE)]}
    found = locate(server.host, tries=2, seconds=PATIENT)
    assert "it answered 302" in found.warning
    assert {path for path, _ in server.asked} == {PREFIX + name for name in ATTRIBUTES}


def test_a_proxy_is_not_used(server: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    server.replies = {PHYSICAL: [Reply(body="/c")]}
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


class Held:
    """A server that says the same to everybody, once it was asked, and then holds or ends the connection."""

    def __init__(self, answer: bytes, *, ends: bool, address: str = "127.0.0.1") -> None:
        self._answer, self._ends = answer, ends
        self._server = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Held:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        for connection in self._connections:
            connection.close()
        self._server.close()

    def _serve(self) -> None:
        for _ in ATTRIBUTES:
            connection, _ = self._server.accept()
            self._connections.append(connection)
            connection.recv(65536)
            connection.sendall(self._answer)
            if self._ends:
                connection.close()


HEAD = b"HTTP/1.1 200 OK\r\nMETADATA-FLAVOR:Google\r\ncontent-length: 2\r\n\r\n"


def test_a_length_that_is_no_number_is_not_believed() -> None:
    with Held(HEAD.replace(b"2\r", b"two\r") + b"/c", ends=True) as server:
        assert locate(f"127.0.0.1:{server.port}", tries=1, seconds=PATIENT).answers == dict.fromkeys(ATTRIBUTES, "/c")


def test_a_connection_that_stays_open_is_not_waited_for() -> None:
    with Held(HEAD + b"/c", ends=False) as server:
        assert locate(f"127.0.0.1:{server.port}", tries=1, seconds=PATIENT).answers == dict.fromkeys(ATTRIBUTES, "/c")


def test_an_answer_may_come_in_chunks() -> None:
    chunked = HEAD.replace(b"content-length: 2", b"Transfer-Encoding: chunked")
    with Held(chunked + b"2\r\n/c\r\n0\r\n\r\n", ends=False) as server:
        assert locate(f"127.0.0.1:{server.port}", tries=1, seconds=PATIENT).answers == dict.fromkeys(ATTRIBUTES, "/c")


def test_the_server_may_have_an_address_of_ipv6() -> None:
    with Held(HEAD + b"/c", ends=True, address="::1") as server:
        assert locate(f"[::1]:{server.port}", tries=1, seconds=PATIENT).answers == dict.fromkeys(ATTRIBUTES, "/c")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HEAD + b"/", "its answer broke off"),
        (HEAD[:20], "not a metadata server"),
        (b"", "does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak HTTP"),
    ],
    ids=["body", "head", "nothing", "ssh"],
)
def test_an_answer_that_is_not_whole_is_none(answer: bytes, why: str) -> None:
    with Held(answer, ends=True) as server:
        found = locate(f"127.0.0.1:{server.port}", tries=1, seconds=PATIENT)
    assert found.answers == {}
    assert why in found.warning


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "127.0.0.1:99999", "no-such-host.invalid", "a..b", "a" * 70, "", "x:y", "a b"]
)
def test_no_server_at_all_is_a_warning(host: str) -> None:
    found = locate(host, tries=1)
    assert found.answers == {}
    assert found.warning.startswith(f"no place from the metadata server {host}: ")
