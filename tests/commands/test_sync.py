"""`a4-agent sync`, beside an agent: what is asked of it, what is said, and flags for old scripts."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import POD, Call
from tests.commands.server import FakeAgent, Refused

IN_A_RUN = {**POD, "A4_RUN": "script-7", "A4_RUN_PODS": "2,1"}
"""Pod 1 in a run of two pods, of which the other leads."""


def fact(name: str, pod: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "pod": pod, "failed": False, "code": 0, "message": "", "time": 1.8e9, **fields}


@pytest.fixture
def storage() -> Iterator[Path]:
    """A directory on a mount."""
    path = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


def lead(storage: Path) -> dict[str, str]:
    """Variables of pod 0, whose job has shared storage."""
    return {**POD, "JOB_COMPLETION_INDEX": "0", "JOB_ID": "job", "A4_SHARED_DIR": str(storage)}


def test_what_is_asked_of_the_agent(agent: FakeAgent, call_command: Call) -> None:
    assert call_command("sync", "set", "x", env=POD) == (0, "", "")
    assert call_command("sync", "set", "x", env=IN_A_RUN)[0] == 0
    assert call_command("sync", "set", "x", "--job", env=IN_A_RUN)[0] == 0
    asked = agent.asked("set")
    assert [(one["run"], one["fact"]["name"], one["fact"]["pod"]) for one in asked] == [
        ("", "x", 1),
        ("script-7", "x", 1),
        ("", "x", 1),
    ]
    agent.awaited = [{"done": True}] * 3
    for words in ((), ("--from", "all"), ("--from", "1", "--timeout", "5")):
        assert call_command("sync", "wait", "ready", *words, env=IN_A_RUN)[0] == 0
    assert [one["pods"] for one in agent.asked("await")] == [[2], [1, 2], [1]]
    assert agent.asked("await")[-1]["seconds"] <= 5
    assert not agent.asked("begin"), "that is for the pod that leads"


def test_how_a_wait_ends(agent: FakeAgent, call_command: Call) -> None:
    agent.awaited = [{"missing": [0, 2]}, {"failed": fact("x", 2, failed=True, code=7, message="no space on\ndevice")}]
    code, out, err = call_command("sync", "wait", "x", "--from", "all", env=POD)
    assert (code, out) == (7, "")
    assert err == (
        "a4-agent: waiting for pods 0,2 (2 of 3) to set x for 0 s\n"
        "a4-agent: pod 2 says that x failed: no space on\ndevice\n"
    )
    agent.awaited = [{"gone": {"1": "its part of the run is over"}}]
    code, _, err = call_command("sync", "wait", "x", env=POD)
    assert (code, err) == (75, "a4-agent: x is not set, and will not be: pod 1: its part of the run is over\n")
    agent.awaited = [{"missing": [0]}]
    code, _, err = call_command("sync", "wait", "x", "--timeout", "1", env=POD)
    assert (code, err) == (124, "a4-agent: time is up: waiting for pod 0 to set x\n")


def test_a_message_is_masked_and_cut(agent: FakeAgent, call_command: Call) -> None:
    words = ("sync", "fail", "x", "--code", "7", "--message", "no access for hf_123456789 " + "x" * 2000)
    assert call_command(*words, env={**POD, "HF_TOKEN": "hf_123456789"})[0] == 0
    (told,) = (request["fact"] for request in agent.asked("set"))
    assert (told["failed"], told["code"], len(told["message"])) == (True, 7, 1024)
    assert told["message"].startswith("no access for *** xxx")


def test_what_is_set_is_listed_and_taken_away(agent: FakeAgent, call_command: Call) -> None:
    agent.facts = [fact("convert", 1, failed=True, code=3, message="it broke"), fact("download", 0)]
    code, out, _ = call_command("sync", "list", env=POD)
    assert (code, out.splitlines()) == (
        0,
        [
            "name      pod  state       since                 message",
            "convert     1  failed (3)  2027-01-15T08:00:00Z  it broke",
            "download    0  done        2027-01-15T08:00:00Z",
        ],
    )
    assert json.loads(call_command("sync", "list", "--json", env=POD)[1]) == {"facts": agent.facts}
    agent.facts = agent.facts[:1]
    assert call_command("sync", "clean", "convert", env=POD) == (0, "", "a4-agent: convert of 1 pod removed\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "a/b"), "is not a name of at most 100 letters"),
        (("wait", "x", "--from", "3"), "names pods that do not take part"),
        (("wait", "x", "--from", "2-1"), "names pods that do not take part"),
        (("wait", "x", "--timeout", "0"), "is not a number of seconds"),
        (("fail", "x", "--code", "0"), "is not a whole number from 1 to 255"),
    ],
)
def test_wrong_command_lines(agent: FakeAgent, call_command: Call, words: tuple[str, ...], said: str) -> None:
    code, out, err = call_command("sync", *words, env=POD)
    assert (code, out) == (2, "")
    assert said in err


def test_no_agent_and_no_cluster(agent: FakeAgent, call_command: Call, tmp_path: Path) -> None:
    agent.refuse["set"] = Refused(69, "the cluster is not formed yet")
    assert call_command("sync", "set", "x", env=POD)[::2] == (69, "a4-agent: the cluster is not formed yet\n")
    code, _, err = call_command("sync", "set", "x", env={**POD, "A4_RUN_DIR": str(tmp_path / "none")})
    assert (code, "no a4-agent runs in this pod" in err) == (69, True)


# Flags for old scripts


def test_flags_are_written_by_pod_0_and_taken_away(agent: FakeAgent, call_command: Call, storage: Path) -> None:
    flag = storage / "sync_flags_job" / "download_complete_flag"
    assert call_command("sync", "set", "download_complete", env={**lead(storage), "JOB_COMPLETION_INDEX": "1"})[0] == 0
    assert not flag.exists()
    assert call_command("sync", "set", "download_complete", env=lead(storage))[0] == 0
    assert flag.is_file()
    assert call_command("sync", "fail", "download_complete", env=lead(storage))[0] == 0
    assert not flag.exists()
    assert call_command("sync", "set", "download_complete", env=lead(storage))[0] == 0
    assert call_command("sync", "clean", "download_complete", env=lead(storage))[0] == 0
    assert not flag.exists()


def which(flag: Path) -> str:
    made = flag.stat()
    return f"{made.st_ino}:{made.st_mtime_ns}"


def test_pod_0_takes_away_what_an_earlier_attempt_has_left_and_nothing_newer(
    agent: FakeAgent, call_command: Call, storage: Path
) -> None:
    old, new = (storage / "sync_flags_job" / f"{name}_complete_flag" for name in ("conversion", "download"))
    old.parent.mkdir()
    for flag in (old, new):
        flag.touch()
        agent.stale[f"sync_flags_job/{flag.name}"] = which(flag)
    os.utime(new, ns=(7, 7))  # a script has made it anew
    for words in (("list",), ("clean", "other")):
        assert call_command("sync", *words, env=lead(storage))[0] == 0
    assert old.exists(), "who only looks changes nothing"
    assert call_command("sync", "set", "other", env=lead(storage))[0] == 0
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("directory", "why"),
    [("/no/such", "No such file"), ("/etc/hostname", "Not a directory"), ("/usr", "nothing is mounted at /usr")],
)
def test_a_flag_that_cannot_be_written_is_an_error_and_nothing_is_set(
    agent: FakeAgent, call_command: Call, directory: str, why: str
) -> None:
    agent.stale = {"sync_flags_job/download_complete_flag": "1:1"}
    assert call_command("sync", "set", "other", env=lead(Path(directory)))[0] == 0, "no flag belongs to it"
    code, _, err = call_command("sync", "set", "download_complete", env=lead(Path(directory)))
    assert (code, why in err) == (73, True), err
    assert [request["fact"]["name"] for request in agent.asked("set")] == ["other"]
