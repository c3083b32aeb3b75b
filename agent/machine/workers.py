"""A few threads for calls that block: name look-ups and SSH handshakes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from agent.machine.loop import Action, Loop


class Workers:
    """Up to `most` daemon threads, started as they are needed; results come back through the loop."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._queue: queue.SimpleQueue[Callable[[], Action]] = queue.SimpleQueue()
        self._threads = 0
        self._waiting = 0

    def submit(self, work: Callable[[], Action]) -> None:
        """Run `work` in a thread; the action that it returns runs in the loop."""
        self._waiting += 1
        self._queue.put(work)
        if self._threads < min(self._most, self._waiting):
            self._threads += 1
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            action = result_of(self._queue.get())
            self._loop.post(self._done)
            self._loop.post(action)

    def _done(self) -> None:
        self._waiting -= 1


def result_of(work: Callable[[], Action]) -> Action:
    """What `work` returns; where it fails, an action that raises that in the loop."""
    try:
        return work()
    except Exception as error:
        bug = error

        def raise_in_loop() -> None:
            raise bug  # a bug must end the agent, not vanish with a thread

        return raise_in_loop
