"""The client against an agent that is a real Unix socket and speaks the protocol."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.client import MOST_READ, Client, RunEnd, RunInfo
from agent.connection import Connection
from agent.decide.runspec import RunSpec
from agent.errors import AgentError, Exit, MissingProgram, SystemFault, UsageError
from tests.commands.server import PATIENCE, FakeAgent, FakeRun, Refused
from tests.report.examples import ddp

SPEC = RunSpec("exec", ("hostname",), hosts=("0-3",), env={"A": "é\udcff"}, cwd="/tmp", timeout=1.5, by="pod 1 (pid 7)")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path / "run") as agent:
        yield agent


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with Client(str(agent.directory)) as client:
        yield client


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []
        self.overs: list[int] = []
        self.notes: list[str] = []
        self.closed = 0

    def output(self, pod: int, stream: int, data: bytes) -> None:
        self.frames.append((pod, stream, data))

    def wants(self, pod: int) -> bool:
        return True

    def over(self, pod: int) -> None:
        self.overs.append(pod)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def idle(self) -> float | None:
        return None

    def close(self) -> None:
        self.closed += 1

    def of(self, pod: int, stream: int = 1) -> bytes:
        return b"".join(data for its, kind, data in self.frames if (its, kind) == (pod, stream))


# Connecting


def test_no_agent(tmp_path: Path) -> None:
    """One that was killed leaves its socket behind."""
    killed = tmp_path / "killed"
    killed.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(killed / "agent.sock"))
    for directory in (tmp_path, tmp_path / "no" / "such", killed):
        with pytest.raises(AgentError, match="no a4-agent runs in this pod") as caught:
            Client(str(directory))
        assert caught.value.code == Exit.PEERS_MISSING


def test_a_directory_with_a_long_name(tmp_path: Path) -> None:
    with FakeAgent(tmp_path / ("long" * 50)) as agent, Client(str(agent.directory)) as client:
        assert client.release() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_only_root_may_ask(agent: FakeAgent) -> None:
    code = (
        "import os, sys; from agent.client import Client; from agent.errors import AgentError\n"
        "os.setuid(65534)\n"
        "try: Client(sys.argv[1])\n"
        "except AgentError as error: print(int(error.code), error.what)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(agent.directory)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("71 only root can ask the agent of this pod\n", "")


# One request, one answer


def test_submit_and_find(client: Client, agent: FakeAgent) -> None:
    run = client.submit(SPEC)
    assert run == RunInfo("exec-0", (0, 1, 2, 3), 0, (0, 1, 2, 3), {i: f"job-{i}.local" for i in range(4)}, slots=2)
    assert RunSpec.from_json(agent.runs[0].spec) == SPEC
    assert client.find() == client.find("exec-0") == run
    assert "id" not in run.to_json(), "the id has one name in an answer: run"
    agent.runs[0].end()
    assert client.find("exec-0").over


@pytest.mark.parametrize("text", ["x" * (1 << 20), "\x1b" * 200_000, "\udcff" * 200_000], ids=["x", "ESC", "0xff"])
def test_a_request_that_is_too_long_is_refused_and_the_next_is_not(client: Client, text: str) -> None:
    with pytest.raises(AgentError, match="bytes, an agent takes 1,048,576") as caught:
        client.submit(RunSpec("exec", args=(text,)))
    assert caught.value.code == Exit.USAGE and "put what is long into a file" in caught.value.hint
    assert client.submit(SPEC).id == "exec-0"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (RunSpec("exec", args="hostname"), "this RunSpec cannot be run: args is not a list"),  # type: ignore[arg-type]
        (RunSpec("exec", args=("seq", 3)), "args[1] is not a text"),  # type: ignore[arg-type]
        (RunSpec("exec", ("ls",), nodes=-1), "nodes is not a whole number (at least 0)"),
        (RunSpec("exec", ("ls",), env={"A": 1}), "env.A is not a text"),  # type: ignore[dict-item]
        ("exec", "submit takes a RunSpec, not str"),
    ],
)
def test_a_wish_of_a_wrong_type_is_refused(spec: RunSpec, words: str, client: Client, agent: FakeAgent) -> None:
    with pytest.raises(UsageError) as caught:
        client.submit(spec)
    assert words in str(caught.value)
    assert ("are tuples of texts" in str(caught.value)) == ("args" in words)
    assert not agent.requests


def test_a_closed_client_says_so(client: Client) -> None:
    client.close()
    with pytest.raises(UsageError, match="this client is closed"):
        client.find()


def test_read_and_wait(client: Client, agent: FakeAgent) -> None:
    run = client.submit(SPEC)
    assert client.read(run, 2).frames == ()
    agent.runs[0].say(2, b"one\n")
    agent.runs[0].say(2, b"two\n", stream=2)
    first = client.read(run.id, 2, most=1, wait=True)
    assert (first.frames, first.skipped, first.over) == (((1, b"one\n"),), 0, False)
    second = client.read(run.id, 2, first.next)
    assert (second.frames, second.over) == (((2, b"two\n"),), False)
    agent.runs[0].end(7, "it failed", "a table\n", where="pod 2", lost={3: "gone"}, codes={2: 7}, results="/results")
    assert client.read(run.id, 2, second.next, wait=True).over
    ended = client.wait(run)
    assert ended == client.wait(run.id)
    assert (ended.end.code, ended.end.what, ended.end.where, ended.text) == (7, "it failed", "pod 2", "a table\n")
    assert (ended.codes, ended.lost, ended.results) == ({2: 7}, {3: "gone"}, "/results")
    agent.runs[0].files[0, "report.html"] = b"page" * MOST_READ
    assert b"".join(client.file(run.id, "report.html")) == b"page" * MOST_READ
    assert list(client.file(run, "evidence.txt", 2)) == []
    with pytest.raises(AgentError, match="no run 'nosuch'"):
        list(client.file("nosuch", "result.json"))


def test_the_result_as_typed_values(client: Client, agent: FakeAgent) -> None:
    run = client.submit(SPEC)
    with pytest.raises(MissingProgram, match=r"has no result[.]json"):
        client.result(run)
    agent.runs[0].files[0, "result.json"] = json.dumps(ddp()).encode()
    found = client.result(run.id)
    assert (found.workload, found.verdict.status) == ("ddp", "passed")
    assert found.tables and found.cells("nosuch", "rate") == []
    agent.runs[0].files[0, "result.json"] = b"{"
    with pytest.raises(SystemFault, match=r"result[.]json of .* cannot be read"):
        client.result(run)


def test_cancel_and_release(client: Client, agent: FakeAgent) -> None:
    run = client.submit(SPEC)
    client.cancel(run, why="Ctrl-C")
    client.cancel(run.id, hurry=True, answered=False)
    agent.code = 7
    assert client.release(force=True) == 7
    asked = [{k: v for k, v in request.items() if k != "id"} for request in agent.requests[1:]]
    assert asked == [
        {"op": "cancel", "run": "exec-0", "hurry": False, "why": "Ctrl-C"},
        {"op": "cancel", "run": "exec-0", "hurry": True, "why": ""},
        {"op": "release", "force": True},
    ]


def test_a_refusal_is_raised_in_the_agents_words(client: Client, agent: FakeAgent) -> None:
    for code in (2, 66, 69, 75, 78):
        agent.refuse["submit"] = Refused(code, "not now", "try later")
        with pytest.raises(AgentError) as caught:
            client.submit(SPEC)
        assert (caught.value.code, str(caught.value)) == (code, "not now\n  try later")


def test_the_agent_dies(client: Client, agent: FakeAgent) -> None:
    run = client.submit(SPEC)

    def kill() -> None:
        agent.until(lambda: bool(agent.asked("wait")))
        agent.die()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AgentError, match="the agent of this pod just exited") as caught:
        client.wait(run.id)
    killer.join()
    assert caught.value.code == Exit.TRY_AGAIN
    with pytest.raises(AgentError) as caught:
        client.submit(SPEC)
    assert caught.value.code == Exit.TRY_AGAIN


def test_an_agent_that_hangs(client: Client, agent: FakeAgent) -> None:
    run = client.submit(SPEC)
    connection = Connection(str(agent.directory / "agent.sock"))
    with pytest.raises(AgentError, match="the agent of this pod has not answered for 0 s") as caught:
        connection.answer(connection.send("wait", {"run": run.id}), patience=0.05)
    assert caught.value.code == Exit.TRY_AGAIN
    connection.close()


# Following


def followed(
    client: Client, agent: FakeAgent, sink: Recorder, life: Callable[[FakeRun], None], patience: float = PATIENCE
) -> RunEnd:
    """A run that lives so, to its end."""
    agent.submitted = life
    return client.follow(client.submit(SPEC), sink, last_seconds=patience)


def test_everything_is_handed_over_in_order(client: Client, agent: FakeAgent) -> None:
    def life(run: FakeRun) -> None:
        for i in range(300):
            run.say(i % 4, b"%d\n" % i, stream=1 + i % 3)
        run.end(3, "it failed")

    sink = Recorder()
    assert followed(client, agent, sink, life).end.code == 3
    for pod in range(4):
        expected = [(pod, 1 + i % 3, b"%d\n" % i) for i in range(300) if i % 4 == pod]
        assert [frame for frame in sink.frames if frame[0] == pod] == expected
    assert sorted(sink.overs) == [0, 1, 2, 3]
    assert (sink.closed, sink.notes) == (1, [])


def test_how_it_ends_is_a_note_where_something_is_still_waited_for(client: Client, agent: FakeAgent) -> None:
    class Ending(Recorder):
        def note(self, text: str) -> None:
            super().note(text)
            agent.runs[0].end(3, "it failed")

    sink = Ending()
    ended = followed(client, agent, sink, lambda run: run.tell_end(3, "it failed", "pod 2 is still read"))
    assert (ended.end.code, sink.notes) == (3, ["exec-0 ended with exit code 3: it failed; pod 2 is still read"])


def test_an_agent_that_cannot_say_early_how_a_run_ends(client: Client, agent: FakeAgent) -> None:
    agent.refuse["verdict"] = Refused(2, "the agent does not support the request 'verdict'")
    sink = Recorder()
    assert followed(client, agent, sink, FakeRun.end).end.code == 0 and sink.notes == []


def test_no_more_is_read_than_the_sink_has_taken(client: Client, agent: FakeAgent) -> None:
    pieces = 20

    class Slow(Recorder):
        def output(self, pod: int, stream: int, data: bytes) -> None:
            super().output(pod, stream, data)
            assert len(agent.asked("read")) == len(self.frames)

    def life(run: FakeRun) -> None:
        run.outputs = [0]
        for _ in range(pieces):
            run.say(0, b"x" * MOST_READ)
        run.end()

    sink = Slow()
    followed(client, agent, sink, life)
    assert len(sink.of(0)) == pieces * MOST_READ


def test_many_pods_are_read_in_smaller_pieces(tmp_path: Path) -> None:
    with FakeAgent(tmp_path / "run", pods=1024) as agent, Client(str(agent.directory)) as client:
        followed(client, agent, Recorder(), FakeRun.end)
        assert {request["most"] for request in agent.asked("read")} == {16384}


def test_what_is_not_kept_any_more_is_said(client: Client, agent: FakeAgent) -> None:
    def life(run: FakeRun) -> None:
        run.say(1, b"old news\n")
        run.say(1, b"news\n")
        run.kept_from[1] = 1
        run.end()

    sink = Recorder()
    followed(client, agent, sink, life)
    assert sink.frames == [(1, 1, b"news\n")]
    assert sink.notes == ["18 bytes that pod 1 printed are not kept any more (A4_LOG_LIMIT_MB sets how much is)"]


def test_a_pod_that_cannot_be_read_does_not_end_the_rest(client: Client, agent: FakeAgent) -> None:
    def life(run: FakeRun) -> None:
        run.say(3, b"still here\n")
        run.end(75, "a pod was lost", lost={2: "its node is gone"})

    sink = Recorder()
    assert followed(client, agent, sink, life).end.code == 75
    assert sink.of(3) == b"still here\n"
    assert sink.notes == ["what pod 2 printed cannot be read any further: pod 2 is lost: its node is gone"]


def test_a_pod_that_never_answers_holds_nobody_when_the_run_is_over(client: Client, agent: FakeAgent) -> None:
    class Ending(Recorder):
        """What the others have printed is here before the run is over."""

        def over(self, pod: int) -> None:
            super().over(pod)
            if sorted(self.overs) == [0, 2]:
                agent.runs[0].end(75, lost={1: "silent", 3: "silent"})

    def life(run: FakeRun) -> None:
        run.silent = {1, 3}
        run.say(0, b"here\n")
        run.finish(0)
        run.finish(2)

    sink = Ending()
    assert followed(client, agent, sink, life, patience=0.1).end.code == 75
    assert sink.of(0) == b"here\n"
    (note,) = sink.notes
    assert "pods 1,3" in note and "a4-agent logs exec-0 --pod 1,3" in note


def test_a_pod_that_is_not_wanted_is_read_no_further(client: Client, agent: FakeAgent) -> None:
    class Bored(Recorder):
        def wants(self, pod: int) -> bool:
            return pod != 2

    def life(run: FakeRun) -> None:
        for _ in range(9):
            for pod in range(4):
                run.say(pod, b"x" * MOST_READ)
        run.end()

    sink = Bored()
    followed(client, agent, sink, life)
    assert {pod: len(sink.of(pod)) // MOST_READ for pod in range(4)} == {0: 9, 1: 9, 2: 1, 3: 9}


def test_the_agent_dies_while_a_run_is_followed(client: Client, agent: FakeAgent) -> None:
    class Last(Recorder):
        def output(self, pod: int, stream: int, data: bytes) -> None:
            super().output(pod, stream, data)
            agent.die()

    sink = Last()
    with pytest.raises(AgentError, match="has ended while exec-0 was going on") as caught:
        followed(client, agent, sink, lambda run: run.say(2, b"last words"))
    assert caught.value.code == Exit.TRY_AGAIN
    assert "a4-agent logs exec-0" in caught.value.hint
    assert sink.of(2) == b"last words"
    assert sink.closed == 1


def test_catching_up_waits_for_nothing(client: Client, agent: FakeAgent) -> None:
    def life(run: FakeRun) -> None:
        for pod in (0, 1, 3):
            run.say(pod, b"x" * MOST_READ)
            run.say(pod, b"end of %d\n" % pod)
        run.finish(3)

    agent.submitted = life
    sink = Recorder()
    client.catch_up(client.submit(SPEC), sink)
    assert [data[-5:] for _, _, data in sink.frames] == [b"xxxxx", b"of 0\n", b"xxxxx", b"of 1\n", b"xxxxx", b"of 3\n"]
    assert (sink.overs, sink.closed) == ([3], 1)
