"""Programs that prepare a pod: each has a limit, says what it waits for, and what it says itself is kept."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence

from agent.errors import SystemFault
from agent.launch import Launch
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import Child

MOST_WORDS = 4000
"""How many bytes of a program's stderr are kept."""


class Tool:
    """A program that was started; `title` says in words what for."""

    def __init__(self, title: str, seconds: float, hint: str = "", late_hint: str = "") -> None:
        self.title = title
        self.seconds = seconds
        """Its limit."""
        self.hint = hint
        """What to do when it fails."""
        self.late_hint = late_hint
        """What to do when it does not end in time."""
        self.answer = bytearray()
        """Its stdout."""
        self.words = bytearray()
        """The end of its stderr."""
        self.child: Child | None = None
        self.over = False

    def output(self, stream: int, data: bytes) -> None:
        if stream == 1:
            self.answer += data
        else:
            self.words = (self.words + data)[-MOST_WORDS:]

    @property
    def last_words(self) -> str:
        lines = self.words.decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-4:]) or "it said nothing"


Ended = Callable[[Tool, int], None]


def start_tool(
    pod: Pod, tool: Tool, argv: Sequence[str], env: Mapping[str, str], ended: Ended, late: Callable[[Tool], None]
) -> None:
    """`ended` gets its status; `late` is told instead when its time is up, and it is gone. Raises SystemFault."""
    machine = pod.machine
    # A missing program is started by its bare name, so that the error says that.
    program = machine.find_program(argv[0], pod.known.search_path) or argv[0]

    def over(status: int) -> None:
        if not tool.over:
            tool.over = True
            ended(tool, status)

    def give_up() -> None:
        if not tool.over:
            tool.over = True
            assert tool.child is not None
            tool.child.signal(signal.SIGKILL)
            late(tool)

    def say() -> None:
        if not tool.over:
            pod.log.info(f"preparing: waiting for {tool.title}, {tool.seconds:g} s at most")

    try:
        tool.child = machine.start(Launch([program, *argv[1:]], env, "/"), over, tool.output)
    except (OSError, ValueError) as error:
        raise SystemFault(f"{tool.title}: {argv[0]} cannot be started: {error}") from error
    # The log says what the pod waits for. Most programs have ended by then.
    machine.later(3.0, say)
    machine.later(tool.seconds, give_up)


def check(tool: Tool, status: int) -> None:
    """Raises SystemFault unless it ended well."""
    if status:
        raise SystemFault(f"{tool.title} failed with status {status}: {tool.last_words}", tool.hint)


def too_late(tool: Tool) -> None:
    """Raises SystemFault."""
    raise SystemFault(f"{tool.title} has not ended within {tool.seconds:g} s: {tool.last_words}", tool.late_hint)
