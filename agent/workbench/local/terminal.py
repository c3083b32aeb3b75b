"""`a4-agent local exec`: a command in a pod on this process's own streams or on this terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType

from agent.errors import SystemFault, UsageError
from agent.workbench.local.channel import Conversation
from agent.workbench.local.client import LocalCluster
from agent.workbench.local.foreground import write_all

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_plain(cluster: LocalCluster, index: int, argv: Sequence[str]) -> int:
    """The command gets this process's stdin, stdout and stderr, and the signals sent to this process."""
    with contextlib.closing(cluster.exec_with(index, argv, (0, 1, 2))) as conversation:

        def forward(number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):  # that the cluster has ended is told below
                conversation.send({"signal": number})

        for number in _FORWARDED:
            signal.signal(number, forward)
        return _code(conversation)


def run_on_terminal(cluster: LocalCluster, index: int, argv: Sequence[str]) -> int:
    """The command gets a terminal of the pod's, and this terminal shows and feeds it."""
    env = {"TERM": os.environ.get("TERM", "xterm")}
    with contextlib.closing(cluster.exec_on_terminal(index, argv, env)) as conversation:
        conversation.expect()
        if not conversation.descriptors:
            raise SystemFault("the pod gave no terminal")
        master = conversation.descriptors[0]

        def resize(number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(master, termios.TIOCSWINSZ, size)

        signal.signal(signal.SIGWINCH, resize)
        resize(0, None)
        with _raw_terminal():
            _copy(master)
        return _code(conversation)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the pod, Ctrl-C too."""
    if not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    # Not TCSAFLUSH, the default: what was typed ahead is meant for the pod.
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _copy(master: int) -> None:
    """Until nothing has the pod's terminal open any more, which reads as an error."""
    os.set_blocking(master, False)
    typed, more = b"", True
    while True:
        # What was typed waits until the terminal takes it, while what the pod prints goes on.
        sources = [0, master] if more and not typed else [master]
        ready, takes, _ = select.select(sources, [master] if typed else [], [])
        if takes:
            with contextlib.suppress(OSError):  # that it has gone is read
                typed = typed[os.write(master, typed) :]
        if master in ready:
            try:
                data = os.read(master, 65536)
            except BlockingIOError:
                continue
            except OSError:
                return
            write_all(1, data)
        if 0 in ready:
            typed = os.read(0, 65536)
            if not typed:
                more, typed = False, b"\x04"  # Ctrl-D: what the end of input is on a terminal


def _code(conversation: Conversation) -> int:
    message = conversation.read()
    if message is None:
        print("the local cluster has ended", file=sys.stderr)
        return 128 + signal.SIGKILL
    if "error" in message:
        raise UsageError(message["what"], message["hint"])
    return int(message["code"])
