"""Work that may hang, in threads with a deadline."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

Job = Callable[[], None]


def in_time(jobs: Sequence[Job], most: int, deadline: float) -> bool:
    """Run jobs, up to `most` at once, until `deadline` (monotonic); False when some are not over by then.

    Those are left behind in their threads.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def serve() -> None:
        with suppress(queue.Empty):
            while time.monotonic() < deadline:
                waiting.get_nowait()()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(most, len(jobs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return waiting.empty() and not any(thread.is_alive() for thread in threads)
