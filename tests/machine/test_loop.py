"""The loop: descriptors, timers, signals, other threads."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from functools import partial

import pytest

from agent.machine.loop import READ, WRITE, Loop
from tests.machine.waiting import run


def test_timers_fire_in_their_order_and_cancelled_ones_never() -> None:
    loop, fired = Loop(), list[int]()

    def fire(number: int) -> None:
        fired.append(number)
        if len(fired) == 4:
            loop.stop()

    loop.later(0.0, partial(fire, -1)).cancel()
    timers = [loop.later(seconds, partial(fire, number)) for number, seconds in enumerate((0.02, 0.01, 0.0, 0.0))]
    run(loop)
    assert fired == sorted(range(4), key=lambda number: timers[number].when)


def test_a_timer_may_cancel_another_that_is_due_too() -> None:
    loop, fired = Loop(), list[str]()
    loop.later(0.0, lambda: other.cancel())
    other = loop.later(0.0, lambda: fired.append("cancelled"))
    loop.later(0.0, loop.stop)
    run(loop)
    assert fired == []


def test_posts_from_many_threads_all_run_each_threads_in_order() -> None:
    loop, seen = Loop(), list[tuple[int, int]]()

    def take(thread: int, number: int) -> None:
        seen.append((thread, number))
        if len(seen) == 8000:
            loop.stop()

    def poster(thread: int) -> None:
        for number in range(1000):
            loop.post(partial(take, thread, number))

    threads = [threading.Thread(target=poster, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    run(loop)
    for i in range(8):
        assert [number for thread, number in seen if thread == i] == list(range(1000))


def test_work_in_a_thread_comes_back_to_the_loop() -> None:
    loop, where = Loop(), list[threading.Thread]()

    def work() -> str:
        where.append(threading.current_thread())
        return "found"

    def done(found: str) -> None:
        assert found == "found"
        where.append(threading.current_thread())
        loop.stop()

    loop.aside(work, done, lambda why: pytest.fail(str(why)))
    run(loop)
    assert where[0] is not where[1] is threading.current_thread()


def test_an_error_goes_to_the_caller_and_the_loop_goes_on() -> None:
    loop, seen = Loop(), list[str]()

    def fail() -> None:
        raise KeyError("x")

    loop.post(fail)
    loop.post(lambda: seen.append("after"))
    with pytest.raises(KeyError):
        run(loop)
    loop.post(loop.stop)
    run(loop)
    assert seen == ["after"]


def test_a_watch_is_replaced_and_forgotten() -> None:
    loop, seen = Loop(), list[str]()
    read, write = os.pipe()

    def readable() -> None:
        seen.append(os.read(read, 10).decode())
        loop.forget(read)
        loop.forget(read)
        os.write(write, b"b")
        loop.later(0.0, loop.stop)

    loop.watch(read, READ, lambda: seen.append("replaced"))
    loop.watch(read, READ, readable)
    os.write(write, b"a")
    run(loop)
    assert seen == ["a"]
    os.close(read)
    os.close(write)


def test_the_two_watches_of_a_descriptor_come_and_go_apart() -> None:
    loop, seen = Loop(), list[str]()
    ours, theirs = socket.socketpair()

    def writable() -> None:
        seen.append("writable")
        loop.forget(ours.fileno(), WRITE)
        theirs.send(b"x")

    def readable() -> None:
        seen.append(ours.recv(1).decode())
        loop.later(0.0, loop.stop)

    with ours, theirs:
        loop.watch(ours.fileno(), READ, readable)
        loop.watch(ours.fileno(), WRITE, writable)
        run(loop)
        loop.forget(ours.fileno(), WRITE)
        loop.forget(ours.fileno())
    assert seen == ["writable", "x"]


def test_a_closed_loop_touches_no_other_file() -> None:
    loop = Loop()
    loop.close()
    read, write = os.pipe2(os.O_NONBLOCK)  # they have the numbers of the loop's own
    try:
        loop.post(loop.stop)
        loop.close()
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    finally:
        os.close(read)
        os.close(write)


def test_a_descriptor_closed_by_an_earlier_callback_is_not_called_for_the_one_that_took_its_number() -> None:
    """Both are ready in the same round; whoever comes first closes the other and opens a new one."""
    loop, seen = Loop(), list[str]()
    pipes = [os.pipe(), os.pipe()]
    opened: list[int] = []

    def ready(mine: int, others: int) -> None:
        seen.append("old")
        loop.forget(mine)
        loop.forget(others)
        opened.extend(os.pipe())
        os.dup2(opened[0], others)
        loop.watch(opened[1], WRITE, new_writable)
        loop.watch(others, READ, lambda: seen.append("new one is not readable"))

    def new_writable() -> None:
        seen.append("new one is writable")
        loop.stop()

    (first, _), (second, _) = pipes
    loop.watch(first, READ, lambda: ready(first, second))
    loop.watch(second, READ, lambda: ready(second, first))
    for _, write in pipes:
        os.write(write, b"x")
    run(loop)
    assert seen == ["old", "new one is writable"]
    for fd in {fd for pipe in pipes for fd in pipe} | set(opened):
        os.close(fd)


SIGNALS = """
import os, signal, sys
from agent.machine.loop import Loop

loop, seen = Loop(), []

def took(number):
    seen.append(signal.Signals(number).name)
    if len(seen) == 2:
        print(*seen)
        loop.stop()
    else:
        os.kill(os.getpid(), signal.SIGINT)

for number in (signal.SIGTERM, signal.SIGINT):
    loop.on_signal(number, took)
print("ready", flush=True)
loop.run()
"""


def test_signals_wake_a_loop_that_waits_for_nothing_else() -> None:
    with subprocess.Popen([sys.executable, "-c", SIGNALS], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.terminate()
        assert child.stdout.readline() == "SIGTERM SIGINT\n"
        assert child.wait() == 0
