"""The guard of a run kills what carries its marks when its moment comes or its agent is gone, and nothing else."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from agent.machine.api import GuardSaid, RunMarks
from agent.machine.guarding import Guarding
from agent.machine.loop import Loop
from agent.machine.process import stat_of
from agent.machine.run_processes import known, marked
from tests.machine.test_run_processes import LEFTOVERS, UNMARKED, leave, marks_by
from tests.machine.waiting import run, wait_until

ROOT = Path(__file__).parents[2]
PATH = os.environ["PATH"]
TRIES = [2.0, 8.0, 32.0]
"""Seconds in which a machine has to come to something: where it is too slow for that, it gets more."""
AGENT = """
import sys, time
from agent.machine.api import RunMarks
from agent.machine.guarding import Guarding
from agent.machine.loop import Loop

run, group, cgroup, seconds = sys.argv[1:]
loop = Loop()

def move():
    guard.until(time.monotonic() + float(seconds))
    loop.later(0.05, move)

marks = RunMarks(run, int(group), cgroup)
guard = Guarding(loop, marks, time.monotonic() + float(seconds), lambda word: print(word, flush=True))
move()
loop.run()
"""
"""An agent that hears of later and later moments."""


class Guarded:
    """A guard as its agent sees it."""

    def __init__(self, marks: RunMarks, deadline: float) -> None:
        self.loop = Loop()
        self.words: list[GuardSaid] = []
        self.guard = Guarding(self.loop, marks, deadline, self._said)

    def _said(self, word: GuardSaid) -> None:
        self.words.append(word)
        self.loop.stop()

    def hear(self, word: GuardSaid) -> None:
        while word not in self.words:
            run(self.loop)

    def signal(self, number: int) -> None:
        os.kill(self.guard.pid, number)

    def close(self) -> None:
        self.guard.close()
        while os.path.exists(f"/proc/{self.guard.pid}"):
            self.loop.later(0.01, self.loop.stop)
            run(self.loop)
        self.loop.close()


Guards = Callable[[RunMarks, float], Guarded]


@pytest.fixture
def guards() -> Iterator[Guards]:
    made: list[Guarded] = []

    def make(marks: RunMarks, deadline: float) -> Guarded:
        made.append(Guarded(marks, deadline))
        made[-1].hear("ready")
        return made[-1]

    yield make
    for one in made:
        one.close()


def found(marks: RunMarks) -> set[int]:
    return known(marks) | marked(marks.run).pids


def leave_one(marks: RunMarks, directory: Path, kind: str = "in a session of its own") -> None:
    """A process with these marks is left behind, with what belongs to it."""
    script, count = (LEFTOVERS | UNMARKED)[kind]
    leave(marks, script, directory, {} if marks.group or marks.cgroup else {"A4_RUN": marks.run})
    wait_until(lambda: len(found(marks)) == count)


@pytest.mark.parametrize(
    ("mark", "kind"), [*product(["cgroup", "group"], LEFTOVERS | UNMARKED), *product(["A4_RUN"], LEFTOVERS)]
)
def test_all_with_the_mark_are_killed_when_the_moment_comes(
    mark: str, kind: str, run_id: str, tmp_path: Path, guards: Guards, request: pytest.FixtureRequest
) -> None:
    marks = marks_by(mark, run_id, request)
    leave_one(marks, tmp_path, kind)
    guarded = guards(marks, time.monotonic())
    guarded.hear("passed")
    wait_until(lambda: not found(marks))


def test_what_begins_after_that_is_killed_until_the_agent_says_that_nothing_is_left(
    run_id: str, group: int, tmp_path: Path, guards: Guards
) -> None:
    marks = RunMarks(run_id, group)
    guarded = guards(marks, time.monotonic())
    guarded.hear("passed")
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        leave(marks, "setsid sleep 1000 &", tmp_path / str(number))
        wait_until(lambda: not found(marks))
    guarded.close()
    leave_one(marks, tmp_path)
    assert "gone" not in guarded.words


def test_others_live(run_id: str, group: int, tmp_path: Path, guards: Guards) -> None:
    """A longer mark, the mark in an argument or another variable, no mark, the group of another run; and the guard."""
    marks, mark = RunMarks(run_id, group), f"A4_RUN={run_id}"
    environments = [{"A4_RUN": f"{run_id}1"}, {"OTHER": mark}, {"MY_A4_RUN": run_id}, {}]
    others = [subprocess.Popen(["sleep", "1000"], env={"PATH": PATH, **env}) for env in environments]
    others.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", mark], env={"PATH": PATH}))
    others.append(subprocess.Popen(["sleep", "1000"], env={"PATH": PATH}, extra_groups=[group + 1, group // 10]))
    leave_one(marks, tmp_path)
    try:
        guarded = guards(marks, math.inf)
        guarded.guard.until(time.monotonic())  # an earlier one: only later ones count
        assert guarded.guard.pid not in found(marks)
        os.kill(guarded.guard.pid, signal.SIGTERM)
        guards(marks, time.monotonic()).hear("passed")
        wait_until(lambda: not found(marks))
        assert [other.poll() for other in others] == [None] * 6
        assert guarded.words == ["ready"]
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_moment_that_is_moved_in_time_does_not_come(run_id: str, group: int, tmp_path: Path, guards: Guards) -> None:
    """Another guard, whose moment is not moved, says when it would have come."""
    for seconds in TRIES:
        moved, marks = RunMarks(f"{run_id}1", group + 1), RunMarks(run_id, group)
        for number, one in enumerate((moved, marks)):
            (tmp_path / f"{seconds}-{number}").mkdir()
            leave_one(one, tmp_path / f"{seconds}-{number}")
        deadline = time.monotonic() + seconds
        guarded, other = guards(moved, deadline), guards(marks, deadline)
        guarded.guard.until(deadline + 1000)
        other.hear("passed")
        wait_until(lambda marks=marks: not found(marks))  # type: ignore[misc]
        lives = bool(found(moved))
        guarded.signal(signal.SIGTERM)
        guarded.guard.close()
        for pid in found(moved):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda moved=moved: not found(moved))  # type: ignore[misc]
        if lives:
            return
    raise AssertionError("the guard has killed what it should not")


def test_a_guard_that_stood_still_judges_before_it_reads(
    run_id: str, group: int, tmp_path: Path, guards: Guards
) -> None:
    marks = RunMarks(run_id, group)
    for seconds in TRIES:
        if not found(marks):
            leave_one(marks, tmp_path)
        deadline = time.monotonic() + seconds
        guarded = guards(marks, deadline)
        guarded.signal(signal.SIGSTOP)
        wait_until(lambda pid=guarded.guard.pid: stat_of(f"/proc/{pid}")[1][0] == "T")  # type: ignore[misc]
        if time.monotonic() < deadline and found(marks):
            break
        guarded.close()
    else:
        raise AssertionError("the guard could not be stopped in time")
    guarded.guard.until(deadline + 1000)
    wait_until(lambda: time.monotonic() > deadline)
    assert len(found(marks)) == 1
    guarded.signal(signal.SIGCONT)
    guarded.hear("passed")
    wait_until(lambda: not found(marks))


def test_signals_that_end_a_pod_do_not_end_its_guard(run_id: str, group: int, tmp_path: Path, guards: Guards) -> None:
    marks = RunMarks(run_id, group)
    leave_one(marks, tmp_path)
    guarded = guards(marks, math.inf)
    assert os.getsid(guarded.guard.pid) == guarded.guard.pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        guarded.signal(number)
    assert len(found(marks)) == 1
    guarded.guard._stream.close()  # as if this agent had gone
    wait_until(lambda: not found(marks))
    guarded.guard._end()


def test_a_guard_that_is_killed_is_told(run_id: str, guards: Guards) -> None:
    guarded = guards(RunMarks(run_id), math.inf)
    guarded.signal(signal.SIGKILL)
    guarded.hear("gone")


def agent(marks: RunMarks, seconds: float) -> subprocess.Popen[bytes]:
    words = [marks.run, str(marks.group), marks.cgroup, str(seconds)]
    started = subprocess.Popen([sys.executable, "-c", AGENT, *words], cwd=ROOT, stdout=subprocess.PIPE)
    assert started.stdout is not None and started.stdout.readline() == b"ready\n"
    return started


@pytest.mark.parametrize("mark", ["cgroup", "group", "A4_RUN"])
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_an_agent_that_stands_still_or_is_gone(
    mark: str, number: int, run_id: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    marks = marks_by(mark, run_id, request)
    leave_one(marks, tmp_path)
    is_stopped = number == signal.SIGSTOP
    started = agent(marks, 2.0 if is_stopped else 1e6)
    with started:
        try:
            started.send_signal(number)
            wait_until(lambda: not found(marks))
            state, *_ = stat_of(f"/proc/{started.pid}")[1]
            assert state == ("T" if is_stopped else "Z")
        finally:
            started.kill()
