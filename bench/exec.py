"""What it takes to run `hostname` on every pod of a sleeping cluster: `a4-agent exec` beside clush.

Both are started in pod 0 of the same local cluster. clush opens an SSH session to every pod, with the configuration
that the agent gives to people in pods; `a4-agent exec` uses the channels that the agents hold open anyway. Prints a
table and, with --json, the same as JSON. Every number is the median of --repeats runs after one that does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

from agent.decide.tables import render
from agent.local.client import LocalCluster
from agent.local.spec import ClusterSpec

STATE = "/run/a4-agent/state.json"
TIMED = 'TIMEFORMAT=%3R; time "$@" 2>&1'
"""For bash: what the command prints on stdout, its wall time on stderr."""
IDLE_SECONDS = 5


def main() -> int:
    args = parse_args()
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "clush": subprocess.run(["clush", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        "repeats": args.repeats,
        "clusters": [measure(pods, args.repeats) for pods in args.pods],
    }
    print(json.dumps(result, indent=1) if args.json else as_text(result))
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[16, 64], help="sizes of clusters")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each; the median counts")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    return parser.parse_args()


def measure(pods: int, repeats: int) -> dict[str, Any]:
    """Wall time and CPU of both commands on one cluster, and what the cluster takes when nobody asks it anything."""
    spec = ClusterSpec(pods=pods, gpus_per_pod=1, arguments=("none",), env={"SLEEP_INFINITY": "true"})
    with LocalCluster(spec) as cluster:
        cluster.start()
        for index in range(pods):
            asleep = f'until grep -qs \'"phase": "sleeping"\' {STATE}; do sleep 0.05; done'
            cluster.exec(index, ["bash", "-c", asleep], timeout=120)
        commands = {
            "exec": ["a4-agent", "exec", "--", "hostname"],
            "clush": ["clush", "-b", "-w", ",".join(map(cluster.spec.pod_name, range(pods))), "hostname"],
        }
        found = {name: median_of(cluster, command, repeats) for name, command in commands.items()}
        _, idle = timed(cluster, ["sleep", str(IDLE_SECONDS)], 0)
    return {"pods": pods, **found, "idle_cpu_per_second": round(idle / IDLE_SECONDS, 3)}


def median_of(cluster: LocalCluster, command: Sequence[str], repeats: int) -> dict[str, Any]:
    pods = cluster.spec.pods
    timed(cluster, command, pods)
    runs = [timed(cluster, command, pods) for _ in range(repeats)]
    seconds, cpu = zip(*runs, strict=True)
    return {
        "seconds": round(statistics.median(seconds), 3),
        "best": round(min(seconds), 3),
        "worst": round(max(seconds), 3),
        "cpu_seconds": round(statistics.median(cpu), 2),
    }


def timed(cluster: LocalCluster, command: Sequence[str], pods: int) -> tuple[float, float]:
    """(wall, CPU) seconds of a command in pod 0, which shows the host names of that many pods."""
    before = cpu_seconds(cluster)
    done = cluster.exec(0, ["bash", "-c", TIMED, "bash", *command], timeout=300)
    cpu = cpu_seconds(cluster) - before
    missing = [index for index in range(pods) if cluster.spec.node_name(index) not in done.stdout.split()]
    if done.returncode or missing:
        sys.exit(f"{command[0]} ended with {done.returncode}; pods {missing} are missing\n{done.stdout}")
    return float(done.stderr), cpu


def cpu_seconds(cluster: LocalCluster) -> float:
    """CPU time of all processes of the cluster so far: of those that live, and of those they have waited for."""
    supervisor = psutil.Process(cluster.supervisor_pid())
    total = 0.0
    for process in [supervisor, *supervisor.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def as_text(result: dict[str, Any]) -> str:
    header = ["pods", "a4-agent exec", "best", "worst", "CPU", "clush", "best", "worst", "CPU"]
    rows = [
        [
            str(row["pods"]),
            *(
                text
                for name in ("exec", "clush")
                for text in (
                    *(f"{row[name][key]:.2f}" for key in ("seconds", "best", "worst")),
                    f"{row[name]['cpu_seconds']:.2f}",
                )
            ),
        ]
        for row in result["clusters"]
    ]
    idle = ", ".join(f"{row['idle_cpu_per_second']:.3f} with {row['pods']} pods" for row in result["clusters"])
    return (
        f"seconds for `hostname` on every pod, started in pod 0, median of {result['repeats']}; CPU is that of\n"
        f"all processes of the cluster ({result['cores']} cores for the whole cluster, Linux {result['kernel']}, "
        f"Python {result['python']}, {result['clush']})\n\n"
        + render(header, rows, right=range(len(header)))
        + f"\nCPU seconds per second while nobody asks anything: {idle}"
    )


if __name__ == "__main__":
    sys.exit(main())
