"""Runs whose processes are ended with the test."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.decide.run_marks import group_of, own_cgroup
from agent.machine.api import RunMarks
from agent.machine.run_processes import known, make_cgroup, marked, remove_cgroup, send_signal
from tests.machine.waiting import wait_until


@pytest.fixture
def run_id() -> Iterator[str]:
    """A mark of this test alone; whatever still carries it is ended."""
    name = f"test-{uuid.uuid4()}"
    yield name
    for suffix in ("", "1"):
        for pid in marked(name + suffix).pids:
            send_signal(pid, signal.SIGKILL)


@pytest.fixture
def cgroup(run_id: str) -> Iterator[str]:
    """A cgroup of this test alone."""
    own = own_cgroup(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    path = f"{own}/a4-{run_id}"
    if not own or not make_cgroup(path):
        pytest.fail("no cgroup of version 2 can be made: run this as root, with cgroup2 mounted rw", pytrace=False)
    yield path
    for pid in known(RunMarks(run_id, 0, path)):
        send_signal(pid, signal.SIGKILL)
    wait_until(lambda: remove_cgroup(path))


@pytest.fixture
def group(run_id: str) -> Iterator[int]:
    group = group_of(run_id)
    yield group
    for pid in known(RunMarks(run_id, group)):
        send_signal(pid, signal.SIGKILL)
