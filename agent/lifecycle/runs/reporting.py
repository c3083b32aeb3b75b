"""report.html of a run, made by a process of its own: what it takes would hold the agent's loop, and its memory."""

from __future__ import annotations

import signal

from agent.errors import Exit
from agent.launch import Launch
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Child
from agent.paths import agent_command

REPORT = "report.html"
MOST_SAID = 2000
"""Bytes at the end of what the process says that are kept for the log."""


class Reporting:
    """`a4-agent report` on the result.json of this path, begun at once. What comes of it goes to the archive that is
    open now."""

    def __init__(self, pod: Pod, result: str) -> None:
        self._pod = pod
        self._path = f"{result.removesuffix('.json')}.html"
        self._said = b""
        self._child: Child | None = None
        self._give = pod.run_logs.expect(REPORT, self._kill)
        argv = agent_command(pod.job.python, "report", result, "-o", self._path)
        # matplotlib wants a directory for its list of fonts; the user's variables are none of its business.
        env = {"PATH": pod.known.search_path, "MPLCONFIGDIR": f"{pod.dir.path}/matplotlib"}

        def said(stream: int, data: bytes) -> None:
            self._said = (self._said + data)[-MOST_SAID:]

        try:
            self._child = pod.machine.start(Launch(argv, env, "/"), self._ended, said)
        except OSError as error:
            self._failed(str(error))
            return
        # Importing matplotlib alone takes some seconds on a busy node.
        pod.machine.later(60.0, self._kill)

    def _ended(self, status: int) -> None:
        self._child = None
        try:
            text = self._pod.machine.read(self._path) if status == 0 else None
        except OSError as error:
            self._failed(str(error))
            return
        if text is None:
            self._failed(self._said.decode(errors="replace").strip() or f"it ended with {status}", status)
        else:
            self._give(text)

    def _failed(self, why: str, status: int = 1) -> None:
        say = self._pod.log.info if status == Exit.MISSING_PROGRAM else self._pod.log.warning
        say(f"there is no {REPORT} of this run, but result.json is there: {why}")
        self._give(None)

    def _kill(self) -> None:
        """It takes too long, or nobody waits for it any more."""
        if self._child is not None:
            self._child.signal(signal.SIGKILL)
