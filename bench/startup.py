"""How long a whole cluster takes to come up, and what one worker's start costs.

On the local cluster: real agents, sshd and DNS in sandboxes of this one machine, which all share its cores.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil

from agent.decide.tables import render
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec
from bench.figures import Figure, bare

BUDGETS = {4: 0.8, 16: 2.0, 64: 7.5}
CPU_BUDGET = 0.15
OLD_FIXED, OLD_PER_POD = 20.0, 0.41
"""Seconds of the bash launcher: its sleeps, and its SSH calls to one pod after another."""
PHASES = {
    "agent-started": "agent started",
    "sshd-listening": "sshd listens",
    "facts-ready": "facts known",
    "peers-ready": "all facts at pod 0",
    "plan-ready": "plan and hostfiles",
}
EVENTS = "/run/a4-agent/events.jsonl"


def figures(rows: Sequence[dict[str, Any]], repeats: int) -> list[Figure]:
    found = [
        Figure(f"start of a cluster of {row['pods']}", row["seconds"], "s", row["bare"], BUDGETS.get(row["pods"]))
        for row in rows
    ]
    cpu = statistics.median(worker_cpu() for _ in range(repeats))
    return [*found, Figure("CPU of one worker's start", cpu, "s of CPU", bare().cpu, CPU_BUDGET)]


def measure(pods: int, repeats: int) -> dict[str, Any]:
    """Seconds from the first container's start to each phase being reached on the last pod, medians."""
    beside = bare().wall
    runs = [one_cluster(pods) for _ in range(repeats)]
    phases = {name: statistics.median(run[name] for run in runs) for name in PHASES if name in runs[0]}
    total = [run["plan-ready"] for run in runs]
    return {
        "pods": pods,
        "seconds": phases["plan-ready"],
        "best": min(total),
        "worst": max(total),
        "bare": beside,
        "old_launcher": OLD_FIXED + OLD_PER_POD * pods,
        "phases": phases,
    }


def one_cluster(pods: int) -> dict[str, float]:
    with LocalCluster(ClusterSpec(pods=pods, gpus_per_pod=8, arguments=("none",))) as cluster:
        cluster.start()
        ends = cluster.wait(timeout=300)
        if any(end.code for end in ends):
            sys.exit(f"a pod failed: {[(end.index, end.code) for end in ends if end.code]}\n{cluster.logs(0)}")
        first = min(end.started_monotonic for end in ends if end.started_monotonic)
        latest: dict[str, float] = {}
        for index in range(pods):
            for line in cluster.read(index, EVENTS).splitlines():
                event = json.loads(line)
                name = event["event"]
                latest[name] = max(latest.get(name, 0.0), event["monotonic"] - first)
    return latest


def worker_cpu() -> float:
    """CPU seconds of a worker's agent and sshd from their start until the pod is ready to be contacted."""
    spec = ClusterSpec(pods=2, missing=frozenset({0}), arguments=("none",))
    with LocalCluster(spec) as cluster:
        infos = cluster.start()
        for event in ("sshd-listening", "facts-ready"):
            cluster.exec(1, ["bash", "-c", f"until grep -qs {event} {EVENTS}; do sleep 0.02; done"], timeout=60)
        (pid,) = [info.pid for info in infos if info.index == 1]
        # tini is left out: until its exec it was the sandbox.
        return sum(cpu_seconds(child.pid) for child in psutil.Process(pid).children(recursive=True))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, those that have ended included."""
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's clock id of that process


def table(rows: Sequence[dict[str, Any]]) -> str:
    header = ["pods", *PHASES.values(), "best", "worst", "old launcher"]
    cells = [
        [
            str(row["pods"]),
            *(f"{row['phases'][name]:.2f}" if name in row["phases"] else "-" for name in PHASES),
            *(f"{row[name]:.2f}" for name in ("best", "worst", "old_launcher")),
        ]
        for row in rows
    ]
    return "seconds from the first container's start until the last pod got there\n\n" + render(
        header, cells, right=range(len(header))
    )
