"""What the last line of a terminal says of a cluster that is forming or runs something."""

from __future__ import annotations

import json
import time

from agent.decide.pod_state import PodState
from agent.decide.progress import forming_words, run_words, without_progress
from agent.errors import AgentError
from agent.local.client import LocalCluster
from agent.local.run_report import run_directory
from agent.machine.progress_line import on_terminal
from agent.paths import RunDir
from agent.wire import from_json


class ClusterProgress:
    """By the state that the agent of pod 0 keeps, and by what its run prints of its progress."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._began = time.monotonic()
        self._has_line = on_terminal()
        self._doing = ""

    def printed(self, data: bytes) -> bytes:
        """What a pod has written to stderr, without what the line shows."""
        if self._has_line:
            data, doing = without_progress(data)
            self._doing = doing or self._doing
        return data

    def text(self) -> str:
        path = RunDir(run_directory(self._cluster.spec, 0)).state
        try:
            state = from_json(PodState, json.loads(self._cluster.read_bytes(0, [path])[path] or b"{}"))
        except (AgentError, OSError, ValueError):
            return ""  # it has just ended, or is not there yet
        if state.run is not None:
            return run_words(state.run.id, len(state.run.pods), time.time() - state.run.since, self._doing)
        if state.phase in ("", "preparing", "forming"):
            return forming_words(self._cluster.spec.pods, state.missing, time.monotonic() - self._began)
        return ""
