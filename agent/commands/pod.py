"""What several verbs need to know of the pod they run in."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from agent.commands.shell_env import travelling, unheard
from agent.decide.environment import changed
from agent.decide.plan import Plan, PlannedPeer, peer_name
from agent.decide.pod_state import PodState
from agent.decide.runspec import RunSpec
from agent.environment import load, stored
from agent.errors import PeersMissing
from agent.machine import files
from agent.paths import RunDir
from agent.settings import OF_RUNS, SETTINGS, Settings
from agent.wire import from_json

if TYPE_CHECKING:
    from agent.client import Client

OF_THE_POD = tuple(one.name for one in SETTINGS if one.name.startswith("A4_") and one.name != "A4_RUN_DIR")
"""What nobody but the pod's manifest can set. A4_RUN_DIR says where the agent is."""
MOST_NAMES = 8
"""Pods whose names a pod looks up to see whether that works."""


def read_state(directory: RunDir) -> PodState | None:
    """What the agent of this pod wrote of itself; None when none has been started here. Raises SystemFault."""
    return stored(directory.state, partial(from_json, PodState))


def guessed_plan(settings: Settings) -> Plan:
    """In index order, without places: while there is no plan, or none is wanted."""
    peers = tuple(
        PlannedPeer(index, peer_name(settings.hostname_prefix, index, settings.domain_name), "", "")
        for index in range(settings.nnodes)
    )
    return Plan(settings.epoch, settings.gpus_per_node, peers)


def next_peers(plan: Plan, index: int) -> list[str]:
    """Those after this pod, in a circle: each name is looked up by some pods, however many there are."""
    names = [peer.name for peer in sorted(plan.peers, key=lambda peer: (peer.index <= index, peer.index))]
    return names[:MOST_NAMES]


def agent_environment(directory: RunDir) -> dict[str, str]:
    """What the agent of this pod gives to workloads; empty when there is none, or it is not ours to read."""
    environ = agent_start(directory)
    record = load(directory.environment) if environ else None
    return changed(environ, record["changes"]) if record else environ


def agent_start(directory: RunDir) -> dict[str, str]:
    """What the agent of this pod was started with; empty when there is none, or it is not ours to read."""
    holder = re.match(r"pid (\d+) ", _readable(directory.lock))
    return process_environment(int(holder[1])) if holder else {}


def process_environment(pid: int) -> dict[str, str]:
    """Empty when there is no such process, or it is not ours to read."""
    pairs = (entry.partition("=") for entry in _readable(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, found, value in pairs if found and name}


def of_caller(spec: RunSpec) -> RunSpec:
    """`spec` with whose wish it is, and with the variables that were set in this shell under its own."""
    directory = RunDir()
    agent = agent_environment(directory)
    env = travelling(os.environ, agent, process_environment(1), OF_RUNS) if agent else {}
    for sentence in unheard_settings(agent):
        print(f"a4-agent: warning: {sentence}", file=sys.stderr)
    state = read_state(directory)
    return spec._replace(env={**env, **spec.env}, by=f"pod {state.index if state else '?'} (pid {os.getpid()})")


def unheard_settings(agent: Mapping[str, str]) -> list[str]:
    """A sentence on each setting of the pod that this shell has set in vain; `agent`: the agent's environment."""
    return unheard(os.environ, agent, process_environment(1), OF_THE_POD, OF_RUNS) if agent else []


def living(directory: RunDir) -> Client | None:
    """The agent that lives in this pod, if one does. Raises SystemFault for who may not ask it."""
    from agent.client import Client

    try:
        return Client(directory.path)
    except PeersMissing:
        return None


def _readable(path: str) -> str:
    """Empty where there is no such file, or it is not ours to read."""
    try:
        return files.read(path) or ""
    except OSError:
        return ""
