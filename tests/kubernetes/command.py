"""A command in a container, with the methods of subprocess.Popen that are needed."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
from contextlib import suppress
from types import TracebackType
from typing import IO

from agent.local.channel import Conversation, Message

Stream = int | IO[bytes] | None


class Command:
    """Closing it while it runs sends SIGHUP to it and all that it has started, as the loss of a terminal would."""

    def __init__(
        self, conversation: Conversation, asked: Message, streams: tuple[Stream, Stream, Stream] | None
    ) -> None:
        """Without streams it has a terminal."""
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
            conversation.send(asked, self._streams(*streams) if streams else [])
            if not streams:
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

    def _streams(self, stdin: Stream, stdout: Stream, stderr: Stream) -> list[int]:
        found = []
        if stdin == subprocess.PIPE:
            read, write = self._pipe()
            self.stdin = os.fdopen(write, "wb", buffering=0)
            found.append(read)
        else:
            found.append(self._descriptor(stdin))
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            if stream == subprocess.STDOUT:
                found.append(found[-1])
            elif stream == subprocess.PIPE:
                read, write = self._pipe(ours_reads=True)
                setattr(self, name, os.fdopen(read, "rb", buffering=0))
                found.append(write)
            else:
                found.append(self._descriptor(stream))
        return found

    def _pipe(self, ours_reads: bool = False) -> tuple[int, int]:
        read, write = os.pipe()
        self._given.append(write if ours_reads else read)
        return read, write

    def _descriptor(self, stream: Stream) -> int:
        if stream is None or stream == subprocess.DEVNULL:
            self._given.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            return self._given[-1]
        return stream if isinstance(stream, int) else stream.fileno()

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
