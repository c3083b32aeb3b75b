"""Threads for calls that block: name look-ups and SSH handshakes, and work that may hang, with a deadline."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from agent.machine.loop import AGAIN_SECONDS, Action, Loop, result_of


class Workers:
    """Up to `most` daemon threads, each there while there is work; results come back through the loop."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._lock = threading.Lock()
        self._queue: deque[Callable[[], Action]] = deque()
        self._threads = 0

    def submit(self, work: Callable[[], Action]) -> None:
        """Run `work` in a thread; the action that it returns runs in the loop."""
        with self._lock:
            self._queue.append(work)
            if self._threads == self._most:
                return
            self._threads += 1
        self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        except RuntimeError:  # no more threads in this pod
            self._loop.later(AGAIN_SECONDS, self._start)

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    return
                work = self._queue.popleft()
            self._loop.post(result_of(work))


def in_time(jobs: Sequence[Callable[[], None]], most: int, deadline: float) -> None:
    """Run jobs, up to `most` at once, until all are over or `deadline` (monotonic) has come.

    Those that are not over by then are left behind in their threads, and none is begun any more.
    """
    # Threads share it without a lock, because `next` of a list's iterator is atomic under the GIL.
    waiting = iter(jobs)

    def serve() -> None:
        while time.monotonic() < deadline and (job := next(waiting, None)) is not None:
            job()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(most, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
