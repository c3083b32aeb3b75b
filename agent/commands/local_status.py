"""What `a4-agent local status` says of a cluster on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from agent.commands.state_text import describe
from agent.decide.plan import Plan
from agent.decide.pod_state import PodState
from agent.decide.subset import grouped, pods_text
from agent.local.client import LocalCluster
from agent.local.pods import PodInfo
from agent.local.run_report import run_directory
from agent.paths import RunDir
from agent.wire import from_json


def describe_cluster(cluster: LocalCluster) -> str:
    """Which pods run, how the others ended, and what the agent of pod 0 says of the cluster."""
    pods = cluster.pods()
    lines = [f"local cluster {cluster.name}: {in_words(count_states(pods))}", *_ends(pods)]
    return "".join(f"{line}\n" for line in lines) + _of_agent(cluster)


def count_states(pods: Sequence[PodInfo]) -> dict[str, int]:
    """How many pods are in which state."""
    states = [pod.state for pod in pods]
    return {state: states.count(state) for state in sorted(set(states))}


def in_words(counts: Mapping[str, int]) -> str:
    """3 running, 1 ended"""
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _ends(pods: Sequence[PodInfo]) -> list[str]:
    """Pods that ended alike stand in one line."""
    by_code = grouped({pod.index: pod.code for pod in pods if pod.code is not None})
    return [f"  {pods_text(of)}: exit code {code}" for code, of in by_code.items()]


def _of_agent(cluster: LocalCluster) -> str:
    """What the agent of pod 0 last wrote of itself, which is there when the pod has ended, too."""
    directory = RunDir(run_directory(cluster.spec, 0))
    files = cluster.read_bytes(0, [directory.state, directory.plan])
    state, plan = files[directory.state], files[directory.plan]
    if state is None:
        return "pod 0 has no agent yet\n"
    return describe(
        from_json(PodState, json.loads(state)),
        Plan.from_json(json.loads(plan)) if plan else None,
        0.0,
        time.time(),
        directory,
    )
