"""Signals to the processes of a run: who gets them, and when they are over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.decide.run_marks import group_of
from agent.machine.api import RunMarks
from agent.machine.loop import Loop
from agent.machine.run_processes import tell
from tests.machine.waiting import run as until_stopped
from tests.machine.waiting import wait_until

ENV = {"PATH": "/usr/bin:/bin"}
RANK = {"OMPI_COMM_WORLD_RANK": "3"}
NEVER = 3600.0
PROGRAM = """
import os, signal, subprocess, sys, threading
how = sys.argv[1]
if how == "handles":
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
if how == "waits":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
if how == "saves":
    def save(*_):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
        sys.exit(6 if subprocess.run(["sleep", "0.3"]).returncode else 9)
    signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
if how == "waits":
    threading.Thread(target=lambda: (signal.sigwait([signal.SIGUSR1]), os._exit(8))).start()
while True:
    signal.pause()
"""


class Started:
    """Processes of one run; what is left of them ends with the test."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.group = group_of(run_id)
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, how: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        env = {**ENV, "A4_RUN": self.run_id, **(env or {})}
        argv = [sys.executable, "-c", PROGRAM, how]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, extra_groups=[self.group])
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        self.processes.append(process)
        return process

    def statuses(self) -> list[int | None]:
        return [process.poll() for process in self.processes]


@pytest.fixture
def started(run_id: str) -> Iterator[Started]:
    made = Started(run_id)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def told(
    run: str | RunMarks, number: int, variable: str = "", seconds: float = NEVER, started: Started | None = None
) -> None:
    """Until the processes are over, or the time is. `run`: its marks, or its id, which is then the only one."""
    loop = Loop()
    overs: list[bool] = []

    def over() -> None:
        overs.append(True)
        loop.stop()

    def reap() -> None:
        if started is not None:
            started.statuses()  # we are their parent, unlike the agent
        loop.later(0.02, reap)

    tell(loop, RunMarks(run) if isinstance(run, str) else run, number, variable, seconds, over)
    reap()
    until_stopped(loop)
    assert overs == [True]


def test_sigterm_reaches_every_process_of_the_run(started: Started) -> None:
    started("plain"), started("plain", RANK)
    told(started.run_id, signal.SIGTERM, started=started)
    assert started.statuses() == [-signal.SIGTERM] * 2


def test_of_ranks_only_those_are_told_and_waited_for_that_have_their_variable(started: Started) -> None:
    started("plain"), started("plain", RANK), started("plain", {"MY_OMPI_COMM_WORLD_RANK": "3"})
    told(started.run_id, signal.SIGTERM, "OMPI_COMM_WORLD_RANK", started=started)
    assert started.statuses() == [None, -signal.SIGTERM, None]


def test_a_rank_whose_environment_is_gone_is_known_by_the_kernels_mark(started: Started) -> None:
    """Launchers keep A4_RUN."""
    started("plain"), started("plain", {"A4_RUN": "overwritten"})
    told(RunMarks(started.run_id, group=started.group), signal.SIGTERM, "OMPI_COMM_WORLD_RANK", started=started)
    assert started.statuses() == [None, -signal.SIGTERM]


def test_other_signals_reach_only_those_that_handle_or_await_them(started: Started) -> None:
    started("handles"), started("waits"), started("plain")
    told(started.run_id, signal.SIGUSR1, seconds=0.3)
    wait_until(lambda: started.statuses() == [7, 8, None])


def test_nobody_is_told_twice_and_nobody_who_begins_later(started: Started) -> None:
    """It may be what saves a rank's state."""
    started("saves")
    told(started.run_id, signal.SIGTERM, started=started)
    assert started.statuses() == [9]


def test_a_run_without_such_processes_is_over_at_once(run_id: str) -> None:
    told(run_id, signal.SIGTERM)
    told(run_id, signal.SIGTERM, "OMPI_COMM_WORLD_RANK")


def test_who_does_not_end_is_waited_for_no_longer_than_that(started: Started) -> None:
    started("handles")
    told(started.run_id, signal.SIGUSR2, seconds=0.1)
    assert started.statuses() == [None]
