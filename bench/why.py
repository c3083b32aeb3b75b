"""How long `a4-agent why` takes for a run that hangs on many pods: two ranks on each, which are stand-ins for torch's.

Each rank is a process that answers as torch's server does, from recorded answers; py-spy reads its stacks as those of
any Python program. One of them is behind, and the answer has to name it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from agent.settings import TASK_SCRIPTS
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.spec import ClusterSpec
from bench import torch_stand_in
from bench.exec import STATE
from bench.figures import Figure, bare

RECORDING = Path(__file__).resolve().parent.parent / "tests" / "clinic" / "recorded" / "sleep.json"
SCRIPT = f"""
for local in 0 1; do
    RANK=$((2 * NODE_RANK + local)) LOCAL_RANK=$local {sys.executable} -I {torch_stand_in.__file__} \
        $((2 * NODE_RANK + local)) {RECORDING} &
done
wait
"""
BUDGET_SECONDS = 15


def figures(pods: int, repeats: int) -> list[Figure]:
    files = {TASK_SCRIPTS[0]: SCRIPT.encode()}
    spec = ClusterSpec(pods=pods, gpus_per_pod=2, arguments=("none",), files=files, env={"SLEEP_INFINITY": "true"})
    with LocalCluster(spec) as cluster:
        cluster.start()
        for index in range(pods):
            asleep = f'until grep -qs \'"phase": "sleeping"\' {STATE}; do sleep 0.05; done'
            cluster.exec(index, ["bash", "-c", asleep], timeout=120)
        cluster.exec(0, ["a4-agent", "run", "--detach", "script"], timeout=120)
        for index in range(pods):
            cluster.exec(
                index,
                ["bash", "-c", "until test -e /tmp/stands-0 -a -e /tmp/stands-1; do sleep 0.05; done"],
                timeout=120,
            )
        beside = bare().wall
        taken = [measure(cluster) for _ in range(repeats)]
    return [Figure(f"why on {pods} pods", statistics.median(taken), "s", beside, BUDGET_SECONDS)]


def measure(cluster: LocalCluster) -> float:
    began = time.monotonic()
    done = cluster.exec(0, ["a4-agent", "why", "--json"], timeout=120)
    taken = time.monotonic() - began
    found = json.loads(done.stdout)["diagnosis"] if done.returncode == 0 else None
    if found is None or [one["rank"] for one in found["culprits"]] != [torch_stand_in.BEHIND]:
        sys.exit(f"why does not name rank {torch_stand_in.BEHIND}: {done}")
    return taken
