"""The shared directory for a process that waits for each thing, and for several processes of a pod."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.decide.sync.claims import claim_directory, term_file
from agent.decide.sync.facts import Fact, FactPlace, write_fact
from agent.errors import DirectoryUnusable, PeerLost
from agent.lifecycle.sharing.background import Background
from agent.lifecycle.sharing.member import Member
from agent.machine.shared_files import SharedAnswer, SharedCommand, SharedFiles
from agent.settings import Found, read_settings
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
        with pytest.raises(PeerLost, match="another has taken the claim x over"):
            held.until()
        with pytest.raises(PeerLost):
            held.until()
        wait_until(lambda: bool(lost))
    assert lost == ["another has taken the claim x over"]


# A pod whose processes do the same at once


START = "0" * 32
PLACE = FactPlace(".a4-agent/jobs/e", START)


class Interrupted(SharedFiles):
    """After each file that is put, and before it is read again, another process of the pod puts its own."""

    others = ""

    def ask(self, asked: SharedCommand) -> SharedAnswer:
        answer = super().ask(asked)
        verb, *words = asked.words
        return super().ask(SharedCommand((verb, *words[:2], self.others, *words[3:]))) if verb == "put" else answer


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    environ = {"NNODES": "1", "A4_EPOCH": "e", "A4_SHARED_DIR": str(tmp_path), "A4_RUN_DIR": str(tmp_path / "run")}
    member = Member(read_settings(environ, Found())[0], "", (0,), lambda text: None)
    member._files = Interrupted(str(tmp_path), 60.0)
    member._start = START
    yield member
    member.close()


def test_a_fact_that_another_process_has_set_meanwhile_is_set(member: Member) -> None:
    assert isinstance(member._files, Interrupted)
    member._files.others = write_fact(Fact("x", 0, host="pod", time=7.0), PLACE)
    assert member.put(Fact("x", 0)).code == 0


@pytest.mark.parametrize(
    "others", ["", "torn", write_fact(Fact("x", 1), PLACE), write_fact(Fact("x", 0), FactPlace("j", "s"))]
)
def test_what_is_no_fact_of_this_pod_is_not_set(member: Member, others: str) -> None:
    assert isinstance(member._files, Interrupted)
    member._files.others = others
    with pytest.raises(DirectoryUnusable, match="reads differently from what was written: "):
        member.put(Fact("x", 0))
