"""A command in a pod as its caller holds it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from typing import IO

from agent.workbench.local.channel import Conversation

_PIECE = 65536


class Running:
    """A command that runs in a pod."""

    def __init__(self, begin: Callable[[Sequence[int]], Conversation]) -> None:
        self.code: int | None = None
        stdin, stdin_end = os.pipe()
        out_end, stdout = os.pipe()
        err_end, stderr = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(stdin_end, "wb", buffering=0)
        self.stdout: IO[bytes] = os.fdopen(out_end, "rb")
        self.stderr: IO[bytes] = os.fdopen(err_end, "rb")
        try:
            self._conversation = begin((stdin, stdout, stderr))
        except BaseException:
            self._close_files()
            raise
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        """End the command, if it still runs, as the loss of a terminal would."""
        self._close_files()
        self._conversation.close()

    def _close_files(self) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                file.close()

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the command, with `group` to all that it has started in its own session."""
        self._conversation.send({"signal": int(number), "group": group})

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; TimeoutError after `timeout` seconds."""
        if self.code is None:
            self._conversation.socket.settimeout(timeout)
            self.code = int(self._conversation.expect()["code"])
        return self.code

    def communicate(self, content: bytes = b"", timeout: float | None = None) -> tuple[str, str]:
        """Feed its stdin, wait for its end and that of its output, return that.

        After `timeout` seconds it is killed with all of its group, and TimeoutError raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            out, err = self._exchange(content, deadline)
            self.wait(_left(deadline))
        except TimeoutError:
            self.signal(signal.SIGKILL, group=True)
            self.wait()
            raise
        return out, err

    def _exchange(self, content: bytes, deadline: float | None) -> tuple[str, str]:
        found = {self.stdout: bytearray(), self.stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            for file in found:
                selector.register(file, selectors.EVENT_READ)
            os.set_blocking(self.stdin.fileno(), False)
            selector.register(self.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                ready = selector.select(_left(deadline))
                if not ready and deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError("the command in the pod takes too long")
                for key, _ in ready:
                    if key.fileobj is self.stdin:
                        content = self._feed(selector, content)
                    elif piece := os.read(key.fd, _PIECE):
                        found[key.fileobj] += piece  # type: ignore[index]
                    else:
                        selector.unregister(key.fileobj)
        out, err = (bytes(piece).decode(errors="replace") for piece in found.values())
        return out, err

    def _feed(self, selector: selectors.BaseSelector, content: bytes) -> bytes:
        """Write what fits, return the rest; close stdin when there is none or nobody reads."""
        try:
            content = content[os.write(self.stdin.fileno(), content[:_PIECE]) :]
        except BlockingIOError:
            return content
        except BrokenPipeError:
            content = b""
        if not content:
            selector.unregister(self.stdin)
            self.stdin.close()
        return content


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
