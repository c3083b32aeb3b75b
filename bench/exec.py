"""What a command on every pod of a sleeping cluster takes, beside clush, and what the resident agent takes meanwhile.

Both commands are started in pod 0 of the same local cluster. clush opens an SSH session to every pod, with the
configuration that the agent gives to people in pods; `a4-agent exec` uses the channels that the agents hold open.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil

from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec
from bench.figures import Figure, bare
from bench.startup import cpu_seconds

STATE = "/run/a4-agent/state.json"
HELD = "/run/held"
TIMED = 'TIMEFORMAT=%3R; time "$@" 2>&1'
"""For bash: what the command prints on stdout, its wall time on stderr."""
MEMORY_BUDGET_MIB = 64
SHARE_BUDGET_PERCENT = 1.0
LOOK_SECONDS = 20
"""For a few beats of every pod."""


def figures(pods: int, repeats: int) -> list[Figure]:
    spec = ClusterSpec(pods=pods, gpus_per_pod=1, arguments=("none",), env={"SLEEP_INFINITY": "true"})
    with LocalCluster(spec) as cluster:
        (first,) = [info.pid for info in cluster.start() if info.index == 0]
        for index in range(pods):
            asleep = f'until grep -qs \'"phase": "sleeping"\' {STATE}; do sleep 0.05; done'
            cluster.exec(index, ["bash", "-c", asleep], timeout=120)
        beside = bare()
        found = []
        names = ",".join(map(cluster.spec.pod_name, range(pods)))
        for argv in (["a4-agent", "exec", "--", "hostname"], ["clush", "-b", "-w", names, "hostname"]):
            wall, cpu = median_of(cluster, argv, repeats)
            title = f"{argv[0]}{' exec' * (argv[0] == 'a4-agent')}: hostname on {pods} pods"
            found.append(Figure(title, wall, "s", beside.wall))
            found.append(Figure(f"{title}, all processes", cpu, "s of CPU", beside.cpu))
        (agent,) = [child for child in psutil.Process(first).children() if "run" in child.cmdline()]
        return [*found, *of_resident(cluster, agent, beside.cpu)]


def of_resident(cluster: LocalCluster, agent: psutil.Process, bare_cpu: float) -> list[Figure]:
    """The coordinator: what a command costs it that does nothing, and its share of a core while one runs.

    A share is compared with that of one bare interpreter started each second.
    """
    pods = cluster.spec.pods
    before = cpu_seconds(agent.pid)
    cluster.exec(0, ["a4-agent", "exec", "--", "true"], timeout=120)
    once = cpu_seconds(agent.pid) - before
    with ThreadPoolExecutor(1) as aside:
        waits = ["bash", "-c", f"mkfifo {HELD} && exec cat {HELD}"]
        aside.submit(cluster.exec, 0, ["a4-agent", "exec", "--", *waits], timeout=300)
        for index in range(pods):
            cluster.exec(index, ["bash", "-c", f"until test -p {HELD}; do sleep 0.05; done"], timeout=120)
        before, of_all = cpu_seconds(agent.pid), cluster_cpu(cluster)
        time.sleep(LOOK_SECONDS)
        own, every = cpu_seconds(agent.pid) - before, cluster_cpu(cluster) - of_all
        for index in range(pods):
            cluster.exec(index, ["bash", "-c", f": >{HELD}"], timeout=120)
    memory = agent.memory_info().rss / 2**20
    share, of_all_pods = (100 * cpu / LOOK_SECONDS for cpu in (own, every))
    running, unit = f"while a command runs on {pods} pods", "% of a core"
    return [
        Figure(f"memory of the coordinator of {pods} pods", memory, "MiB", 0, MEMORY_BUDGET_MIB),
        Figure(f"the coordinator for a command on {pods} pods", once, "s of CPU", bare_cpu),
        Figure(f"the coordinator {running}", share, unit, 100 * bare_cpu, SHARE_BUDGET_PERCENT),
        Figure(f"all of the cluster {running}", of_all_pods, unit, 100 * bare_cpu),
    ]


def median_of(cluster: LocalCluster, command: Sequence[str], repeats: int) -> tuple[float, float]:
    """(wall, CPU) seconds; one run before does not count."""
    pods = cluster.spec.pods
    timed(cluster, command, pods)
    seconds, cpu = zip(*(timed(cluster, command, pods) for _ in range(repeats)), strict=True)
    return statistics.median(seconds), statistics.median(cpu)


def timed(cluster: LocalCluster, command: Sequence[str], pods: int) -> tuple[float, float]:
    """(wall, CPU) seconds of a command in pod 0, which shows the host names of that many pods."""
    before = cluster_cpu(cluster)
    done = cluster.exec(0, ["bash", "-c", TIMED, "bash", *command], timeout=300)
    cpu = cluster_cpu(cluster) - before
    missing = [index for index in range(pods) if cluster.spec.node_name(index) not in done.stdout.split()]
    if done.returncode or missing:
        sys.exit(f"{command[0]} ended with {done.returncode}; pods {missing} are missing\n{done.stdout}")
    return float(done.stderr), cpu


def cluster_cpu(cluster: LocalCluster) -> float:
    """CPU time of all processes of the cluster so far: of those that live, and of those they have waited for."""
    supervisor = psutil.Process(cluster.supervisor_pid())
    total = 0.0
    for process in [supervisor, *supervisor.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
