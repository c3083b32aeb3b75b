"""What becomes of work beside the loop where this process can start no more threads."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import pytest

from agent.machine.host import Host
from agent.machine.loop import Loop
from agent.machine.workers import Workers


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def without_threads() -> Iterator[None]:
    """The system refuses a thread whose stack has no room."""
    before = threading.stack_size(1 << 46)
    yield
    threading.stack_size(before)


def test_work_aside_is_refused(loop: Loop, without_threads: None) -> None:
    refused: list[int | None] = []
    host = Host(loop)
    host.aside(lambda: 1, lambda found: pytest.fail("there was a thread"), lambda why: refused.append(why.errno))
    assert not refused, "never from inside the call"
    host.later(0.0, loop.stop)
    loop.run()
    assert refused == [errno.EAGAIN]


def test_a_process_that_cannot_be_asked_says_nothing(loop: Loop, without_threads: None) -> None:
    told: list[str] = []

    def done(answer: str) -> None:
        told.append(answer)
        loop.stop()

    Host(loop).ask_process(["/bin/echo", "words"], "/", 5.0, done)
    loop.run()
    assert told == [""]


def test_workers_wait_for_a_thread(loop: Loop) -> None:
    before = threading.stack_size(1 << 46)
    try:
        Workers(loop, 2).submit(lambda: loop.stop)
    finally:
        threading.stack_size(before)
    loop.run()
