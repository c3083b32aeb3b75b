"""What the tests of the local cluster share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.decide.run_marks import own_cgroup
from agent.local.client import LocalCluster
from agent.local.sockets import DIRECTORY
from agent.local.spec import BRIDGE_ADDRESS, ClusterSpec
from tests.deadlines import limits_of_spec, refuse_short

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts")
IDLE = ("sleep", "infinity")
CHECKOUT = Path(__file__).resolve().parents[2]
DEADLINE = 150.0

_QUERY = """
import socket, struct, sys
labels = b"".join(bytes([len(x)]) + x.encode() for x in sys.argv[1].split("."))
query = struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + labels + b"\\0" + struct.pack(">HH", int(sys.argv[2]), 1)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(10)
client.sendto(query, (sys.argv[3], 53))
answer = client.recv(512)
count = struct.unpack_from(">H", answer, 6)[0]
print(answer[3] & 15, count, socket.inet_ntoa(answer[-4:]) if count else "-")
"""


def cluster_of(pods: int, entrypoint: tuple[str, ...] = IDLE, **options: Any) -> LocalCluster:
    spec = ClusterSpec(pods=pods, entrypoint=entrypoint, **options)
    refuse_short(limits_of_spec(spec))
    return LocalCluster(spec)


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something that comes by itself; fails after DEADLINE."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"did not come: {what or condition}"
        time.sleep(0.01)


def python_in(cluster: LocalCluster, pod: int, code: str, *arguments: str) -> str:
    """Run Python code in a pod; its stdout."""
    result = cluster.exec(pod, [sys.executable, "-c", code, *arguments], timeout=DEADLINE)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def ask_dns(cluster: LocalCluster, pod: int, name: str, kind: int = 1) -> tuple[int, int, str]:
    """Response code, number of answers, first address."""
    code, count, first = python_in(cluster, pod, _QUERY, name, str(kind), BRIDGE_ADDRESS).split()
    return int(code), int(count), first


def namespaces_of(pid: int) -> set[str]:
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("mnt", "net", "uts", "ipc", "pid")}


def own_namespaces(cluster: LocalCluster) -> set[str]:
    """Namespaces that exist for this cluster alone."""
    pids = [cluster.supervisor_pid(), *(pod.pid or 0 for pod in cluster.pods() if pod.state == "running")]
    found: set[str] = set().union(*(namespaces_of(pid) for pid in pids))
    return found - namespaces_of(os.getpid())


def all_namespaces() -> set[str]:
    """Namespaces that any process of this machine is in."""
    found = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            found |= namespaces_of(int(directory.name))
        except OSError:
            continue
    return found


def cgroups_of(name: str) -> list[Path]:
    """The cgroups of a cluster and of its pods."""
    own = own_cgroup(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return list(Path(own).glob(f"a4-cluster-{name}.*/**/")) if own else []


def nothing_left(name: str, namespaces: set[str]) -> bool:
    left = namespaces & all_namespaces() or cgroups_of(name)
    return not left and name not in os.listdir(DIRECTORY)
