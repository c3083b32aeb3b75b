"""Work that may hang, in threads with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


def in_time(jobs: Sequence[Callable[[], None]], most: int, deadline: float) -> None:
    """Run jobs, up to `most` at once, until all are over or `deadline` (monotonic) has come.

    Those that are not over by then are left behind in their threads, and none is begun any more.
    """
    waiting = iter(jobs)

    def serve() -> None:
        while time.monotonic() < deadline and (job := next(waiting, None)) is not None:
            job()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(most, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
