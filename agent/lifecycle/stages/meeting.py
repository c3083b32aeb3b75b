"""Waiting for the other pods of the run, through the agent of this one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from agent.connection import Connection, content
from agent.decide.pipeline import Pipeline
from agent.decide.subset import pods_text
from agent.errors import AgentError, PeerLost
from agent.lifecycle.waits import REPORT_SECONDS


class Meeting:
    """Where this pod's process arrives again and again, each time under another name."""

    def __init__(self, pipeline: Pipeline, socket: str, say: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._socket = socket
        self._say = say
        self._connection: Connection | None = None
        self._told = -math.inf

    def arrive(self, name: str, says: str = "") -> Mapping[int, str]:
        """Wait for all pods of the run; what each of them says here. Raises AgentError: PeerLost when one has ended
        before."""
        pipeline = self._pipeline
        if len(pipeline.pods) == 1:
            return {pipeline.pod: says}
        connection = self._connected()
        fields = {"run": pipeline.run, "name": name, "pod": pipeline.pod, "says": says}
        began = time.monotonic()
        while True:
            # An agent that lives answers every REPORT_SECONDS, if only that some are missing.
            told: dict[str, Any] = content(connection.answer(connection.send("arrive", fields), 3 * REPORT_SECONDS))
            if "said" in told:
                said = {int(pod): text for pod, text in told["said"].items()}
                if over := set(pipeline.pods) - said.keys():
                    raise PeerLost(f"{pods_text(over)} ended before {name!r}", "the log of that pod says why")
                return said
            self._say(f"waiting for {pods_text(told['missing'])} at {name!r} for {time.monotonic() - began:.0f} s")

    def tell(self, line: str) -> None:
        """Have the coordinator show a line, where this pod is another; at most one a second."""
        now = time.monotonic()
        if self._pipeline.leads or now < self._told + 1.0:
            return
        self._told = now
        with suppress(AgentError):  # who waits next hears of an agent that is gone
            connection = self._connected()
            while connection.next(0) is not None:
                pass  # the answers to earlier ones
            connection.send("tell", {"run": self._pipeline.run, "pod": self._pipeline.pod, "line": line})

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._socket)
            self._connection.run = self._pipeline.run
        return self._connection
