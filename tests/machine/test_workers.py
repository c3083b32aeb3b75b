"""Work beside the loop: in a number of threads, with a deadline, and where no more threads can be started."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from agent.machine.host import Host
from agent.machine.loop import Action, Loop
from agent.machine.workers import Workers, in_time
from tests.machine.waiting import DEADLINE_SECONDS, run


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


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_workers_are_bounded_and_all_work_is_done(loop: Loop) -> None:
    seen: list[int] = []
    workers = Workers(loop, 3)
    lock, inside, most = threading.Lock(), [0], [0]
    three = threading.Barrier(3)

    def done(number: int) -> None:
        seen.append(number)
        if len(seen) == 12:
            loop.stop()

    def work(number: int) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        three.wait(DEADLINE_SECONDS)  # so that three are inside at once, and a fourth would be seen
        with lock:
            inside[0] -= 1

    def task(number: int) -> Callable[[], Action]:
        def submitted() -> Action:
            work(number)
            return lambda: done(number)

        return submitted

    for number in range(12):
        workers.submit(task(number))
    run(loop)
    assert sorted(seen) == list(range(12))
    assert most == [3]


# No more threads


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
    run(loop)
    assert refused == [errno.EAGAIN]


def asked(loop: Loop) -> list[str]:
    """What an answer of `words` becomes."""
    told: list[str] = []

    def done(answer: str) -> None:
        told.append(answer)
        loop.stop()

    Host(loop).ask_process(["/bin/echo", "words"], "/", DEADLINE_SECONDS, done)
    assert not told, "never from inside the call"
    run(loop)
    return told


def test_a_process_is_asked(loop: Loop) -> None:
    assert asked(loop) == ["words"]


def test_a_process_that_cannot_be_asked_says_nothing(loop: Loop, without_threads: None) -> None:
    assert asked(loop) == [""]


def test_workers_wait_for_a_thread(loop: Loop, without_threads: None) -> None:
    Workers(loop, 2).submit(lambda: loop.stop)
    threading.stack_size(0)
    run(loop)
