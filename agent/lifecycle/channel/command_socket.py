"""Where this pod's own commands ask the agent: one JSON object per line on a Unix socket
(docs/maintainers/control-channel.md).

Whoever can open the socket may do everything, so its directory is root's own and nothing is checked here but the form.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agent.cutting import visible
from agent.errors import SystemFault
from agent.lifecycle.channel.questions import Handle, handled, refusal
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.waits import Once
from agent.machine.api import Channel
from agent.machine.unix_socket import MOST_REQUEST, NOBODYS, too_large

FAREWELL_SECONDS = 5.0
"""How long a pod's end waits for commands in it: those that were answered say so and exit, and it would kill them."""

TOO_MANY = SystemFault(
    "too many commands are connected to the agent of this pod: it has few descriptors left for other work",
    "end some of them, or raise the container's limit of open files (ulimit -n)",
)
"""What a command is told then, instead of an answer."""


class CommandSocket:
    """Takes requests and brings each its answer. A client that goes away ends nothing."""

    def __init__(self, pod: Pod, handle: Handle) -> None:
        self._pod = pod
        self._handle = handle
        self._open: set[Channel] = set()
        self._ends = False
        """The pod ends when the last command has left."""
        self._all_left = Once()

    def open(self) -> None:
        """A pod without its socket still does its job: that is said, and no more."""
        try:
            self._pod.machine.listen(self._pod.dir.socket, self._opened, _line({"id": NOBODYS, **refusal(TOO_MANY)}))
        except OSError as error:
            self._pod.log.warning(f"commands of this pod cannot reach the agent: {self._pod.dir.socket}: {error}")

    def when_left(self, seconds: float | None, action: Callable[[], None]) -> None:
        """Call `action` when no command is connected any more: after FAREWELL_SECONDS at the latest, after `seconds` if
        that is less. A second call may set a shorter limit."""
        self._ends = True
        self._all_left.when(action)
        most = FAREWELL_SECONDS if seconds is None else min(max(0.0, seconds), FAREWELL_SECONDS)
        self._pod.machine.later(most if self._open else 0.0, self._all_left.happen)

    def _opened(self, channel: Channel) -> None:
        self._open.add(channel)
        channel.receive(lambda line: self._line(channel, line), lambda reason: self._left(channel))

    def _close(self, channel: Channel) -> None:
        channel.close()
        self._left(channel)

    def _left(self, channel: Channel) -> None:
        self._open.discard(channel)
        if self._ends and not self._open:
            self._all_left.happen()

    def _line(self, channel: Channel, line: bytes) -> None:
        try:
            request = json.loads(line)
            number, op = request["id"], str(request["op"])
            if type(number) is not int:  # whatever else it is comes back in the answer, which may not be writable
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            self._close(channel)  # no client of ours
            return

        def answer(body: dict[str, Any]) -> None:
            try:
                written = _line({"id": number, **body})
            except (ValueError, TypeError, RecursionError) as error:
                self._pod.log.warning(f"an answer to {visible(op)!r} cannot be written: {error!r}")
                self._close(channel)
            else:
                channel.send(written)

        # After it was parsed, because the refusal needs the number of the request.
        if len(line) > MOST_REQUEST:
            answer(refusal(too_large(len(line))))
            return
        handled(self._handle, op, request, answer)


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
