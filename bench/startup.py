"""How long a cluster takes to come up, and what one worker's start costs: `make bench`.

Prints a table and, with --json, the same as JSON. Every number is the median of --repeats runs on the
local cluster: real agents, sshd and DNS in sandboxes of this one machine, which all share its cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from typing import Any

import psutil

from agent.decide.tables import render
from agent.local.client import LocalCluster
from agent.local.spec import ClusterSpec

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


def main() -> int:
    args = parse_args()
    rows = [measure_cluster(pods, args.repeats) for pods in args.pods]
    cpu = statistics.median(measure_worker_cpu() for _ in range(args.repeats))
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "repeats": args.repeats,
        "clusters": rows,
        "worker_cpu_seconds": round(cpu, 3),
        "worker_cpu_budget_seconds": CPU_BUDGET,
    }
    print(json.dumps(result, indent=1) if args.json else as_text(result))
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=sorted(BUDGETS), help="sizes of clusters")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each; the median counts")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    return parser.parse_args()


def measure_cluster(pods: int, repeats: int) -> dict[str, Any]:
    """Seconds from the first container's start to each phase being reached on the last pod."""
    runs = [one_cluster(pods) for _ in range(repeats)]
    phases = {name: round(statistics.median(run[name] for run in runs), 3) for name in PHASES}
    total = [run["plan-ready"] for run in runs]
    return {
        "pods": pods,
        "seconds": phases["plan-ready"],
        "best": round(min(total), 3),
        "worst": round(max(total), 3),
        "budget": BUDGETS.get(pods),
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


def measure_worker_cpu() -> float:
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


def as_text(result: dict[str, Any]) -> str:
    header = ["pods", *PHASES.values(), "best", "worst", "budget", "old launcher"]
    rows = [
        [
            str(row["pods"]),
            *(f"{row['phases'][name]:.2f}" for name in PHASES),
            f"{row['best']:.2f}",
            f"{row['worst']:.2f}",
            f"{row['budget']}" if row["budget"] else "-",
            f"{row['old_launcher']:.1f}",
        ]
        for row in result["clusters"]
    ]
    return (
        f"seconds from the first container's start until the last pod got there, median of {result['repeats']}\n"
        f"({result['cores']} cores for the whole cluster, Linux {result['kernel']}, Python {result['python']})\n\n"
        + render(header, rows, right=range(len(header)))
        + f"\nCPU of one worker until ready (agent and sshd): {result['worker_cpu_seconds']:.3f} s, "
        f"budget {result['worker_cpu_budget_seconds']} s"
    )


if __name__ == "__main__":
    sys.exit(main())
