"""Running the agent's loop in a test, and waiting for what only the kernel can tell."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent.machine.loop import Loop

DEADLINE_SECONDS = 150.0


def run(loop: Loop) -> None:
    """Until `loop.stop()`; fails when that does not come."""

    def too_late() -> None:
        raise AssertionError(f"nothing stopped the loop within {DEADLINE_SECONDS:.0f} s")

    timer = loop.later(DEADLINE_SECONDS, too_late)
    try:
        loop.run()
    finally:
        timer.cancel()


def wait_until(happened: Callable[[], bool]) -> None:
    """For states that send no event, such as a process of somebody else that ends."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
