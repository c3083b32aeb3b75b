"""Waiting for the other pods of the run, through the agent of this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.connection import Connection, content
from agent.decide.pipeline import Pipeline
from agent.decide.subset import ranges
from agent.lifecycle.runs.meetings import REPORT_SECONDS

ANSWER_SECONDS = REPORT_SECONDS + 60.0


class Meeting:
    """Where this pod's process arrives again and again, each time under another name."""

    def __init__(self, pipeline: Pipeline, socket: str, say: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._socket = socket
        self._say = say
        self._connection: Connection | None = None

    def arrive(self, name: str, says: str = "") -> Mapping[int, str]:
        """Wait for all pods of the run; what each of them says here, where it says something. Raises AgentError."""
        pipeline = self._pipeline
        if len(pipeline.pods) == 1:
            return {pipeline.pod: says}
        if self._connection is None:
            self._connection = Connection(self._socket)
            self._connection.run = pipeline.run
        fields = {"run": pipeline.run, "name": name, "pod": pipeline.pod, "says": says}
        waited = 0.0
        while True:
            number = self._connection.send("arrive", fields)
            told: dict[str, Any] = content(self._connection.answer(number, ANSWER_SECONDS))
            if "said" in told:
                return {int(pod): text for pod, text in told["said"].items()}
            waited += REPORT_SECONDS
            missing = told["missing"]
            pods = f"pod{'s' if len(missing) > 1 else ''} {ranges(missing)}"
            self._say(f"waiting for {pods} at {name!r} for {waited:.0f} s")
