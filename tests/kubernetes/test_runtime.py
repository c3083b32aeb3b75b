"""Nodes, sandboxes and containers, without a control plane."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.kubernetes import memory_cgroups
from tests.kubernetes.runtime import (
    LOST,
    USUAL_CAPABILITIES,
    Bind,
    Container,
    ContainerSpec,
    Ended,
    Identity,
    Node,
    Runtime,
    Sandbox,
    StartFailed,
)
from tests.local.helpers import (
    CHECKOUT,
    DEADLINE,
    all_namespaces,
    ask_dns,
    cluster_of,
    eventually,
    needs_root,
    own_namespaces,
)

pytestmark = needs_root

ENV = {"PATH": os.environ["PATH"], "GIVEN": "this and no more"}
MACHINE = Path("/")
IN_USE = 98
"""EADDRINUSE."""
SERVE = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("listens", flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(socket.gethostname().encode())
        connection.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 60) as connection:
    print(connection.recv(100).decode())
"""
BIND = """
import socket, sys
try:
    socket.create_server(("", int(sys.argv[1]))).close()
except OSError as error:
    sys.exit(error.errno)
"""
PORT = "7001"
CAP_SYS_ADMIN = 1 << 21


class Run:
    """A container that was started, and how it ended."""

    def __init__(self, sandbox: Sandbox, log: Path, *argv: str, **options: Any) -> None:
        self.log = log
        self._ends: Queue[Ended] = Queue()
        spec = ContainerSpec(**{"name": "main", "root": MACHINE, "env": ENV, "log": log, **options, "argv": list(argv)})
        self.container: Container = sandbox.start(spec, self._ends.put)

    def end(self) -> Ended:
        return self._ends.get(timeout=DEADLINE)

    def output(self) -> str:
        """What it has printed so far."""
        return "".join(line.split(" ", 3)[3] for line in self.log.read_text().splitlines(keepends=True))

    def until_it_says(self, text: str) -> None:
        eventually(lambda: text in self.output(), f"{text!r} of {self.log}")


class Pods:
    """Pods of one test, each on a node of its own unless a node is given."""

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self._stack = ExitStack()
        self._count = 0

    def node(self, name: str = "node") -> Node:
        node = self.runtime.node(name)
        self._stack.callback(node.stop)
        return node

    def sandbox(self, node: Node | None = None, **options: Any) -> Sandbox:
        self._count += 1
        options.setdefault("hostname", f"pod-{self._count}")
        sandbox = self.runtime.sandbox(f"uid-{self._count}", node=node or self.node(), **options)
        self._stack.callback(sandbox.stop)
        return sandbox

    def run(self, sandbox: Sandbox, *argv: str, **options: Any) -> Run:
        self._count += 1
        return Run(sandbox, options.pop("log", self.directory / f"{self._count}.log"), *argv, **options)

    def said(self, sandbox: Sandbox, *argv: str, **options: Any) -> str:
        """What a container prints that ends with 0."""
        run = self.run(sandbox, *argv, **options)
        assert run.end().code == 0, run.output()
        return run.output().strip()

    def close(self) -> None:
        self._stack.close()


@contextmanager
def started() -> Iterator[Runtime]:
    with cluster_of(1, local_ttl=0) as cluster:
        cluster.start()
        with Runtime(cluster) as runtime:
            yield runtime


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with started() as runtime:
        yield runtime


@pytest.fixture
def pods(runtime: Runtime, tmp_path: Path) -> Iterator[Pods]:
    pods = Pods(runtime, tmp_path)
    yield pods
    pods.close()


def test_pods_with_host_network_share_their_nodes_network_and_others_do_not(pods: Pods) -> None:
    node, other = pods.node("node-a"), pods.node("node-b")
    first, second = (pods.sandbox(node, host_network=True) for _ in range(2))
    third, fourth = (pods.sandbox(node) for _ in range(2))
    assert first.address == second.address == node.address
    assert len({each.address for each in (first, third, fourth, other)}) == 4

    pods.run(first, sys.executable, "-c", SERVE, PORT).until_it_says("listens")
    assert pods.run(second, sys.executable, "-c", BIND, PORT).end().code == IN_USE
    assert pods.said(second, sys.executable, "-c", ASK, "127.0.0.1", PORT) == "node-a"

    pods.run(third, sys.executable, "-c", SERVE, PORT).until_it_says("listens")
    assert pods.run(fourth, sys.executable, "-c", BIND, PORT).end().code == 0
    assert pods.said(fourth, sys.executable, "-c", ASK, third.address, PORT) == "pod-3"
    elsewhere = pods.sandbox(other, host_network=True)
    assert pods.said(elsewhere, sys.executable, "-c", ASK, node.address, PORT) == "node-a"


def test_a_kubelet_listens_on_its_node(pods: Pods) -> None:
    node = pods.node()
    with node.network():
        server = socket.create_server((node.address, 10250))
    with server:
        server.settimeout(DEADLINE)
        asking = pods.run(pods.sandbox(), sys.executable, "-c", ASK, node.address, "10250")
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"the kubelet")
        assert asking.end().code == 0
    assert asking.output() == "the kubelet\n"


def test_an_unplugged_node_answers_nothing_until_it_is_plugged_in(pods: Pods) -> None:
    node = pods.node()
    pods.run(pods.sandbox(node, host_network=True), sys.executable, "-c", SERVE, PORT).until_it_says("listens")
    away, quick = pods.sandbox(), ASK.replace("60", "0.2")
    node.plug(up=False)
    assert pods.run(away, sys.executable, "-c", quick, node.address, PORT).end().code == 1
    node.plug(up=True)
    assert pods.said(away, sys.executable, "-c", ASK, node.address, PORT) == "node"


def test_containers_share_volumes_and_shm_but_neither_mounts_nor_processes(pods: Pods, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "key").write_text("one file")
    sandbox = pods.sandbox()
    memory = sandbox.volume("cache", 1 << 20)
    binds = (
        Bind(memory, "/work/cache"),
        Bind(empty, "/work"),
        Bind(tmp_path / "key", "/etc/keys/key", read_only=True),
    )
    write = "for d in /work /work/cache /dev/shm /root; do echo $d >$d/found; done; cat /etc/keys/key"
    write += "; ! touch /etc/keys/key 2>/dev/null"
    assert pods.said(sandbox, "sh", "-c", write, binds=binds) == "one file"
    read = "echo $$; for d in /work /work/cache /dev/shm; do cat $d/found; done; test ! -e /root/found"
    assert pods.said(sandbox, "sh", "-c", read, binds=binds).split() == ["1", "/work", "/work/cache", "/dev/shm"]
    assert (empty / "found").read_text() == "/work\n"
    assert pods.run(sandbox, "sh", "-c", "head -c 2M /dev/zero >/work/cache/much", binds=binds).end().code == 1


def test_a_container_that_is_started_again_finds_its_pod_as_it_was(pods: Pods, tmp_path: Path) -> None:
    sandbox, binds = pods.sandbox(domain="job.default.svc.cluster.local"), (Bind(tmp_path, "/data"),)
    script = "echo >>/data/lives; touch /root/mine; hostname -I; hostname -f; sleep infinity"
    lives = []
    for _ in range(3):
        run = pods.run(sandbox, "sh", "-c", "test ! -e /root/mine && " + script, binds=binds)
        run.until_it_says("cluster.local")
        run.container.kill(signal.SIGKILL)
        assert run.end() == Ended(137, signal.SIGKILL, False, "")
        lives.append(run.output().split())
    assert lives == [[sandbox.address, "pod-1.job.default.svc.cluster.local"]] * 3
    assert (tmp_path / "lives").read_text() == "\n" * 3


def test_a_container_has_its_own_environment_and_the_agent(pods: Pods) -> None:
    sandbox = pods.sandbox()
    show = "import os; os.write(1, open('/proc/self/environ', 'rb').read().replace(b'\\0', b'\\n'))"
    found = pods.said(sandbox, sys.executable, "-c", show)
    assert dict(line.split("=", 1) for line in found.splitlines()) == ENV
    assert pods.said(sandbox, "cat", "hostname", cwd="/etc") == "pod-1"
    assert pods.said(sandbox, "a4-agent", "--version").startswith("a4-agent")


def test_a_container_has_the_rights_that_it_is_given(pods: Pods) -> None:
    sandbox = pods.sandbox()
    show = ("sh", "-c", "id -u; id -G; grep CapEff /proc/self/status | cut -f 2")
    assert int(pods.said(sandbox, *show).split()[-1], 16) & CAP_SYS_ADMIN
    usual = Identity(capabilities=(*USUAL_CAPABILITIES, "IPC_LOCK"))
    assert pods.said(sandbox, *show, identity=usual).split() == ["0", "0", "00000000a80465fb"]
    assert pods.run(sandbox, "mount", "-t", "tmpfs", "x", "/mnt", identity=usual).end().code
    somebody = Identity(1000, 1001, (1001, 1002), capabilities=())
    run = pods.run(sandbox, "sleep", "infinity", identity=somebody)
    with run.container.exec(list(show), stdout=subprocess.PIPE) as command:
        assert command.stdout and command.stdout.read().split() == [b"1000", b"1001", b"1002", b"0" * 16]
    with pytest.raises(StartFailed, match="TYPO"):
        pods.run(sandbox, "true", identity=Identity(capabilities=("TYPO",)))


def test_commands_run_beside_the_first_process(pods: Pods) -> None:
    container = pods.run(pods.sandbox(), "sleep", "infinity", cwd="/etc").container
    pipe = subprocess.PIPE
    argv = ["sh", "-c", "cat; pwd; echo $GIVEN $MORE >&2; cat /proc/1/comm; exit 7"]
    with container.exec(argv, stdin=pipe, stdout=pipe, stderr=pipe, env={"MORE": "or less"}) as command:
        assert command.stdin and command.stdout and command.stderr
        assert command.poll() is None
        command.stdin.write(b"in\n")
        command.stdin.close()
        assert command.stdout.read() == b"in\n/etc\nsleep\n"
        assert command.stderr.read() == b"this and no more or less\n"
        assert command.wait(DEADLINE) == command.poll() == 7
    with container.exec(["nothing"], stderr=pipe) as command:
        assert command.stderr and b"nothing: No such file" in command.stderr.read()
        assert command.wait(DEADLINE) == 127
    with container.exec(["sleep", "infinity"]) as command:
        command.kill()
        assert command.wait(DEADLINE) == 137


def test_a_command_on_a_terminal_learns_its_size(pods: Pods) -> None:
    container = pods.run(pods.sandbox(), "sleep", "infinity").container
    argv = ["sh", "-c", "trap 'stty size; exit 3' WINCH; test -t 0 && echo ready; while :; do read line; done"]
    with container.exec(argv, tty=True, env={"TERM": "xterm"}) as command:
        _until_terminal_says(command.terminal, b"ready")
        command.resize(33, 77)
        _until_terminal_says(command.terminal, b"33 77")
        assert command.wait(DEADLINE) == 3


def _until_terminal_says(terminal: int, text: bytes) -> None:
    said = b""
    while text not in said:
        said += os.read(terminal, 1000)


def test_signals_reach_the_first_process(pods: Pods) -> None:
    sandbox = pods.sandbox()
    polite = pods.run(sandbox, "sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    polite.until_it_says("ready")
    polite.container.kill(signal.SIGTERM)
    assert polite.end() == Ended(5, None, False, "")

    deaf = pods.run(sandbox, "sh", "-c", "trap '' TERM; echo ready; sleep infinity & wait; exit 6")
    deaf.until_it_says("ready")
    deaf.container.kill(signal.SIGTERM)
    deaf.container.kill(signal.SIGKILL)
    assert deaf.end() == Ended(137, signal.SIGKILL, False, "")
    deaf.container.kill(signal.SIGKILL)  # nothing: it has ended


def test_the_kernel_ends_what_takes_more_memory_than_its_limit(pods: Pods) -> None:
    greedy = [sys.executable, "-c", "print(len(bytearray(300 << 20)))"]
    sandbox = pods.sandbox()
    assert pods.said(sandbox, *greedy) == str(300 << 20)
    if pods.runtime.limits_memory:
        assert pods.run(sandbox, *greedy, memory=60 << 20).end() == Ended(137, signal.SIGKILL, True, "")
        assert pods.run(sandbox, "sh", "-c", "exit 1", memory=60 << 20).end() == Ended(1, None, False, "")
        limit = "from agent.machine.cgroup_limits import memory_limit; print(memory_limit())"
        assert pods.said(sandbox, sys.executable, "-c", limit, memory=60 << 20) == str(60 << 20)
        return
    with pytest.raises(StartFailed, match="no cgroup with a memory controller can be written here"):
        pods.run(sandbox, *greedy, memory=60 << 20)
    assert "CI" not in os.environ, "memory limits must be tried in CI"


def test_the_end_of_the_termination_message_is_kept(pods: Pods) -> None:
    sandbox = pods.sandbox()
    script = "head -c 5000 /dev/zero | tr '\\0' x >/termination/why; echo -n because >>/termination/why; exit 4"
    run = pods.run(sandbox, "sh", "-c", script, termination_path="/termination/why")
    assert run.end() == Ended(4, None, False, ("x" * 5000 + "because")[-4096:])
    assert pods.run(sandbox, "sh", "-c", "rm /dev/termination-log 2>&1").end().code == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "nothing: No such file or directory"),
        ({"cwd": "/no/directory"}, "/no/directory: No such file or directory"),
        ({"binds": (Bind(Path("/no/source"), "/x"),)}, "/no/source"),
        ({"root": Path("/no/image")}, "overlay"),
        ({"log": Path("/no/log")}, "/no/log"),
    ],
)
def test_what_cannot_be_started_says_why(pods: Pods, options: dict[str, Any], why: str) -> None:
    with pytest.raises(StartFailed, match=f"container main: .*{re.escape(why)}"):
        pods.run(pods.sandbox(), "nothing", **options)


def test_logs_are_as_container_runtimes_write_them(pods: Pods) -> None:
    run = pods.run(pods.sandbox(), "sh", "-c", "echo one; head -c 20000 /dev/zero | tr '\\0' x; echo; echo -n end >&2")
    run.end()
    lines = [re.fullmatch(r"(\S+T\S+Z) (\w+) ([FP]) (.*)", line) for line in run.log.read_text().splitlines()]
    found = [line.groups() if line else () for line in lines]
    assert [line[1:] for line in found] == [
        ("stdout", "F", "one"),
        ("stdout", "P", "x" * 16384),
        ("stdout", "F", "x" * 3616),
        ("stderr", "P", "end"),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line[0]) for line in found)


def test_names_come_and_go_while_pods_run(pods: Pods) -> None:
    cluster, name = pods.runtime.cluster, "job-0.job.mine.svc.cluster.local"
    sandbox = pods.sandbox(namespace="mine")
    cluster.set_names({name: [sandbox.address, "198.18.7.7"]})
    eventually(lambda: ask_dns(cluster, 0, name)[1] == 2)
    assert sandbox.address in pods.said(sandbox, "getent", "ahostsv4", "job-0.job")
    cluster.set_names({})
    eventually(lambda: ask_dns(cluster, 0, name)[1] == 0)
    assert pods.run(sandbox, "getent", "hosts", "job-0.job").end().code == 2


def test_another_root_file_system_shows_nothing_of_this_machine(pods: Pods, tmp_path: Path) -> None:
    image = tmp_path / "image, of:another"
    for file in ["/bin/sh", *re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", "/bin/sh"], text=True))]:
        (image / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, image / file[1:])
    (image / "only-here").touch()
    before = sorted(image.rglob("*"))
    found = pods.said(pods.sandbox(), "/bin/sh", "-c", "echo /*; echo >/written; : </etc/hosts", root=image)
    assert set(found.split()) >= {"/only-here", "/proc", "/dev"}
    assert not {"/work", "/usr/bin", "/home"} & set(found.split())
    assert sorted(image.rglob("*")) == before


def test_a_hundred_containers_leave_nothing(pods: Pods) -> None:
    node = pods.node()
    pods.sandbox(node).stop()  # whatever is made once is there now
    before = _counts(pods.runtime)
    for _ in range(10):
        with ExitStack() as stack:
            sandboxes = [pods.runtime.sandbox("uid", hostname="pod", node=node, host_network=n > 0) for n in range(2)]
            for sandbox in sandboxes:
                stack.callback(sandbox.stop)
                sandbox.volume("memory")
                limit = (64 << 20) if pods.runtime.limits_memory else None
                runs = [pods.run(sandbox, "true", memory=limit) for _ in range(5)]
                assert [run.end().code for run in runs] == [0] * 5
            pods.run(sandboxes[0], "sleep", "infinity")
    # Not more of anything; a descriptor less, if that of the last answer was still open at first.
    eventually(lambda: all(now <= then for now, then in zip(_counts(pods.runtime), before, strict=True)), f"{before}")


def _counts(runtime: Runtime) -> list[int]:
    """Processes, descriptors (which hold namespaces), mounts, cables and cgroups."""
    inner, *_ = _children(runtime.pid)
    descriptors = os.listdir(f"/proc/{inner}/fd")
    mounts = Path(f"/proc/{inner}/mountinfo").read_text().splitlines()
    cables = re.findall(r"pod\d+", Path(f"/proc/{inner}/net/dev").read_text())
    return [len(each) for each in (_children(inner), descriptors, mounts, cables, _cgroups(runtime))]


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cgroups(runtime: Runtime) -> list[str]:
    """Those of containers."""
    found = [f"{memory_cgroups.version_1_directory()}/{memory_cgroups.PREFIX}{runtime.pid}", runtime.cgroup]
    return sorted(str(path) for place in found if place for path in Path(place).glob("**/container-*"))


@pytest.mark.parametrize("killed", ["outer", "inner"])
def test_nothing_is_left_of_a_runtime_that_is_killed(killed: str, tmp_path: Path) -> None:
    with started() as runtime:
        pods = Pods(runtime, tmp_path)
        runs = [pods.run(pods.sandbox(host_network=host), "sleep", "infinity") for host in (False, True)]
        (inner,) = _children(runtime.pid)
        limit = (64 << 20) if runtime.limits_memory else None
        pods.run(pods.sandbox(), "sh", "-c", "setsid sleep infinity & wait", memory=limit)
        with own_namespaces([inner, *(run.container.pid for run in runs)]) as namespaces:
            os.kill(runtime.pid if killed == "outer" else inner, signal.SIGKILL)
            assert [run.end() for run in runs] == [LOST] * 2
            bridge = {os.readlink(f"/proc/{runtime.cluster.supervisor_pid()}/ns/net")}
            eventually(lambda: not (namespaces - bridge) & all_namespaces(), "the end of all namespaces")
        runtime.close()
        assert _cgroups(runtime) == []
        left = [place for place in (memory_cgroups.version_1_directory(),) if place]
        assert not [each for place in left for each in os.listdir(place) if each == f"a4-runtime-{runtime.pid}"]


OWNER = """
import os
import sys
from pathlib import Path
from tests.kubernetes import memory_cgroups, test_runtime

with test_runtime.started() as runtime:
    pods = test_runtime.Pods(runtime, Path(sys.argv[1]))
    limit = (64 << 20) if runtime.limits_memory else None
    run = pods.run(pods.sandbox(), "sleep", "infinity", memory=limit)
    above = memory_cgroups.version_1_directory()
    of_memory = f"{above}/{memory_cgroups.PREFIX}{runtime.pid}"
    made = [each for each in (of_memory, runtime.cgroup) if os.path.isdir(each)]
    assert made or not runtime.limits_memory
    print(runtime.pid, run.container.pid, *made, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_when_the_owner_of_a_runtime_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OWNER, str(tmp_path)]
    pipe, path = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=path) as owner:
        assert owner.stdout
        holder, container, *cgroups = owner.stdout.readline().split()
        with own_namespaces([*_children(int(holder)), int(container)]) as namespaces:
            owner.kill()
            eventually(lambda: not namespaces & all_namespaces(), "the end of all namespaces")
    eventually(lambda: not any(os.path.exists(each) for each in cgroups), "the end of its cgroups")
