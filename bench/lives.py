"""How long a run stands still when it starts again: from the loss of a rank or pod until the programs of all pods run.

The programs are shells, so that this is the agent's time alone. The lost pod is replaced at once, which Kubernetes does
not do (docs/lives.md).
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec
from bench.figures import Figure, bare

RANK_SECONDS, POD_SECONDS = 3.0, 5.0
"""Budgets."""
PATIENCE_SECONDS = 120.0
PROGRAM = """\
began=/share/$A4_LIFE-$JOB_COMPLETION_INDEX
date +%s.%N > $began.new
mv $began.new $began
exec sleep 100000
"""


def figures(pods: int, repeats: int) -> list[Figure]:
    with TemporaryDirectory() as share:
        spec = ClusterSpec(
            pods=pods,
            gpus_per_pod=1,
            arguments=("script",),
            files={"/workload/task/task-script.sh": PROGRAM.encode()},
            env={"A4_REPORT": "false"},
            directories={"/share": share},
            lives=2 * repeats,
            replace_after=0,
        )
        ranks, replaced = [], []
        with LocalCluster(spec) as cluster:
            cluster.start()
            began(share, pods, 1)
            beside = bare().wall
            for number in range(repeats):
                at = time.time()
                cluster.exec(pods // 2, ["pkill", "-KILL", "-x", "sleep"])
                ranks.append(began(share, pods, 2 * number + 2) - at)
                at = time.time()
                cluster.kill_pod(pods // 2)
                replaced.append(began(share, pods, 2 * number + 3) - at)
    title = f"start again on {pods} pods after a killed"
    return [
        Figure(f"{title} rank", statistics.median(ranks), "s", beside, RANK_SECONDS),
        Figure(f"{title} pod", statistics.median(replaced), "s", beside, POD_SECONDS),
    ]


def began(share: str, pods: int, life: int) -> float:
    """When the last program of that life began, by the machine's clock."""
    files = [Path(share, f"{life}-{index}") for index in range(pods)]
    until = time.monotonic() + PATIENCE_SECONDS
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            sys.exit(f"life {life} has not begun on all {pods} pods")
        time.sleep(0.05)
    return max(float(file.read_text()) for file in files)
