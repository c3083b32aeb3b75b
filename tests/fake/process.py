"""Fake processes: scripted lives, and an sshd that does what its configuration says."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.launch import Launch
from agent.machine.api import GuardSaid, RunMarks

if TYPE_CHECKING:
    from tests.fake.machine import FakeMachine

SSHD = "/usr/sbin/sshd"
SSHD_START_SECONDS = 0.02
GUARD_START_SECONDS = 0.05
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Life:
    """How a process goes: it ends with `status` (negative: a signal) after `seconds`; None: never by itself."""

    status: int = 0
    seconds: float | None = 10.0
    term_seconds: float | None = 0.1
    """How long it takes to end after SIGTERM; None: it ignores that."""
    warned_seconds: float | None = None
    """How long after a warning; None: it takes no notice of one."""
    group_seconds: float = 0.0
    """How long others of its group take to end after SIGTERM."""
    term_status: int = -15
    output: bytes = b""
    leftovers: int = 0
    """Processes that it leaves behind for the sweep."""


FOREVER = Life(seconds=None)
STUBBORN = Life(seconds=None, term_seconds=None)


class FakeChild:
    """A process on one machine; `ended` gets its status once."""

    stream = 1
    """Where it prints."""

    def __init__(
        self, machine: FakeMachine, launch: Launch, ended: Callable[[int], None], output: Callable[[int, bytes], None]
    ) -> None:
        machine.pod.pids += 1
        self.pid = 100 + machine.pod.pids
        self.machine = machine
        self.launch = launch
        self.marks: RunMarks | None = None
        self.signals: list[int] = []
        self.awaits_group = False
        self.is_paused = False
        self.over = False
        self._ended = ended
        self.output = output

    def live(self, life: Life) -> None:
        self.life = life
        if life.output:
            self.machine.post(0.001, lambda: self.output(self.stream, life.output))
        if life.seconds is not None:
            self.machine.post(life.seconds, lambda: self.die(life.status))

    def signal(self, number: int) -> None:
        if self.over:
            return
        self.signals.append(int(number))
        if number == signal.SIGKILL:
            self.machine.post(0.001, lambda: self.die(-9))
        elif number == signal.SIGTERM and self.life.term_seconds is not None:
            seconds = max(self.life.term_seconds, self.life.group_seconds if self.awaits_group else 0)
            self.machine.post(seconds, lambda: self.die(self.life.term_status))
        elif number in WARNINGS and self.life.warned_seconds is not None:
            self.machine.post(self.life.warned_seconds, lambda: self.die(self.life.term_status))

    def await_group(self) -> None:
        self.awaits_group = True

    def die(self, status: int) -> None:
        """It is gone now; its machine is told a moment later."""
        if not self.over:
            self.over = True
            self.machine.post(0.001, lambda: self._ended(status))


class FakeGuard:
    """Kills what it guards at its moment, or when the agent is gone, whether that stands still or not."""

    def __init__(
        self, machine: FakeMachine, marks: RunMarks, deadline: float, said: Callable[[GuardSaid], None]
    ) -> None:
        self.machine = machine
        self.marks = marks
        self.deadline = deadline
        self.fired: float | None = None
        """The second at which it killed."""
        self.closed = False
        self._said = said
        machine.post(GUARD_START_SECONDS, lambda: self._say("ready"))
        self._wait()

    def until(self, deadline: float) -> None:
        self.deadline = max(deadline, self.deadline)

    def close(self) -> None:
        self.closed = True

    def fire(self) -> None:
        if self.closed or self.fired is not None:
            return
        self.fired = self.machine.world.seconds
        self.machine.post(0.0, lambda: self._say("passed"))
        for child in self.machine.children:
            if child.launch.env.get("A4_RUN") == self.marks.run:
                child.die(-9)

    def die(self) -> None:
        """Somebody kills it."""
        self.closed = True
        self.machine.post(0.0, lambda: self._said("gone"))

    def _wait(self) -> None:
        if self.deadline == math.inf:
            return
        left = self.deadline - self.machine.now()
        if left > 0:
            self.machine.world.clock.after(left, self._wait)
        else:
            self.fire()

    def _say(self, word: GuardSaid) -> None:
        if not self.closed:
            self._said(word)


class FakeReport(FakeChild):
    """`a4-agent report RESULT -o FILE`: where it ends well, the page names the result."""

    def die(self, status: int) -> None:
        *_, result, _, page = self.launch.argv
        if status == 0 and not self.over:
            assert result in self.machine.files
            self.machine.files[page] = f"page of {result}"
        super().die(status)


TOOLS = ("cp", "mv", "ldconfig", "nvidia-smi")


def tool_of(launch: Launch) -> str:
    """The program with which a pod is prepared, or the vendor's script that is sourced; empty for anything else."""
    name = os.path.basename(launch.argv[0])
    if name == "bash" and launch.argv[1].endswith("/vendor-script.sh"):
        return launch.argv[2]
    return name if name in TOOLS else ""


class FakeTool(FakeChild):
    """Where it ends well, a script does what the pod says of it."""

    stream = 2

    def die(self, status: int) -> None:
        tool = tool_of(self.launch)
        if status == 0 and tool.startswith("/"):
            before = dict(self.launch.env)
            after = {name: value for name, value in {**before, **self.machine.pod.scripts[tool]}.items() if value}
            self.output(1, b"\0".join([_env0(before), _env0(after)]))
        super().die(status)


def _env0(env: Mapping[str, str | None]) -> bytes:
    return "".join(f"{name}={value}\0" for name, value in env.items()).encode(errors="surrogateescape")


class FakeSshd(FakeChild):
    """Binds what its configuration names, says so on stderr, and lives until SIGTERM; with `output` it says that and
    ends at once."""

    def live(self, life: Life) -> None:
        self.life = life
        self.config = self.machine.files[self.launch.argv[self.launch.argv.index("-f") + 1]]
        self.bound: set[tuple[str, int]] = set()
        self.machine.post(SSHD_START_SECONDS, self._bind)

    def option(self, name: str) -> str:
        return next(line.split(None, 1)[1] for line in self.config.splitlines() if line.startswith(name + " "))

    def _bind(self) -> None:
        if self.over:
            return
        for line in self.config.splitlines():
            if line.startswith("ListenAddress ") and not self.life.output:
                address, _, port = line.split()[1].rpartition(":")
                self._listen(address, int(port))
        if self.life.output or not self.bound:
            self._say(self.life.output.decode() or "Cannot bind any address.")
            self.die(255)
        elif self.life.seconds is not None:
            self.machine.post(self.life.seconds, lambda: self.die(self.life.status))

    def _listen(self, address: str, port: int) -> None:
        if address in self.machine.pod.busy:
            self._say(f"Bind to port {port} on {address} failed: Address already in use.")
        else:
            self.bound.add((address, port))
            self._say(f"Server listening on {address} port {port}.")

    def _say(self, line: str) -> None:
        self.machine.post(0.0, lambda: self.output(2, line.encode() + b"\r\n"))
