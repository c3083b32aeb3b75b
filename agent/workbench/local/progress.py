"""What the last line of a terminal says of a cluster that is forming or runs something."""

from __future__ import annotations

import json
import time

from agent.decide.pod_state import PodState
from agent.decide.progress import Doing, forming_words, run_words
from agent.errors import AgentError
from agent.machine.progress_line import on_terminal
from agent.paths import RunDir
from agent.wire import from_json
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.run_report import run_directory


class ClusterProgress:
    """By the state that the agent of pod 0 keeps, and by what its run prints of its progress."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._began = time.monotonic()
        self.doing = Doing(shown=not on_terminal())

    def text(self) -> str:
        path = RunDir(run_directory(self._cluster.spec, 0)).state
        try:
            state = from_json(PodState, json.loads(self._cluster.read_bytes(0, [path])[path] or b"{}"))
        except (AgentError, OSError, ValueError):
            return ""  # it has just ended, or is not there yet
        if state.run is not None:
            return run_words(state.run.id, len(state.run.pods), time.time() - state.run.since, self.doing.words)
        if state.phase in ("", "preparing", "forming"):
            return forming_words(self._cluster.spec.pods, state.missing, time.monotonic() - self._began)
        return ""
