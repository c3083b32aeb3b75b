"""The supervisor's event loop: descriptors, timers, one thread.

asyncio would do, but its import alone costs more than building two pods.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections.abc import Callable

Callback = Callable[[], None]


class Loop:
    """Calls back when a descriptor is ready or a time has come."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._running = False

    def add_reader(self, file: int | socket.socket, callback: Callback) -> None:
        self._selector.register(file, selectors.EVENT_READ, (callback, None))

    def set_writer(self, file: int | socket.socket, callback: Callback | None) -> None:
        """Call back also (or with None: no longer) when a registered file can be written."""
        read, _ = self._selector.get_key(file).data
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if callback else 0)
        self._selector.modify(file, events, (read, callback))

    def remove(self, file: int | socket.socket) -> None:
        self._selector.unregister(file)

    def call_later(self, seconds: float, callback: Callback) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        """Serve until `stop` is called."""
        self._running = True
        while self._running:
            self._run_due()
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, events in self._selector.select(wait):
                # An earlier callback of this round may have removed the file.
                if self._running and self._selector.get_map().get(key.fd) is key:
                    read, write = key.data
                    if events & selectors.EVENT_READ:
                        read()
                    elif write:
                        write()

    def _run_due(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
