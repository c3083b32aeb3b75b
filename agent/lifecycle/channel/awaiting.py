"""A worker's wait for the first coordinator: said now and then, and given up when nobody comes."""

from __future__ import annotations

from collections.abc import Callable

from agent.errors import AgentError, PeersMissing
from agent.lifecycle.pod.pod import Pod

REPORT_SECONDS = 30.0


class Awaiting:
    """Lasts until somebody sets `over`. `fail` gets PeersMissing after A4_PEER_TIMEOUT_SECONDS.

    Workers are contacted, they contact nobody: a worker that cannot be reached has no other way to notice it.
    """

    def __init__(self, pod: Pod, fail: Callable[[AgentError], None]) -> None:
        self._pod = pod
        self._fail = fail
        self.over = False
        """The coordinator has come, or this pod no longer waits for it."""

    def start(self) -> None:
        self._pod.machine.later(self._pod.settings.peer_timeout, self._give_up)
        self._pod.machine.later(REPORT_SECONDS, self._report)

    def _report(self) -> None:
        if not self.over:
            self._pod.log.info("waiting for the coordinator to connect")
            self._pod.machine.later(REPORT_SECONDS, self._report)

    def _give_up(self) -> None:
        if self.over:
            return
        pod = self._pod
        address = f"{pod.known.interface.address}:{pod.settings.ssh_port}"
        self._fail(
            PeersMissing(
                f"the coordinator did not come within {pod.settings.peer_timeout:.0f} s",
                f"sshd listens on {address}. Why it was not reached stands in the log of {pod.where(0)}; "
                "a pod whose secret or epoch differs from the others' is refused",
            )
        )
