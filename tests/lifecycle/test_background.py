"""The shared directory for a process that waits for each thing."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent.errors import PeerLost
from agent.lifecycle.sharing.background import Background
from agent.lifecycle.sharing.claim_files import claim_directory, term_file
from tests.machine.waiting import wait_until

LONG_LEASE = 120.0


@pytest.fixture
def shared() -> Iterator[str]:
    """A directory on a mount of its own."""
    path = tempfile.mkdtemp(dir="/dev/shm")
    yield path
    shutil.rmtree(path)


@contextmanager
def background(directory: str, said: list[str] | None = None, lease: float = LONG_LEASE) -> Iterator[Background]:
    made = Background(directory, "a test", lease, (said or []).append, pytest.fail)
    try:
        yield made
    finally:
        made.close()


def test_what_one_writes_the_other_finds(shared: str) -> None:
    with background(shared) as one, background(shared) as other:
        one.open()
        one.put("seen", "job", "run-1\n")
        assert other.find("seen", "job", "run-1\n", 60.0)
        assert not other.find("seen", "job", "run-2\n", 0.0), "that of an earlier run"
        one.remove("seen", "job")
        assert other.read("seen", "job") == ""


def test_a_claim_is_given_back_whatever_ends_its_holder(shared: str) -> None:
    with background(shared) as one, background(shared) as other:
        with pytest.raises(ZeroDivisionError), one.claim("x", pytest.fail) as held:
            assert held.until() > time.monotonic()
            raise ZeroDivisionError
        with other.claim("x", pytest.fail):
            pass


def test_what_a_silent_holder_has_is_taken_over_after_a_lease(shared: str) -> None:
    with background(shared) as gone, background(shared, lease=1.0) as other:
        gone.put(claim_directory("x"), term_file(1), "one that died\n")
        began = time.monotonic()
        with other.claim("x", list[str]().append):
            assert time.monotonic() - began > 1.0
            assert gone.read(claim_directory("x"), term_file(1)) == "one that died\n"


def test_who_has_lost_it_is_told_and_refused(shared: str) -> None:
    lost: list[str] = []
    with background(shared, lease=18.0) as one, one.claim("x", lost.append) as held:
        one.put(claim_directory("x"), term_file(2), "another\n")
        with pytest.raises(PeerLost, match="another pod has taken over the claim x"):
            held.until()
        with pytest.raises(PeerLost):
            held.until()
        wait_until(lambda: bool(lost))
    assert lost == ["another pod has taken over the claim x"]
