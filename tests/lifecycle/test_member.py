"""A pod in a shared directory, when several of its processes do the same at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.decide.sync.facts import Fact, FactPlace, write_fact
from agent.errors import DirectoryUnusable
from agent.lifecycle.sharing.member import Member
from agent.machine.shared_files import SharedAnswer, SharedCommand, SharedFiles
from agent.settings import Found, read_settings

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
