"""Pods that wait for each other through pod 0's agent (`a4-agent sync`)."""

from __future__ import annotations

from typing import Any

import pytest

from agent.lifecycle.runs.old_flags import LOOK_SECONDS
from agent.lifecycle.waits import REPORT_SECONDS
from tests.fake.process import FOREVER, Life
from tests.fake.world import FakeWorld
from tests.lifecycle.test_submitted import sleeping

FLAG = "sync_flags_job/download_complete_flag"
SHARED = {"A4_SHARED_DIR": "/mnt", "JOB_ID": "job"}


class Walk:
    """A run of three pods whose programs set and wait when the test says so."""

    def __init__(self, env: dict[str, str] | None = None, lives: dict[int, Life] | None = None) -> None:
        self.world: FakeWorld = sleeping(3, env=env or {})
        for pod in self.world.pods:
            pod.life = (lives or {}).get(pod.index, FOREVER)
        self.run = self.begin()

    def begin(self) -> str:
        run = self.world.submit(0, "script")
        self.world.wait(2)
        return run

    def begin_anew(self) -> None:
        """Another run, when this one has been cancelled."""
        self.world.ask(1, "cancel", run=self.run)
        self.world.wait(60)
        self.run = self.begin()

    def set(self, pod: int, name: str = "x", *, run: str | None = None, **fact: Any) -> dict[str, Any]:
        run = self.run if run is None else run
        fact = {"name": name, "pod": pod, "failed": False, "code": 0, "message": "", "time": 0.0, **fact}
        return {name: told for name, told in self.world.ask(pod, "set", run=run, fact=fact).items() if name != "id"}

    def wait(self, pod: int, *pods: int, name: str = "x", run: str | None = None) -> Wait:
        return Wait(self.world, pod, self.run if run is None else run, name, pods or (0,))

    def names(self, pod: int = 0, run: str | None = None) -> list[tuple[str, int, bool]]:
        told = self.world.ask(pod, "facts", run=self.run if run is None else run)["ok"]["facts"]
        return [(fact["name"], fact["pod"], fact["failed"]) for fact in told]


class Wait:
    """What one command in a pod waits for."""

    def __init__(self, world: FakeWorld, pod: int, run: str, name: str, pods: tuple[int, ...]) -> None:
        self._world = world
        self._client = world.pod(pod).agent.client()
        self._number = self._client.ask("await", run=run, name=name, pods=list(pods), seconds=3600.0)
        world.wait(0.1)

    @property
    def answer(self) -> Any:
        """None: nothing yet."""
        return self._client.answers.get(self._number, {}).get("ok")

    @property
    def told(self) -> Any:
        self._world.until(lambda: self._number in self._client.answers, self._world.seconds + 100)
        return self.answer


def test_who_waits_goes_on_when_all_have_set_it() -> None:
    walk = Walk()
    one, all_three = walk.wait(1), walk.wait(2, 0, 1, 2)
    assert walk.set(0) == walk.set(1) == {"ok": {}}
    assert (one.told, all_three.answer) == ({"done": True}, None)
    walk.set(2)
    assert all_three.told == walk.wait(0, 0, 1, 2).told == {"done": True}


def test_who_waits_hears_who_is_missing_and_asks_again() -> None:
    walk = Walk()
    walk.set(1)
    began = walk.world.seconds
    assert walk.wait(0, 0, 1, 2).told == {"missing": [0, 2]}
    assert walk.world.seconds - began == pytest.approx(REPORT_SECONDS, abs=0.5)


def test_a_failure_counts_first_and_until_it_is_taken_away() -> None:
    walk = Walk()
    walk.set(0)
    waiting = walk.wait(1, 2)
    walk.set(2, failed=True, code=7, message="no space")
    assert {name: waiting.told["failed"][name] for name in ("name", "pod", "code", "message")} == {
        "name": "x", "pod": 2, "code": 7, "message": "no space"
    }  # fmt: skip
    assert "failed" in walk.wait(1, 0).told, "though pod 0 has set it"
    assert walk.names(1) == [("x", 0, False), ("x", 2, True)]
    assert walk.world.ask(1, "forget", run=walk.run, name="x")["ok"] == {"count": 2}
    assert walk.names() == []


def test_nobody_waits_for_a_pod_whose_part_is_over() -> None:
    walk = Walk(lives={1: Life(0, seconds=10)})
    before, set_already = walk.wait(2, 0, 1), walk.wait(0, 1, name="y")
    walk.set(1, "y")
    assert set_already.told == {"done": True}
    gone = {"gone": {"1": "its part of the run is over"}}
    assert before.told == walk.wait(0, 1).told == gone
    assert walk.wait(0, 1, name="y").told == {"done": True}, "what it has set counts"


def test_a_wait_ends_with_a_pod_that_is_lost() -> None:
    walk = Walk()
    walk.world.pod(2).kill()
    while "missing" in (told := walk.wait(0, 2).told):
        pass
    assert list(told["gone"]) == ["2"] and "silent for 35 s" in told["gone"]["2"], told


def test_runs_and_the_job_have_their_own() -> None:
    walk = Walk()
    walk.set(0)
    walk.set(0, "of-the-job", run="")
    assert walk.names() == [("x", 0, False)]
    assert walk.names(2, run="") == [("of-the-job", 0, False)]
    assert walk.wait(1, run="", name="of-the-job").told == {"done": True}
    walk.begin_anew()
    assert walk.names() == [], "what an earlier run has set does not count"


def test_nonsense_is_refused_and_changes_nothing() -> None:
    walk = Walk()
    for fields in ({"name": "a/b"}, {"pods": ["x"]}, {"pods": None}, {"seconds": "x"}, {"run": "script-0"}):
        asked = {"run": walk.run, "name": "x", "pods": [0], "seconds": 1.0, **fields}
        assert "error" in walk.world.ask(1, "await", **asked), fields
    for name, message in (("../x", ""), ("x", "x" * 2000)):
        assert "error" in walk.set(1, name, message=message)
    assert walk.names() == []


def test_who_sets_too_much_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.lifecycle.runs.facts.MOST_FACTS", 3)
    walk = Walk()
    for pod in (0, 1, 2):
        walk.set(pod)
    refused = walk.set(1, "y")["error"]
    assert (refused["code"], refused["hint"]) == (2, "a4-agent sync clean NAME removes some")
    walk.world.ask(1, "forget", run=walk.run, name="x")
    assert walk.set(1, "y") == {"ok": {}}


def test_a_flag_that_an_old_script_makes_is_a_fact() -> None:
    """Pod 0 looks for it while somebody waits, and what was there before does not count."""
    walk = Walk(SHARED)
    pod = walk.world.pod(0)
    pod.flags = {FLAG: "1:1"}
    waiting = walk.wait(1, name="download_complete")
    assert waiting.told == {"done": True}
    assert walk.names() == [("download_complete", 0, False)]
    walk.begin_anew()
    waiting = walk.wait(1, name="download_complete")
    walk.world.wait(3 * LOOK_SECONDS)
    assert waiting.answer is None, "it is of an earlier run"
    pod.flags = {FLAG: "2:1"}
    assert waiting.told == {"done": True}


def test_what_was_there_before_a_run_is_told_to_its_first_command() -> None:
    walk = Walk(SHARED)
    assert walk.world.ask(0, "begin", run=walk.run)["ok"] == {"stale": {}}
    walk.world.pod(0).flags = {FLAG: "1:1"}
    walk.begin_anew()
    assert walk.world.ask(0, "begin", run=walk.run)["ok"] == {"stale": {FLAG: "1:1"}}
    assert walk.world.ask(0, "begin", run=walk.run)["ok"] == {"stale": {}}


def test_a_flag_counts_that_is_made_just_before_its_script_ends() -> None:
    walk = Walk(SHARED, lives={0: Life(0, seconds=10)})
    waiting = walk.wait(1, name="download_complete")
    walk.world.wait(LOOK_SECONDS * 3.5)
    walk.world.pod(0).flags = {FLAG: "1:1"}
    assert waiting.told == {"done": True}
    other = Walk(SHARED, lives={0: Life(0, seconds=10)})
    assert set(other.wait(1, name="download_complete").told) == {"gone"}


def test_flags_are_not_looked_for_while_nobody_waits_or_the_file_server_hangs() -> None:
    walk = Walk(SHARED)
    pod = walk.world.pod(0)
    other = walk.wait(1, name="other")
    pod.flags = {FLAG: "1:1"}
    walk.world.wait(3 * LOOK_SECONDS)
    assert walk.names() == [] and other.answer is None
    pod.reading_seconds = None
    waiting = walk.wait(1, name="download_complete")
    walk.world.wait(20)
    assert waiting.answer is None
    pod.reading_seconds = 0.05
    assert waiting.told == {"done": True}
