"""What the tests of the local cluster share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from glob import glob
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from agent.decide.run_marks import own_cgroup
from agent.paths import DEFAULT_RUN_DIR
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.sockets import DIRECTORY
from agent.workbench.local.spec import BRIDGE_ADDRESS, ClusterSpec
from tests.deadlines import limits_of_spec, refuse_short

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts")
IDLE = ("sleep", "infinity")
CHECKOUT = Path(__file__).resolve().parents[3]
DEADLINE = 150.0

_QUERY = """
import socket, struct, sys
labels = b"".join(bytes([len(x)]) + x.encode() for x in sys.argv[1].split("."))
query = struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + labels + b"\\0" + struct.pack(">HH", int(sys.argv[2]), 1)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(120)
client.sendto(query, (sys.argv[3], 53))
answer = client.recv(512)
count = struct.unpack_from(">H", answer, 6)[0]
print(answer[3] & 15, count, socket.inet_ntoa(answer[-4:]) if count else "-")
"""


def cluster_of(pods: int, entrypoint: tuple[str, ...] = IDLE, **options: Any) -> LocalCluster:
    spec = ClusterSpec(pods=pods, entrypoint=entrypoint, **options)
    refuse_short(limits_of_spec(spec))
    return LocalCluster(spec)


@contextmanager
def up(pods: int, entrypoint: tuple[str, ...] = IDLE, **options: Any) -> Iterator[LocalCluster]:
    """A cluster whose pods have been started."""
    with cluster_of(pods, entrypoint, **options) as cluster:
        cluster.start()
        yield cluster


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something that comes by itself; fails after DEADLINE."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"did not come: {what or condition}"
        time.sleep(0.01)


def until_asleep(name: str) -> None:
    """Wait until every pod of a running cluster sleeps: `up --wait` returns before its first run has begun."""
    cluster, state = LocalCluster.attach(name), f"{DEFAULT_RUN_DIR}/state.json"
    eventually(lambda: all('"phase": "sleeping"' in cluster.read(pod.index, state) for pod in cluster.pods()))


def python_in(cluster: LocalCluster, pod: int, code: str, *arguments: str) -> str:
    """Run Python code in a pod; its stdout."""
    result = cluster.exec(pod, [sys.executable, "-c", code, *arguments], timeout=DEADLINE)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def ask_dns(cluster: LocalCluster, pod: int, name: str, kind: int = 1) -> tuple[int, int, str]:
    """Response code, number of answers, first address."""
    code, count, first = python_in(cluster, pod, _QUERY, name, str(kind), BRIDGE_ADDRESS).split()
    return int(code), int(count), first


NAMESPACES = ("mnt", "net", "uts", "ipc", "pid")


def namespaces_of(pid: int) -> set[str]:
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in NAMESPACES}


@contextmanager
def own_namespaces(pids: Sequence[int]) -> Iterator[set[str]]:
    """Those of these processes and not ours. They are held open: the kernel gives the number of one that has gone to
    the next, which may be another cluster's."""
    with ExitStack() as held:
        for pid, kind in product(pids, NAMESPACES):
            held.callback(os.close, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY))
        yield set().union(*map(namespaces_of, pids)) - namespaces_of(os.getpid())


def all_namespaces() -> set[str]:
    """Namespaces that any process of this machine is in."""
    found = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            found |= namespaces_of(int(directory.name))
        except OSError:
            continue
    return found


def cgroups_of(name: str) -> list[str]:
    """The cgroups of a cluster and of its pods."""
    own = own_cgroup(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return glob(f"{own}/a4-cluster-{name}.*/**/", recursive=True) if own else []


@contextmanager
def leaves_nothing(cluster: LocalCluster) -> Iterator[None]:
    """The block ends a running cluster, of which no process, cgroup or socket may stay then."""
    running = [pod.pid or 0 for pod in cluster.pods() if pod.state == "running"]
    with own_namespaces([cluster.supervisor_pid(), *running]) as namespaces:
        assert len(namespaces) >= len(NAMESPACES) * len(running)

        def left() -> Sequence[object]:
            sockets = [name for name in os.listdir(DIRECTORY) if name == cluster.name]
            return [*(namespaces & all_namespaces()), *cgroups_of(cluster.name), *sockets]

        yield
        with suppress(AssertionError):
            eventually(lambda: not left())
        assert not (stays := left()), stays
