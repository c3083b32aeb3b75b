"""Processes of a run that wait for each other through the agents of their pods."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.decide.pipeline import Pipeline
from agent.errors import PeerLost
from agent.lifecycle.runs.meetings import MOST_SAID, Meetings
from agent.lifecycle.stages.meeting import Meeting
from tests.fake.process import FOREVER, Life
from tests.lifecycle.test_submitted import sleeping

ALL = {"0": "", "1": "", "2": ""}


class Walk:
    """A run of three pods whose processes arrive somewhere when the test says so."""

    def __init__(self, lives: Mapping[int, Life] | None = None) -> None:
        self.world = sleeping(3)
        for pod in self.world.pods:
            pod.life = (lives or {}).get(pod.index, FOREVER)
        self.run = self.world.submit(0, "script")
        self.world.wait(2)
        self._clients = [pod.agent.client() for pod in self.world.pods]
        self._numbers: dict[int, int] = {}

    def arrive(self, pod: int, name: str = "clone", says: str = "") -> None:
        self._numbers[pod] = self._clients[pod].ask("arrive", run=self.run, name=name, pod=pod, says=says)

    def answer(self, pod: int) -> Any:
        """What this pod was told last; None: nothing yet."""
        return self._clients[pod].answers.get(self._numbers[pod])

    def told(self, pod: int) -> Any:
        self.world.until(lambda: self.answer(pod) is not None)
        return self.answer(pod)["ok"]


def test_all_go_on_when_the_last_has_arrived() -> None:
    walk = Walk()
    walk.arrive(0, says="made")
    walk.arrive(2)
    walk.world.wait(5)
    assert walk.answer(0) is None and walk.answer(2) is None
    walk.arrive(1)
    assert [walk.told(pod) for pod in range(3)] == [{"said": {"0": "made", "1": "", "2": ""}}] * 3
    walk.arrive(2, "download")
    assert walk.told(2) == {"missing": [0, 1]}, "who waits hears who is missing, and asks again"
    walk.arrive(0, "download")
    walk.arrive(1, "train")
    assert (walk.told(0), walk.told(1)) == ({"missing": [1]}, {"missing": [0, 2]}), "meetings have names"
    walk.arrive(1, "download")
    assert walk.told(1) == {"said": ALL}
    walk.arrive(2, "download")
    walk.arrive(0, "download")
    assert walk.told(2) == walk.told(0) == {"said": ALL}


def test_a_process_has_something_to_tell_or_talks_nonsense() -> None:
    walk = Walk()
    assert walk.world.ask(2, "tell", run=walk.run, pod=2, line="train: iteration 1/ 9")["ok"] == {}
    assert f"{walk.run}, pod 2: train: iteration 1/ 9" in walk.world.pod(0).log.getvalue()
    assert "error" in walk.world.ask(2, "tell", run="script-0", pod=2, line="x")
    for wrong in ({"pod": 7}, {"says": "x" * (MOST_SAID + 1)}, {"run": "script-0"}):
        asked = {"run": walk.run, "name": "clone", "pod": 1, "says": "", **wrong}
        assert "error" in walk.world.ask(1, "arrive", **asked)


def test_nobody_waits_for_a_pod_whose_process_is_over() -> None:
    walk = Walk({1: Life(0, seconds=10)})
    walk.arrive(0)
    walk.arrive(2)
    assert walk.told(0) == walk.told(2) == {"said": {"0": "", "2": ""}}, "pod 1 has not arrived"


def test_a_process_ends_when_another_is_over_that_has_not_arrived(tmp_path: Path) -> None:
    """Else a stage would go on, or be complete, in which that pod has failed."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        meeting = Meeting(Pipeline("run", 0, [0, 1, 2], []), path, pytest.fail)
        answered = threading.Thread(target=answer_one, args=(listener, {"said": {"0": "", "2": ""}}))
        answered.start()
        with pytest.raises(PeerLost, match="pod 1 ended before 'train is done'"):
            meeting.arrive("train is done")
        meeting._connected().close()
        answered.join()


def answer_one(listener: socket.socket, told: Mapping[str, Any]) -> None:
    connection = listener.accept()[0]
    with connection, connection.makefile("rw") as file:
        asked = json.loads(file.readline())
        file.write(json.dumps({"id": asked["id"], "ok": told}) + "\n")
        file.flush()


def test_a_lost_pod_ends_the_run_of_those_who_wait_for_it() -> None:
    walk = Walk()
    walk.arrive(0)
    walk.world.pod(1).kill()
    code = walk.world.ask(0, "wait", run=walk.run)["ok"]["end"]["code"]
    assert code != 0 and walk.answer(0) != {"ok": {"said": {}}}


def test_a_meeting_of_many_pods_is_looked_at_once_for_each_that_arrives() -> None:
    pods, looks, answers = 1024, list[int](), list[Any]()

    def expected() -> set[int]:
        looks.append(1)
        return set(range(pods))

    meetings = Meetings(sleeping(1).pod(0).agent, expected)
    for pod in range(pods):
        meetings.arrive("train", pod, "here", answers.append)
    assert (len(answers), len(looks)) == (pods, 2 * pods)
    assert answers[0] == {"ok": {"said": {str(pod): "here" for pod in range(pods)}}}
