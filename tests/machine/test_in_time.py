"""Work that may hang, in threads with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from agent.machine.in_time import in_time


def test_a_look_that_hangs_does_not_hold_up_the_others() -> None:
    release, looked = threading.Event(), list[int]()

    def hangs() -> None:
        release.wait()
        looked.append(-1)

    jobs: list[Callable[[], None]] = [hangs, *(partial(looked.append, n) for n in range(20))]
    try:
        assert not in_time(jobs, 2, time.monotonic() + 0.3)
        assert looked == list(range(20))
    finally:
        release.set()
    assert in_time(jobs, 4, time.monotonic() + 60)
    assert in_time([], 4, time.monotonic() + 60)
