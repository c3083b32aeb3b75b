"""What torch's server in a rank and NCCL's RAS may answer, and what is not taken for an answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.clinic.sources import ras, torch_server
from agent.clinic.sources.question import NoAnswer, Question
from agent.clinic.sources.ras import ask_ras
from agent.clinic.sources.recorder import RecorderSource
from agent.clinic.sources.source import Look
from agent.clinic.sources.torch_server import ask_rank, entered_operations
from agent.clinic.why.members import GroupMember
from agent.clinic.why.records import PodRecords, Process
from agent.machine.api import RunMarks
from tests.clinic.recordings import recorded
from tests.machine.waiting import DEADLINE_SECONDS

MOST = 1000


@contextmanager
def answering(server: socket.socket, *texts: bytes) -> Iterator[list[bytes]]:
    """One that is asked once for each text; what it was asked is in the list, in the end."""
    heard: list[bytes] = []

    def serve() -> None:
        for text in texts:
            with server.accept()[0] as connection:
                heard.append(connection.recv(4096))
                connection.sendall(text)

    thread = threading.Thread(target=serve)
    thread.start()
    with server:
        yield heard
        thread.join(DEADLINE_SECONDS)


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def recorder_in(directory: Path) -> RecorderSource:
    """One that asks ranks which leave their files there."""
    pod = PodRecords(0, "pod-0", "")
    return RecorderSource(Look(Question(pod, RunMarks("run-1"), why_dir=str(directory), seconds=30.0)))


def refused(ask: Callable[[], object]) -> str:
    """Why there is no answer; empty: there is one."""
    try:
        ask()
    except NoAnswer as error:
        return str(error)
    return ""


def http(body: bytes, length: int | None = None, status: str = "200 OK") -> bytes:
    """As cpp-httplib writes it, which torch uses."""
    size = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status.encode(), size) + body


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (http(b"{}"), ""),
        (http(b"{}", status="404 Not Found"), "HTTP 404"),
        (http(b"{}", length=3), "the answer broke off"),
        (http(b"{" * (MOST + 1)), f"more than {MOST} bytes"),
        (b"RAS\n", "no HTTP answer"),
        (b"", "no HTTP answer"),
    ],
    ids=["whole", "not found", "cut", "long", "another", "nothing"],
)
def test_torchs_server(text: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_server, "MOST_ANSWER", MOST)
    path = tmp_path / "1.sock"
    with answering(listening(path), text):
        assert refused(lambda: ask_rank(str(path), "fr_trace_json/", DEADLINE_SECONDS)) == why


def test_numbers_of_operations_are_those_of_ranks_that_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of two groups are added up, and gloo's count where NCCL's recorders are empty. One of the others
    hangs, one is gone, and one has a name that no rank leaves."""

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    nccl = b'{"pg_status":{"0":{"last_enqueued_collective":"5"},"1":{"last_enqueued_collective":"2"}}}'
    gloo = b'{"entries":[{"last_enqueued_collective":9}],"pg_status":{"0":{"last_enqueued_collective":"4"}}}'
    servers = {name: listening(tmp_path / f"{name}.sock") for name in ("11", "12", "13", "14", "x")}
    servers["14"].close()
    with answering(servers["11"], http(nccl)), answering(servers["12"], *(3 * [http(b'{"pg_status":{}}')]), http(gloo)):
        assert entered_operations(str(tmp_path), 1.0) == {11: 7, 12: 4}
    assert refused(lambda: ask_rank(f"{tmp_path}/13.sock", "", 0.1)) == "no answer within 0.1 s"
    assert entered_operations(str(tmp_path / "nothing"), 1.0) == {}
    with monkeypatch.context() as pod:
        pod.setattr(threading.Thread, "start", no_thread)
        assert entered_operations(str(tmp_path), 1.0) == {}
    for name in ("13", "x"):
        servers[name].close()


@pytest.mark.parametrize(
    ("noted", "asked"),
    [
        (None, ["/handler/fr_trace_json/", "/handler/dump_nccl_trace_json/"]),
        ("2.13.0+cu130", ["/handler/fr_trace_json/", "/handler/dump_nccl_trace_json/"]),
        (
            "2.15.0a0+git12ab",
            [
                "/handler/fr_trace_json/",
                "/handler/dump_nccl_trace_json/",
                "/handler/fr_trace_json/?backend=nccl2",
                "/handler/fr_trace_json/?backend=nccl-lazy",
            ],
        ),
    ],
)
def test_each_recorder_of_a_release_of_torch_is_asked(noted: str | None, asked: list[str], tmp_path: Path) -> None:
    """Twice; a torch without NCCL does not know all."""
    if noted:
        (tmp_path / "versions.json").write_text(json.dumps({"torch": noted}))
    hooked = json.dumps(recorded("hooked")).replace('"fake:', '"nccl2:').encode()
    texts = [
        http(b'{"version":"2.10"}', status="404 Not Found")
        if "nccl_trace" in path
        else http(hooked if "nccl2" in path else b'{"version":"2.10"}')
        for path in asked * 2
    ]
    source, path = recorder_in(tmp_path), tmp_path / "11.sock"
    with answering(listening(path), *texts) as heard:
        source.ask(11, str(path))
    assert [request.split()[1].decode() for request in heard] == asked * 2
    assert [group.backend for group in source.given[11]["groups"]] == (["nccl"] if len(asked) > 2 else [])


@pytest.mark.parametrize(("third", "has_moved"), [("5", False), ("6", True)], ids=["it stands still", "it goes on"])
def test_what_nccl2_learns_late_is_looked_at_once_more(third: str, has_moved: bool, tmp_path: Path) -> None:
    """A rank of torch 2.15 slept after 20 operations: by a first look none was over, by a second all were."""

    def answer(entered: str, completed: str) -> dict[str, bytes]:
        status = {"last_enqueued_collective": entered, "last_completed_collective": completed}
        said = {"version": "2.10", "pg_config": config, "pg_status": {"0": status}}
        return {"nccl2": http(json.dumps(said).encode())}

    (tmp_path / "versions.json").write_text(json.dumps({"torch": "2.15.0+cu132"}))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    late = json.loads(json.dumps(recorded("hooked")).replace('"fake:', '"nccl2:'))
    late["pg_status"]["0"]["last_completed_collective"] = "-1"
    looks = [{"nccl2": http(json.dumps(late).encode())}, answer("5", "5"), answer(third, third)]
    nothing = http(b'{"version":"2.10"}')
    texts = [look.get(name, nothing) for look in looks for name in ("gloo", "nccl", "nccl2", "nccl-lazy")]
    source, path = recorder_in(tmp_path), tmp_path / "11.sock"
    with answering(listening(path), *texts) as heard:
        source.ask(11, str(path))
    assert len(heard) == len(texts)
    assert GroupMember(0, 0, Process(11, 1, "S", "rank", 0, groups=source.given[11]["groups"])).has_moved == has_moved


@pytest.mark.parametrize(("size", "why"), [(MOST, ""), (MOST + 1, f"more than {MOST} bytes")])
def test_ras(size: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "MOST_ANSWER", MOST)
    server = socket.create_server(("127.0.0.1", 0))
    with answering(server, b"x" * size):
        assert refused(lambda: ask_ras(f"127.0.0.1:{server.getsockname()[1]}", DEADLINE_SECONDS)) == why
