"""Runs whose processes are ended with the test."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

from agent.machine.run_processes import marked, send_signal


@pytest.fixture
def run_id() -> Iterator[str]:
    """A mark of this test alone; whatever still carries it is ended."""
    name = f"test-{uuid.uuid4()}"
    yield name
    for suffix in ("", "1"):
        for pid in marked(name + suffix).pids:
            send_signal(pid, signal.SIGKILL)
