"""How long pods wait for each other beyond what they must: from the end of the last pod's `a4-agent sync set` until the
last `a4-agent sync wait --from all` goes on.

All pods are on one machine and share its clock. The last pod sets its name when all others have long been waiting.
"""

from __future__ import annotations

import json
import statistics
import sys

from agent.paths import package_home
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec
from bench.exec import STATE
from bench.figures import Figure, bare

PODS = 64
BUDGET_SECONDS = 0.1
LAST_SECONDS = 20
"""Until then the commands of the other pods have been started, which takes a small machine some seconds."""
STAY_SECONDS = 3
PROGRAM = f"""
import os, sys, time
sys.path.insert(0, {package_home()!r})
from agent.cli import main
last = os.environ["A4_NODE_RANK"] == "{PODS - 1}"
time.sleep({LAST_SECONDS} * last)
code = main(["sync", "set", sys.argv[1]]) or (not last and main(["sync", "wait", sys.argv[1], "--from", "all"]))
print(time.time())
time.sleep({STAY_SECONDS})
sys.exit(code)
"""
"""Says when it was done, and stays: the ends of 64 processes on a small machine would hold up those that come later."""


def figures(repeats: int) -> list[Figure]:
    spec = ClusterSpec(pods=PODS, gpus_per_pod=1, arguments=("none",), env={"SLEEP_INFINITY": "true"})
    with LocalCluster(spec) as cluster:
        cluster.start()
        for index in range(PODS):
            asleep = f'until grep -qs \'"phase": "sleeping"\' {STATE}; do sleep 0.05; done'
            cluster.exec(index, ["bash", "-c", asleep], timeout=120)
        beside = bare().wall
        delays = [measure(cluster, f"barrier-{number}") for number in range(repeats)]
    title = f"barrier of {PODS} pods, from the last set to the last answer"
    return [Figure(title, statistics.median(delays), "s", beside, BUDGET_SECONDS)]


def measure(cluster: LocalCluster, name: str) -> float:
    command = ["a4-agent", "exec", "--json", "--", sys.executable, "-c", PROGRAM, name]
    done = cluster.exec(0, command, timeout=300)
    if done.returncode:
        sys.exit(f"the barrier broke: {done}")
    ends = sorted(float(pod["stdout"]) for pod in json.loads(done.stdout))
    return ends[-1] - ends[0]
