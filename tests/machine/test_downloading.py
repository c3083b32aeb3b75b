"""Downloads from a real server that cuts connections, refuses for a while, changes its files, or has none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.errors import AgentError
from agent.machine.downloading import Wanted, download

DATA = bytes(range(256)) * 4000
END_SECONDS = 120


class Server(ThreadingHTTPServer):
    """Serves /x.bin."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = DATA
        self.tag = '"1"'
        self.cut_after = 10**9
        """Bytes of an answer after which the connection ends."""
        self.refusals: list[int] = []
        """Answers that come before the good ones."""
        self.begins: list[int] = []
        """Where each good answer began."""
        self.takes_ranges = True
        self.held: threading.Event | None = None
        """Half of an answer does not come before this is set."""
        self.url = f"http://127.0.0.1:{self.server_port}/x.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        server = self.server
        if self.path != "/x.bin" or server.refusals:
            self.send_error(server.refusals.pop(0) if server.refusals and self.command == "GET" else 404)
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        fits = asked and server.takes_ranges and self.headers.get("If-Range") == server.tag
        begin = int(asked[1]) if asked and fits else 0
        if begin and begin >= len(server.data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if fits else 200)
        self.send_header("ETag", server.tag)
        self.send_header("Content-Length", str(len(server.data) - begin))
        if fits:
            self.send_header("Content-Range", f"bytes {begin}-{len(server.data) - 1}/{len(server.data)}")
        self.end_headers()
        if self.command == "GET":
            server.begins.append(begin)
            end = min(begin + server.cut_after, len(server.data))
            half = (begin + end) // 2
            self.wfile.write(server.data[begin:half])
            if server.held:
                server.held.wait()
            self.wfile.write(server.data[half:end])
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_connections_that_are_cut_are_taken_up(server: Server, tmp_path: Path) -> None:
    server.cut_after = 400_000
    download(Wanted(server.url, str(tmp_path)), tries=2)
    assert server.begins == [0, 400_000, 800_000]
    assert (tmp_path / "x.bin").read_bytes() == DATA and os.listdir(tmp_path) == ["x.bin"]


@pytest.mark.parametrize("status", [503, 429, 416])
def test_a_server_that_is_busy_is_asked_again(status: int, server: Server, tmp_path: Path) -> None:
    server.refusals = [status]
    download(Wanted(server.url, str(tmp_path)), tries=2)
    assert (tmp_path / "x.bin").read_bytes() == DATA


def test_a_server_that_stays_busy_is_given_up_and_what_came_is_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".x.bin.part").write_bytes(DATA[:1000])
    server.refusals = [503] * 9
    with pytest.raises(AgentError) as caught:
        download(Wanted(server.url, str(tmp_path)), tries=1)
    assert caught.value.code == 75 and "503" in caught.value.what
    assert len(server.refusals) == 8, "what an earlier attempt has left is nothing that this one brought"
    assert (tmp_path / ".x.bin.part").read_bytes() == DATA[:1000]


@pytest.mark.parametrize("takes_ranges", [True, False])
def test_what_has_changed_on_the_server_begins_anew(server: Server, tmp_path: Path, takes_ranges: bool) -> None:
    (tmp_path / ".x.bin.part").write_bytes(b"old" * 9)
    (tmp_path / ".x.bin.part.version").write_text('"0"' if takes_ranges else server.tag)
    server.takes_ranges = takes_ranges
    download(Wanted(server.url, str(tmp_path)), tries=1)
    assert (tmp_path / "x.bin").read_bytes() == DATA


@pytest.mark.parametrize("there", [DATA, DATA + b"more"])
def test_an_interruption_before_the_last_step(server: Server, tmp_path: Path, there: bytes) -> None:
    (tmp_path / ".x.bin.part").write_bytes(there)
    (tmp_path / ".x.bin.part.version").write_text(server.tag)
    download(Wanted(server.url, str(tmp_path)), tries=2)
    assert (tmp_path / "x.bin").read_bytes() == DATA


def run_program(directory: Path, *urls: str) -> tuple[int, list[dict[str, Any]]]:
    """The program: its code, and what it says."""
    argv = [sys.executable, "-m", "agent.machine.downloading", str(directory), *urls]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=END_SECONDS)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_program_tells_the_size_first(server: Server, tmp_path: Path) -> None:
    assert run_program(tmp_path, server.url) == (0, [{"total": len(DATA)}])
    assert run_program(tmp_path, server.url)[0] == 0 and len(server.begins) == 1, "what is there is not asked for again"


def test_what_is_not_there_is_66(server: Server, tmp_path: Path) -> None:
    code, said = run_program(tmp_path, server.url, server.url + "x")
    assert code == said[-1]["code"] == 66 and "404" in said[-1]["what"] and server.url in said[-1]["what"]
    assert (tmp_path / "x.bin").exists(), "what could be had is kept"


def test_no_room_is_73(server: Server, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -m agent.machine.downloading "$1" "$3"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, server.url]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=END_SECONDS)
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == said["code"] == 73 and "space" in said["what"].lower()
