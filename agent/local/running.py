"""A command in a pod as its caller holds it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import IO

from agent.local.calls import expect
from agent.local.channel import Conversation


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
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        """End the command, if it still runs, as the loss of a terminal would."""
        for file in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                file.close()
        self._conversation.close()

    def signal(self, number: int) -> None:
        """Send a signal to the command."""
        self._conversation.send({"signal": int(number)})

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; TimeoutError after `timeout` seconds."""
        if self.code is None:
            self._conversation.socket.settimeout(timeout)
            self.code = int(expect(self._conversation)["code"])
        return self.code

    def communicate(self, content: bytes | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Feed its stdin, wait for its end, return what it has printed; kill it after `timeout`."""
        pieces: dict[str, bytes] = {}

        def drain(name: str, file: IO[bytes]) -> None:
            pieces[name] = file.read()

        readers = [
            threading.Thread(target=drain, args=("out", self.stdout), daemon=True),
            threading.Thread(target=drain, args=("err", self.stderr), daemon=True),
            threading.Thread(target=self._feed, args=(content or b"",), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            self.wait(timeout)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            raise
        for reader in readers:
            reader.join()
        return pieces["out"].decode(errors="replace"), pieces["err"].decode(errors="replace")

    def _feed(self, content: bytes) -> None:
        with contextlib.suppress(OSError):
            self.stdin.write(content)
        self.stdin.close()
