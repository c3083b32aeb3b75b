"""What single processes take: the import of a worker, `--help`, and the order of 10,000 peers."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from agent.decide.facts import Facts
from agent.decide.order import make_plan
from agent.decide.plan import hostfile, rank_order
from bench.figures import Figure, bare, beside_bare

IMPORT = "import os, agent.lifecycle.worker; os._exit(0)"  # as the agent itself ends
COUNTING = ["-Es", "-m", "agent.clinic.probes.counters", "{}", "10"]
"""What a pod with devices reads before and after a run; without nvidia-smi's own time where there are no GPUs."""
PEERS = 10_000


def figures() -> list[Figure]:
    worker, beside_worker = beside_bare([sys.executable, "-c", IMPORT])
    shown, beside_help = beside_bare([str(Path(sys.executable).with_name("a4-agent")), "--help"])
    counting, beside_counting = beside_bare([sys.executable, *COUNTING])
    return [
        Figure("import of a worker", worker.cpu, "s of CPU", beside_worker.cpu, 6, in_multiples=True),
        Figure("a4-agent --help", shown.cpu, "s of CPU", beside_help.cpu, 6, in_multiples=True),
        Figure("reading of devices before a run", counting.cpu, "s of CPU", beside_counting.cpu, 12, in_multiples=True),
        Figure(f"order and hostfiles of {PEERS:,} peers", order_cpu(), "s of CPU", bare().cpu, 0.2),
    ]


def order_cpu() -> float:
    """The best of three."""
    facts = [
        Facts(
            index=index,
            nonce="",
            version="",
            node=f"node-{index}",
            address="10.0.0.1",
            interface="eth0",
            slots=8,
            places={"physical_host": ("c", f"block-{index % 7}", f"sub-block-{index % 131}", f"host-{index}")},
        )
        for index in range(PEERS)
    ]
    return min(_ordered(facts) for _ in range(3))


def _ordered(facts: list[Facts]) -> float:
    began = time.process_time()
    plan = make_plan(facts, epoch="e", prefix="job-workload-", domain="job.default.svc.cluster.local", slots=8)
    names = [peer.name for peer in plan.peers]
    files = (hostfile(names, plan.slots), hostfile(names, 1), rank_order(plan), "".join(f"{name}\n" for name in names))
    assert all(files)
    return time.process_time() - began
