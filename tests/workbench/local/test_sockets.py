"""Who comes to a supervisor: its socket, its directory, and clients that do not keep to the protocol."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from agent.errors import SystemFault, UsageError
from agent.machine.loop import Loop
from agent.machine.stream import MOST_BYTES
from agent.workbench.local import sockets
from agent.workbench.local.access import ask
from agent.workbench.local.channel import MessageChannel
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.sockets import DIRECTORY, running_clusters
from agent.workbench.local.waiting import Condition, Conditions
from tests.workbench.local.helpers import CHECKOUT, DEADLINE, cgroups_of, cluster_of, eventually, needs_root, up

pytestmark = needs_root

_RUN_OF_ITS_OWN = 'set -e; mount -t tmpfs -o mode=755 none /run; eval "$1"; exec "$2" -c "$3"'
_LISTEN_AND_END = """
import os
from agent.workbench.local.sockets import DIRECTORY, listen, running_clusters
listener = listen("job")
print(oct(os.stat(DIRECTORY).st_mode), running_clusters(), os.listdir(DIRECTORY))
listener.close()
print(os.listdir(DIRECTORY), running_clusters(), os.listdir(DIRECTORY))
listen("job").close()
"""
_LISTEN = """
from agent.errors import AgentError
from agent.workbench.local.sockets import listen
try: listen("job")
except AgentError as error: print(int(error.code), error.what)
"""


def with_own_run(prepare: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as a container would that shares this machine's network: with an empty /run, then prepared."""
    argv = ["unshare", "--mount", "sh", "-c", _RUN_OF_ITS_OWN, "sh", prepare, sys.executable, code]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=DEADLINE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with up(2) as cluster:
        yield cluster


# The directory


def test_a_socket_is_one_file_that_goes_with_its_cluster() -> None:
    done = with_own_run("true", _LISTEN_AND_END)
    assert done.stdout.splitlines() == ["0o40700 ['job'] ['job']", "['job'] [] []"], done.stderr


@pytest.mark.parametrize(
    "prepare",
    [
        f"ln -s /tmp {DIRECTORY}",
        f"mkdir -m 755 {DIRECTORY}",
        f"mkdir -m 700 {DIRECTORY}; chown 1:1 {DIRECTORY}",
        f"touch {DIRECTORY}",
    ],
)
def test_a_directory_that_is_not_roots_alone_is_refused(prepare: str) -> None:
    done = with_own_run(prepare, _LISTEN)
    assert done.stdout.startswith(f"71 {DIRECTORY}"), done.stderr


def test_root_of_a_container_on_this_network_does_not_find_the_cluster(cluster: LocalCluster) -> None:
    done = with_own_run("true", "from agent.workbench.local.sockets import running_clusters; print(running_clusters())")
    assert done.stdout == "[]\n", done.stderr
    bound = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if cluster.name in line]
    assert [name for name in bound if name.startswith("@")] == []


def test_other_users_cannot_connect(cluster: LocalCluster) -> None:
    code = "import os, socket, sys; os.setuid(65534); socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    argv = [sys.executable, "-c", code, f"{DIRECTORY}/{cluster.name}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)
    assert "PermissionError" in done.stderr


IN_A_SANDBOX = """
import ctypes, struct, sys

def refuse(call, error):  # as a seccomp filter does that does not know the call
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (6, 0, 0, 0x50000 | error), (6, 0, 0, 0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
    program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text))
    assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0

refuse(437 if sys.argv[1] != "0" else 9999, int(sys.argv[1]))
from agent.errors import SystemFault
from tests.workbench.local.helpers import cluster_of
with cluster_of(1) as cluster:
    cluster.start()
    try:
        cluster.wait_for_file("/etc/passwd", timeout=30)
        print("there")
    except SystemFault as fault:
        print(fault.what, "|", fault.hint)
"""


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.EPERM])
def test_a_sandbox_in_which_files_cannot_be_looked_for_is_told(number: int) -> None:
    argv = [sys.executable, "-c", IN_A_SANDBOX, str(number)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, cwd=CHECKOUT)
    expected = f"files in pods cannot be looked for: openat2 of /: {os.strerror(number)} | it needs Linux 5.6"
    assert done.stdout.startswith(expected if number else "there"), done


@pytest.mark.parametrize("killed", ["pid", "holder"])
def test_a_killed_cluster_leaves_no_socket_and_no_cgroup(killed: str) -> None:
    """The holder removes those of its supervisor; those of a killed holder are removed by whoever looks next."""
    one = cluster_of(1)
    one.start(detached=True)
    status = one.ask({"op": "status"})
    ends = os.pidfd_open(status["pid"])
    os.kill(status[killed], signal.SIGKILL)
    eventually(lambda: one.name not in (os.listdir(DIRECTORY) if killed == "pid" else running_clusters()))
    assert one.name not in os.listdir(DIRECTORY)
    os.close(ends)
    with up(1, name=one.name) as again:
        assert again.exec(0, ["true"], timeout=DEADLINE).returncode == 0
    eventually(lambda: running_clusters() is not None and cgroups_of(one.name) == [])


def test_down_leaves_no_socket_and_no_process() -> None:
    one = cluster_of(1)
    one.start(detached=True)
    status = one.ask({"op": "status"})
    one.quit()
    assert one.name not in os.listdir(DIRECTORY)
    assert not [pid for pid in (status["pid"], status["holder"]) if Path(f"/proc/{pid}/exe").exists()]


# Clients that do not keep to the protocol

_EXEC = {"op": "exec", "index": 0, "argv": ["sleep", "1000"], "env": {}}


def lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


ATTACKS = {
    "garbage": b"\xff\x00garbage\n",
    "no object": b"[1]\n",
    "deeper than any object": b"[" * 200_000 + b"\n",
    "no op": b"{}\n",
    "unknown op": lines({"op": "dance"}),
    "half a message": b'{"op": "sta',
    "no end": b"x" * (MOST_BYTES + 65536),
    "two requests at once": lines({"op": "status"}, {"op": "status"}),
    "a request beside a command": lines(_EXEC, {"op": "status"}),
    "two commands at once": lines(_EXEC, _EXEC),
    "a signal that there is not": lines(_EXEC, {"signal": 4711}),
    "a signal that is no number": lines(_EXEC, {"signal": "TERM"}),
    "no command": lines({**_EXEC, "argv": []}),
    "a command that is no list": lines({**_EXEC, "argv": 7}),
    "an environment that is none": lines({**_EXEC, "env": {"A": 1}}),
    "wait for a pod that there is not": lines({"op": "wait", "timeout": None, "indices": [99]}),
    "wait for no number of pods": lines({"op": "wait", "timeout": None, "indices": "all"}),
    "wait for a time that is none": lines({"op": "wait", "timeout": float("nan"), "indices": None}),
    "wait for ever and a day": lines({"op": "wait", "timeout": 1e300, "indices": None}),
    "a grace time that is none": lines({"op": "terminate", "grace": float("nan")}),
    "a grace time without end": lines({"op": "terminate", "grace": float("inf")}),
    "start again": lines({"op": "start"}),
    "a file of no pod": lines({"op": "wait", "path": 7, "timeout": None, "indices": [0]}),
    "leave a wait": lines({"op": "wait", "path": "/nowhere", "timeout": None, "indices": None}),
    "leave the output": lines({"op": "logs", "index": None, "follow": True}),
}


def open_files(cluster: LocalCluster) -> int:
    return len(os.listdir(f"/proc/{cluster.supervisor_pid()}/fd"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_client_can_spoil_its_own_connection_only(cluster: LocalCluster, attack: str) -> None:
    before, open_before = cluster.pods(), open_files(cluster)
    with sockets.connect(cluster.name) as connection:
        connection.settimeout(DEADLINE)
        with suppress(ConnectionError):  # it has hung up on us
            connection.sendall(ATTACKS[attack])
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    assert cluster.pods() == before
    assert cluster.exec(1, ["echo", "on"], timeout=DEADLINE).stdout == "on\n"
    eventually(lambda: open_files(cluster) <= open_before)


def test_descriptors_that_no_command_takes_are_closed(cluster: LocalCluster) -> None:
    before = open_files(cluster)
    with sockets.connect(cluster.name) as connection, open(os.devnull) as null:
        connection.settimeout(DEADLINE)
        with suppress(ConnectionError):
            for _ in range(2):
                socket.send_fds(connection, [b"x"], [null.fileno()] * 3)
            assert connection.recv(1) == b""
    assert cluster.exec(1, ["true"], timeout=DEADLINE).returncode == 0
    eventually(lambda: open_files(cluster) <= before)


class Calls:
    """What a supervisor's loop is asked to call later."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], None]] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.actions.append(action)


def test_a_wait_whose_client_has_gone_costs_nothing() -> None:
    """It looked for the file fifty times a second, for as long as the cluster lived."""
    loop, looked = Calls(), 0
    waiting = Conditions(cast(Loop, loop))

    def is_met() -> bool:
        nonlocal looked
        looked += 1
        return False

    condition = Condition(is_met, lambda: pytest.fail("it is never met"), poll=True)
    waiting.add(condition, None)
    loop.actions.pop()()
    assert looked == 2
    waiting.drop(condition)
    loop.actions.pop()()
    assert (looked, loop.actions) == (2, [])


def test_a_signal_that_comes_after_the_end_harms_nobody(cluster: LocalCluster) -> None:
    with cluster.popen(0, ["true"]) as running:
        assert running.wait(DEADLINE) == 0
        running.signal(signal.SIGKILL, group=True)
        assert cluster.exec(1, ["true"], timeout=DEADLINE).returncode == 0


def test_a_request_that_is_too_large_is_refused_before_it_is_sent(cluster: LocalCluster) -> None:
    with pytest.raises(UsageError, match=r"4,194,304\n  give a long argument or variable as a file"):
        cluster.exec(0, ["true"], env={"LONG": "x" * MOST_BYTES}, timeout=DEADLINE)


def test_a_supervisor_that_hangs_is_told() -> None:
    with up(1) as one:
        supervisor = one.supervisor_pid()
        os.kill(supervisor, signal.SIGSTOP)
        try:
            with pytest.raises(SystemFault, match=r"has not answered for 0\.1 s"):
                ask(one.name, {"op": "status"}, 0.1)
        finally:
            os.kill(supervisor, signal.SIGCONT)


def test_a_connection_that_was_closed_is_forgotten() -> None:
    """A supervisor collects no cycles."""
    loop, (own, theirs) = Loop(), socket.socketpair()

    def handle(channel: MessageChannel, message: object, descriptors: list[int]) -> None:
        def closed() -> None:
            assert channel.stream.is_open is False
            loop.stop()

        channel.on_close = closed

    seen = weakref.ref(MessageChannel(loop, own, handle))
    theirs.sendall(b"{}\n")
    theirs.close()
    gc.disable()
    try:
        loop.run()
        assert seen() is None
    finally:
        gc.enable()
