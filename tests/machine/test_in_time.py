"""Work that may hang, in threads with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from agent.machine.workers import in_time


def test_a_job_that_hangs_does_not_hold_up_the_others() -> None:
    release, looked = threading.Event(), list[int]()

    def hangs() -> None:
        release.wait()

    others: list[Callable[[], None]] = [*(partial(looked.append, n) for n in range(20)), release.set]
    try:
        in_time([hangs], 1, time.monotonic() + 0.1)
        assert looked == [] and not release.is_set()
        in_time([hangs, *others], 2, time.monotonic() + 60)
    finally:
        release.set()
    assert looked == list(range(20))
    in_time([], 4, time.monotonic() + 60)
