"""The wire between a command and the agent of its pod: requests and answers, one JSON object per line."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Any

from agent.errors import AgentError, ClusterBusy, Exit, PeerLost, PeersMissing, SystemFault, UsageError
from agent.machine.stream import NO_LIMIT, LineBuffer
from agent.machine.unix_socket import MOST_REQUEST, NOBODYS, connect, too_large

ANSWER_SECONDS = 20.0
"""How long the agent may take for what it can answer at once."""

_NOBODY = (
    "nobody listens at {}; `a4-agent run`, the ENTRYPOINT of a pod, starts one; "
    "in a pod of a local cluster: a4-agent local exec 0 -- a4-agent …"
)

Answer = Mapping[str, Any]
"""`id` of the request, and `ok` or `error`."""


class Connection:
    """Several requests may be open at once; answers come in any order."""

    def __init__(self, path: str) -> None:
        """Raises PeersMissing where no agent listens, SystemFault for who may not ask it."""
        self._socket = _connected(path)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._wake = -1
        self._buffer = LineBuffer(NO_LIMIT)
        self._lines: deque[bytes] = deque()
        self._numbers = count(1)
        self._early: dict[int, Answer] = {}
        """Answers that came while another was waited for."""
        self.run = ""
        """The run that all this is about, for the words when the agent dies."""

    def close(self) -> None:
        self._socket.close()

    def wake_by(self, fd: int) -> None:
        """Wait for bytes in this pipe, too; -1: no longer for any."""
        if self._wake >= 0:
            self._poll.unregister(self._wake)
        if fd >= 0:
            self._poll.register(fd, select.POLLIN)
        self._wake = fd

    def send(self, op: str, fields: Mapping[str, Any]) -> int:
        """Ask; returns the number that the answer will bear. Raises PeerLost, UsageError when it is too much."""
        if self._socket.fileno() < 0:
            raise UsageError("this client is closed", "make another one")
        number = next(self._numbers)
        line = json.dumps({"id": number, "op": op, **fields}, separators=(",", ":")).encode()
        if len(line) > MOST_REQUEST:
            raise too_large(len(line))
        try:
            self._socket.sendall(line + b"\n")
        except OSError as error:
            self._receive(0.0)  # an agent that takes no more commands has said so
            raise self._gone() from error
        return number

    def answer(self, number: int, patience: float | None) -> Answer:
        """Wait for one answer. Raises PeerLost when the agent ends, or says nothing for `patience` seconds."""
        until = None if patience is None else time.monotonic() + patience
        while number not in self._early:
            answer = self._receive(None if until is None else until - time.monotonic())
            if answer is None:
                raise PeerLost(
                    f"the agent of this pod has not answered for {patience:.0f} s",
                    "a4-agent status shows whether it still responds, and what it is doing",
                )
            self._early[answer["id"]] = answer
        return self._early.pop(number)

    def next(self, patience: float | None) -> Answer | None:
        """Any answer that has come, or that comes within `patience` seconds. Raises PeerLost."""
        if self._early:
            return self._early.pop(next(iter(self._early)))
        return self._receive(patience)

    def _receive(self, patience: float | None) -> Answer | None:
        """The next answer. Raises AgentError when the agent takes no more commands, PeerLost when it has gone."""
        while not self._lines:
            ready = [fd for fd, _ in self._poll.poll(None if patience is None else max(0.0, patience) * 1000)]
            if not ready:
                return None
            if self._wake in ready:
                os.read(self._wake, 4096)  # handlers of signals run now
            if self._socket.fileno() in ready:
                self._lines += self._buffer.feed(self._more())
        answer = json.loads(self._lines.popleft())
        assert isinstance(answer, dict)
        if answer["id"] == NOBODYS:
            content(answer)
        return answer

    def _more(self) -> bytes:
        try:
            data = self._socket.recv(262144)
        except OSError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        return data

    def _gone(self) -> PeerLost:
        if not self.run:
            return PeerLost("the agent of this pod just exited", "a4-agent status shows how")
        return PeerLost(
            f"the agent of this pod has ended while {self.run} was going on",
            f"a4-agent status shows how; what this pod printed until then: a4-agent logs {self.run}",
        )


def content(answer: Answer) -> dict[str, Any]:
    """What the agent says. Raises AgentError for its refusal, with its words and exit code."""
    if "error" not in answer:
        ok = answer["ok"]
        assert isinstance(ok, dict)
        return ok
    refusal = answer["error"]
    kind = ClusterBusy if refusal.get("busy") else AgentError
    error = kind(refusal["what"], refusal.get("hint", ""))
    error.code = Exit(refusal["code"])
    raise error


def _connected(path: str) -> socket.socket:
    try:
        return connect(path)
    except PermissionError as error:
        raise SystemFault("only root can ask the agent of this pod", f"{path}: {error.strerror}") from error
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise PeersMissing("no a4-agent runs in this pod", _NOBODY.format(path)) from error
    except OSError as error:
        raise SystemFault(f"the agent of this pod cannot be asked: {path}: {error.strerror}") from error
