"""A command in a container, with the methods of subprocess.Popen that are needed."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from contextlib import suppress
from types import TracebackType
from typing import IO

from agent.workbench.local.channel import Conversation, Message


class Command:
    """Closing it while it runs sends SIGHUP to it and all that it has started, as the loss of a terminal would."""

    def __init__(self, conversation: Conversation, asked: Message, piped: bool, terminal: bool) -> None:
        """It has pipes, a terminal, or /dev/null."""
        self._conversation = conversation
        self._given: list[int] = []
        """Ends of pipes that are the command's."""
        self.returncode: int | None = None
        """128 + n after signal n."""
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.terminal = -1
        try:
            conversation.send(asked, [] if terminal else self._pipes() if piped else self._silence())
            if terminal:
                self._take_terminal()
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in self._given:
                os.close(descriptor)

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pipes(self) -> list[int]:
        ends = [os.pipe() for _ in range(3)]
        self._given += [ends[0][0], ends[1][1], ends[2][1]]
        self.stdin = os.fdopen(ends[0][1], "wb", buffering=0)
        self.stdout, self.stderr = (os.fdopen(read, "rb", buffering=0) for read, _ in ends[1:])
        return self._given

    def _silence(self) -> list[int]:
        self._given += [os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)]
        return self._given * 3

    def _take_terminal(self) -> None:
        message = self._conversation.expect()
        if "code" in message:
            self.returncode = message["code"]
        else:
            self.terminal = self._conversation.descriptors.pop()

    def resize(self, rows: int, columns: int) -> None:
        """The kernel tells the programs on the terminal."""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """With `group` to all that the command has started in its own session. Nothing if it has ended."""
        if self.poll() is None:
            with suppress(OSError):
                self._conversation.send({"signal": int(number), "group": group})

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL, group=True)

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        try:
            return self.wait(0)
        except (TimeoutError, BlockingIOError):
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; TimeoutError after `timeout` seconds."""
        if self.returncode is None:
            self._conversation.socket.settimeout(timeout)
            self.returncode = int(self._conversation.expect()["code"])
        return self.returncode

    def close(self) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file:
                with suppress(OSError):
                    file.close()
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1
        self._conversation.close()
